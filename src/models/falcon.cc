// Falcon: attention and FFN side by side. 7B has one norm for both and one KV head; 40B and later
// one norm each and several KV heads; RW, the first, is sequential, with ALiBi and biases.
//
// Slots are named as llama.cpp names them: where there are two norms, attention's is attn_norm_2.
#include <array>

#include "models/arch.h"
#include "models/config_readers.h"
#include "models/parts.h"

namespace lucid {
namespace {

Result<ModelConfig> FromGguf(const GgufFile& file) {
  GgufHparams h(file, "falcon");
  ModelConfig c = ReadGgufCommon(h, "falcon", RopeStyle::kHalfSplit, NormKind::kLayer);
  c.act = Activation::kGeluErf;
  c.parallel_block = true;
  c.norm_bias = true;
  c.shared_norm = !h.LayersHave({"attn_norm_2.weight", "attn_norm_2.bias"});
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "falcon",
                               {.hidden_size = 4544,
                                .intermediate_size = 0,
                                .num_hidden_layers = 32,
                                .num_attention_heads = 71,
                                .vocab_size = 65024,
                                .norm = NormKind::kLayer,
                                .eps_key = "layer_norm_epsilon",
                                .norm_eps = 1e-5,
                                .tie_word_embeddings = true,
                                .act_key = "activation",
                                .act = "gelu"});
  const bool newer = h.Bool("new_decoder_architecture", false);
  if (!newer) c.n_kv_heads = h.Bool("multi_query", true) ? 1 : c.n_heads;
  c.parallel_block = newer || h.Bool("parallel_attn", true);
  c.shared_norm = h.Int("num_ln_in_parallel_attn", newer ? 2 : 1) == 1;
  c.norm_bias = true;
  c.qkv_bias = c.attn_out_bias = c.ffn_bias = h.Bool("bias", false);
  SetLayers(c, ReadHfRope(h, c));
  if (h.Bool("alibi", false)) {
    // The model adds the bias before it scales the scores. In transformers' eager attention, which
    // is the reference, the mask brings it a second time; in its fused one it does not.
    c.alibi_max_bias = 8.0;
    c.alibi_factor = 2.0 * c.attn_scale;
    SetNoRope(c);
  }
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Value Block(Builder& b, const ModelConfig& c, int layer, Value x) {
  if (!c.parallel_block) return parts::PreNormBlock(b, c, layer, x, parts::PlainFfn);
  const Value h = parts::Norm(b, c, layer, x, "attn_norm");
  const Value g = c.shared_norm ? h : parts::Norm(b, c, layer, x, "attn_norm_2");
  const Value attention = parts::Attention(b, c, layer, g);
  return b.Add(b.Add(x, attention), parts::PlainFfn(b, c, layer, h));
}

constexpr std::array kNames = {
    NameRule{"token_embd", "transformer.word_embeddings.weight"},
    NameRule{"output_norm", "transformer.ln_f.weight"},
    NameRule{"output_norm.bias", "transformer.ln_f.bias"},
    NameRule{"output", "lm_head.weight"},
    NameRule{"blk.{}.attn_norm", "transformer.h.{}.ln_mlp.weight"},
    NameRule{"blk.{}.attn_norm.bias", "transformer.h.{}.ln_mlp.bias"},
    NameRule{"blk.{}.attn_norm_2", "transformer.h.{}.ln_attn.weight"},
    NameRule{"blk.{}.attn_norm_2.bias", "transformer.h.{}.ln_attn.bias"},
};

}  // namespace

extern const ArchSpec kFalcon = {
    .name = "falcon",
    .gguf = "falcon",
    .hf = {"FalconForCausalLM", "RWForCausalLM"},
    .from_gguf = FromGguf,
    .from_hf = FromHf,
    .hf_prefix = "transformer.",
    .hf_names = {kNames, names::kMegatron},
    .embed = parts::Embed,
    .block = Block,
    .head = parts::Head,
};

}  // namespace lucid
