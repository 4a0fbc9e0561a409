// GLM-4.5: rope on half of each head, optional norms of q and k, routing as DeepSeek-V3, dense
// first layers. Layers that predict further tokens are not read.
#include <algorithm>

#include "models/arch.h"
#include "models/config_readers.h"
#include "models/moe.h"
#include "models/parts.h"

namespace lucid {
namespace {

Result<ModelConfig> FromGguf(const GgufFile& file) {
  GgufHparams h(file, "glm4moe");
  ModelConfig c = ReadGgufCommon(h, "glm4_moe", RopeStyle::kHalfSplit);
  c.n_unrun_layers = std::clamp<int64_t>(h.IntOr("nextn_predict_layers", 0), 0, 4096);
  c.n_layers -= c.n_unrun_layers;
  c.layers.resize(static_cast<size_t>(std::clamp<int64_t>(c.n_layers, 0, 4096)));
  if (h.LayersHave({"attn_q_norm.weight", "attn_k_norm.weight"})) c.qk_norm = QkNorm::kPerHead;
  ReadGgufExperts(h, {.score = RouteScore::kSigmoid, .normalise = true}, c);
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "glm4_moe",
                               {.intermediate_size = 10944,
                                .num_hidden_layers = 46,
                                .num_attention_heads = 96,
                                .num_key_value_heads = 8,
                                .vocab_size = 151552,
                                .max_position_embeddings = 131072,
                                .norm_eps = 1e-5});
  c.n_unrun_layers = h.Int("num_nextn_predict_layers", 0);
  c.qkv_bias = h.Bool("attention_bias", false);
  if (h.Bool("use_qk_norm", false)) c.qk_norm = QkNorm::kPerHead;
  SetLayers(c, ReadHfRope(h, c, {.partial = 0.5}));
  ReadHfExperts(h,
                {.n_experts = "n_routed_experts",
                 .n_experts_absent = 128,
                 .dim_absent = 1408,
                 .n_used_absent = 8,
                 .first = "first_k_dense_replace",
                 .first_absent = 1},
                {}, c);
  ReadHfSigmoidRouting(h, /*scale_absent=*/1.0, /*groups_absent=*/1, /*groups_used_absent=*/1, c);
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

// The norm before the experts, by its name in Hugging Face files.
constexpr std::array kGgufNames = {
    NameRule{"blk.{}.ffn_norm", "blk.{}.post_attention_norm.weight"},
};

}  // namespace

extern const ArchSpec kGlm4Moe = {
    .name = "glm4_moe",
    .gguf = "glm4moe",
    .hf = {"Glm4MoeForCausalLM"},
    .from_gguf = FromGguf,
    .from_hf = FromHf,
    .hf_names = {names::kEnds, names::kPreNorms, names::kAttention, names::kQkNorms, names::kFfn,
                 names::kExperts},
    .gguf_names = kGgufNames,
    .embed = parts::Embed,
    .block = parts::ExpertBlock,
    .head = parts::Head,
};

}  // namespace lucid
