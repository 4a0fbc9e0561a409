// OLMoE (Muennighoff et al. 2024, arXiv 2409.02060): norms over whole rows of q and k, 64 small
// experts in every layer, whose weights are not normalised.
#include "models/arch.h"
#include "models/config_readers.h"
#include "models/moe.h"
#include "models/parts.h"

namespace lucid {
namespace {

Result<ModelConfig> FromGguf(const GgufFile& file) {
  GgufHparams h(file, "olmoe");
  ModelConfig c = ReadGgufCommon(h, "olmoe", RopeStyle::kHalfSplit);
  c.qk_norm = QkNorm::kWholeRow;
  ReadGgufExperts(h, {.score = RouteScore::kSoftmax}, c);
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "olmoe",
                               {.hidden_size = 2048,
                                .intermediate_size = 2048,
                                .num_hidden_layers = 16,
                                .num_attention_heads = 16,
                                .vocab_size = 50304,
                                .max_position_embeddings = 4096,
                                .norm_eps = 1e-5});
  c.qkv_bias = c.attn_out_bias = h.Bool("attention_bias", false);
  c.qk_norm = QkNorm::kWholeRow;
  c.clip_qkv = h.Float("clip_qkv", 0);
  SetLayers(c, ReadHfRope(h, c));
  ReadHfExperts(h,
                {.n_experts_absent = 64,
                 .dim = "intermediate_size",
                 .dim_absent = c.ffn_dim,
                 .n_used_absent = 8},
                {.score = RouteScore::kSoftmax, .normalise = h.Bool("norm_topk_prob", false)}, c);
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

}  // namespace

extern const ArchSpec kOlmoe = {
    .name = "olmoe",
    .gguf = "olmoe",
    .hf = {"OlmoeForCausalLM"},
    .from_gguf = FromGguf,
    .from_hf = FromHf,
    .hf_names = {names::kEnds, names::kPreNorms, names::kAttention, names::kQkNorms,
                 names::kExperts},
    .embed = parts::Embed,
    .block = parts::ExpertBlock,
    .head = parts::Head,
};

}  // namespace lucid
