// Qwen3-MoE: Qwen3's attention with norms of q and k per head, experts in most layers.
#include "models/arch.h"
#include "models/config_readers.h"
#include "models/gguf_key_writer.h"
#include "models/moe.h"
#include "models/parts.h"

namespace lucid {
namespace {

Result<ModelConfig> FromGguf(const GgufFile& file) {
  GgufHparams h(file, "qwen3moe");
  ModelConfig c = ReadGgufCommon(h, "qwen3_moe", RopeStyle::kHalfSplit);
  c.qk_norm = QkNorm::kPerHead;
  ReadGgufExperts(h, {.score = RouteScore::kSoftmax, .normalise = true}, c);
  ReadGgufWindows(h, c);
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

void ToGguf(const ModelConfig& c, GgufKeyWriter& keys) {
  NoteQwenExperts(c, /*normalise=*/true, keys);
}

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "qwen3_moe",
                               {.hidden_size = 2048,
                                .intermediate_size = 6144,
                                .num_hidden_layers = 24,
                                .num_attention_heads = 32,
                                .num_key_value_heads = 4,
                                .vocab_size = 151936,
                                .max_position_embeddings = 32768});
  c.qkv_bias = c.attn_out_bias = h.Bool("attention_bias", false);
  c.qk_norm = QkNorm::kPerHead;
  const bool windows = h.Bool("use_sliding_window", false);
  SetLayers(c, ReadHfRope(h, c), windows ? h.Int("sliding_window", 4096) : 0);
  ReadHfExperts(h, {.n_experts_absent = 128, .dim_absent = 768, .n_used_absent = 8},
                {.score = RouteScore::kSoftmax, .normalise = h.Bool("norm_topk_prob", false)}, c);
  SetQwenExpertLayers(h, c);
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

}  // namespace

extern const ArchSpec kQwen3Moe = {
    .name = "qwen3_moe",
    .gguf = "qwen3moe",
    .hf = {"Qwen3MoeForCausalLM"},
    .from_gguf = FromGguf,
    .from_hf = FromHf,
    .hf_names = {names::kEnds, names::kPreNorms, names::kAttention, names::kQkNorms, names::kFfn,
                 names::kExperts},
    .to_gguf = ToGguf,
    .embed = parts::Embed,
    .block = parts::ExpertBlock,
    .head = parts::Head,
};

}  // namespace lucid
