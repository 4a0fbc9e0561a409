// Gemma 2: norms before and after each half of the block, a window in every other layer, caps on
// the scores and on the logits, embedding times sqrt(dim).
#include <cmath>
#include <vector>

#include "models/arch.h"
#include "models/config_readers.h"
#include "models/parts.h"

namespace lucid {
namespace {

constexpr int64_t kPattern = 2;  // layers 0, 2, 4, ... have the window

void SetWindows(ModelConfig& c, int64_t window, const std::vector<bool>& sliding) {
  for (size_t i = 0; i < c.layers.size(); ++i) c.layers[i].window = sliding[i] ? window : 0;
}

Result<ModelConfig> FromGguf(const GgufFile& file) {
  GgufHparams h(file, "gemma2");
  ModelConfig c = ReadGgufCommon(h, "gemma2", RopeStyle::kHalfSplit);
  c.act = Activation::kGeluTanh;
  c.embed_scale = std::sqrt(static_cast<double>(c.dim));
  c.attn_softcap = h.FloatOr("attn_logit_softcapping", 50.0);
  c.logit_softcap = h.FloatOr("final_logit_softcapping", 30.0);
  // The file does not say query_pre_attn_scalar; of the published sizes only 27B (46 layers) has
  // another than head_dim.
  if (c.n_layers == 46 && c.n_heads > 0)
    c.attn_scale = 1.0 / std::sqrt(static_cast<double>(c.dim) / static_cast<double>(c.n_heads));
  SetWindows(c, h.IntOr("attention.sliding_window", 4096), ReadGgufSlidingLayers(h, c, kPattern));
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "gemma2",
                               {.hidden_size = 2304,
                                .intermediate_size = 9216,
                                .num_hidden_layers = 26,
                                .num_attention_heads = 8,
                                .num_key_value_heads = 4,
                                .head_dim = 256,
                                .vocab_size = 256000,
                                .max_position_embeddings = 8192,
                                .tie_word_embeddings = true,
                                .act_key = "hidden_activation",
                                .act = "gelu_pytorch_tanh"});
  c.embed_scale = std::sqrt(static_cast<double>(c.dim));
  c.attn_scale = 1.0 / std::sqrt(h.Positive("query_pre_attn_scalar", 256));
  c.attn_softcap = h.FloatOrNull("attn_logit_softcapping", 50.0);
  c.logit_softcap = h.FloatOrNull("final_logit_softcapping", 30.0);
  c.qkv_bias = c.attn_out_bias = h.Bool("attention_bias", false);
  h.Only("use_bidirectional_attention", false);
  SetLayers(c, ReadHfRope(h, c));
  const int64_t window = h.IntOrNull("sliding_window", 4096);
  std::vector<bool> sliding(c.layers.size());
  for (size_t i = 0; i < sliding.size(); i += kPattern) sliding[i] = true;
  SetWindows(c, window, ReadHfSlidingLayers(h, c).value_or(sliding));
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Value Block(Builder& b, const ModelConfig& c, int layer, Value x) {
  return parts::SandwichBlock(b, c, layer, x, parts::GatedFfn);
}

}  // namespace

extern const ArchSpec kGemma2 = {
    .name = "gemma2",
    .gguf = "gemma2",
    .hf = {"Gemma2ForCausalLM"},
    .from_gguf = FromGguf,
    .from_hf = FromHf,
    .hf_names = {names::kGemmaNorms, names::kEnds, names::kAttention, names::kFfn},
    .embed = parts::Embed,
    .block = Block,
    .head = parts::Head,
};

}  // namespace lucid
