// Cohere Command-R: attention and FFN side by side from one layer norm without bias, neighbours
// rotated, logits scaled, norms for every head of q and k where switched on.
#include <array>

#include "models/arch.h"
#include "models/config_readers.h"
#include "models/gguf_key_writer.h"
#include "models/parts.h"

namespace lucid {
namespace {

Result<ModelConfig> FromGguf(const GgufFile& file) {
  GgufHparams h(file, "command-r");
  ModelConfig c = ReadGgufCommon(h, "cohere", RopeStyle::kInterleaved, NormKind::kLayer);
  c.logit_scale = h.FloatOr("logit_scale", 1.0);
  if (h.LayersHave({"attn_q_norm.weight", "attn_k_norm.weight"})) c.qk_norm = QkNorm::kOwnHeads;
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

// llama.cpp looks for the norms of q and k in the largest model only.
constexpr int64_t kLayersWithQkNorm = 64;

void ToGguf(const ModelConfig& c, GgufKeyWriter& keys) {
  keys.Float("logit_scale", c.logit_scale);
  if (c.qk_norm != QkNorm::kNone && c.n_layers < kLayersWithQkNorm) {
    keys.Note("llama.cpp cannot load the file: it expects norms of q and k from 64 layers on only");
  }
}

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "cohere",
                               {.hidden_size = 8192,
                                .intermediate_size = 22528,
                                .num_hidden_layers = 40,
                                .num_attention_heads = 64,
                                .vocab_size = 256000,
                                .max_position_embeddings = 8192,
                                .norm = NormKind::kLayer,
                                .eps_key = "layer_norm_eps",
                                .norm_eps = 1e-5,
                                .tie_word_embeddings = true});
  c.logit_scale = h.Float("logit_scale", 0.0625);
  c.qkv_bias = c.attn_out_bias = h.Bool("attention_bias", false);
  if (h.Bool("use_qk_norm", false)) c.qk_norm = QkNorm::kOwnHeads;
  SetLayers(c, ReadHfRope(h, c, {.theta = 500000.0, .style = RopeStyle::kInterleaved}));
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Value Block(Builder& b, const ModelConfig& c, int layer, Value x) {
  return parts::ParallelBlock(b, c, layer, x, parts::GatedFfn);
}

constexpr std::array kQkNorms = {
    NameRule{"blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm.weight", Transform::kFlatten},
    NameRule{"blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm.weight", Transform::kFlatten},
};

}  // namespace

extern const ArchSpec kCohere = {
    .name = "cohere",
    .gguf = "command-r",
    .hf = {"CohereForCausalLM"},
    .from_gguf = FromGguf,
    .from_hf = FromHf,
    .hf_names = {kQkNorms, names::kEnds, names::kPreNorms, names::kAttention, names::kFfn},
    .to_gguf = ToGguf,
    .embed = parts::Embed,
    .block = Block,
    .head = parts::Head,
};

}  // namespace lucid
