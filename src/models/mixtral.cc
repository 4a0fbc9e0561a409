// Mixtral (Jiang et al. 2024, arXiv 2401.04088): a Llama block whose feed-forward half is a mixture
// of experts, two for every token. GGUF files call it llama (llama.cc).
#include "models/arch.h"
#include "models/config_readers.h"
#include "models/moe.h"
#include "models/parts.h"

namespace lucid {
namespace {

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "mixtral",
                               {.intermediate_size = 14336,
                                .num_key_value_heads = 8,
                                .max_position_embeddings = 131072,
                                .norm_eps = 1e-5});
  SetLayers(c, ReadHfRope(h, c, {.theta = 1000000.0}), h.Int("sliding_window", 0));
  ReadHfExperts(h,
                {.n_experts = "num_local_experts",
                 .n_experts_absent = 8,
                 .dim = "intermediate_size",
                 .dim_absent = c.ffn_dim,
                 .n_used_absent = 2},
                {.score = RouteScore::kSoftmax, .normalise = true}, c);
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

constexpr std::array kHfNames = {
    NameRule{"blk.{}.ffn_gate_inp", "model.layers.{}.block_sparse_moe.gate.weight"},
    NameRule{"blk.{}.ffn_gate_exps", "model.layers.{}.block_sparse_moe.experts.{}.w1.weight"},
    NameRule{"blk.{}.ffn_down_exps", "model.layers.{}.block_sparse_moe.experts.{}.w2.weight"},
    NameRule{"blk.{}.ffn_up_exps", "model.layers.{}.block_sparse_moe.experts.{}.w3.weight"},
};

}  // namespace

extern const ArchSpec kMixtral = {
    .name = "mixtral",
    .gguf = "",
    .hf = {"MixtralForCausalLM"},
    .from_hf = FromHf,
    .hf_names = {names::kEnds, names::kPreNorms, names::kAttention, kHfNames},
    .gguf_as = "llama",
    .embed = parts::Embed,
    .block = parts::ExpertBlock,
    .head = parts::Head,
};

}  // namespace lucid
