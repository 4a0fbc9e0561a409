// Granite 3 MoE: a Llama block with factors on embedding, scores, residuals and logits; the
// experts' gate and up matrices are stored as one.
#include "models/arch.h"
#include "models/config_readers.h"
#include "models/granite_scales.h"
#include "models/moe.h"
#include "models/parts.h"

namespace lucid {
namespace {

constexpr RoutingRule kRule = {.score = RouteScore::kChosenSoftmax};

Result<ModelConfig> FromGguf(const GgufFile& file) {
  GgufHparams h(file, "granitemoe");
  // As Llama's, converted files have q and k permuted.
  ModelConfig c = ReadGgufCommon(h, "granitemoe", RopeStyle::kInterleaved);
  ReadGraniteScales(h, c);
  ReadGgufExperts(h, kRule, c);
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "granitemoe", {});
  c.qkv_bias = c.attn_out_bias = h.Bool("attention_bias", false);
  ReadGraniteScales(h, c);
  SetLayers(c, ReadHfRope(h, c));
  ReadHfExperts(h,
                {.n_experts = "num_local_experts",
                 .n_experts_absent = 8,
                 .dim = "intermediate_size",
                 .dim_absent = c.ffn_dim,
                 .n_used_absent = 2},
                kRule, c);
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

constexpr std::array kHfNames = {
    NameRule{"blk.{}.ffn_gate_inp", "model.layers.{}.block_sparse_moe.router.layer.weight"},
    NameRule{"blk.{}.ffn_gate_exps", "model.layers.{}.block_sparse_moe.input_linear.weight",
             Transform::kNone, Rows::kFirstHalf},
    NameRule{"blk.{}.ffn_up_exps", "model.layers.{}.block_sparse_moe.input_linear.weight",
             Transform::kNone, Rows::kSecondHalf},
    NameRule{"blk.{}.ffn_down_exps", "model.layers.{}.block_sparse_moe.output_linear.weight"},
};

}  // namespace

extern const ArchSpec kGraniteMoe = {
    .name = "granitemoe",
    .gguf = "granitemoe",
    .hf = {"GraniteMoeForCausalLM"},
    .from_gguf = FromGguf,
    .from_hf = FromHf,
    .hf_names = {names::kEnds, names::kPreNorms, names::kAttention, kHfNames},
    .to_gguf = WriteGraniteScales,
    .embed = parts::Embed,
    .block = parts::ExpertBlock,
    .head = parts::Head,
};

}  // namespace lucid
