// OPT: GPT-2 with ReLU, and learned positions that begin in row 2. Read from Hugging Face files
// only.
#include <array>

#include "models/arch.h"
#include "models/config_readers.h"
#include "models/parts.h"

namespace lucid {
namespace {

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "opt",
                               {.hidden_size = 768,
                                .intermediate_size = 3072,
                                .num_hidden_layers = 12,
                                .num_attention_heads = 12,
                                .vocab_size = 50272,
                                .norm = NormKind::kLayer,
                                .tie_word_embeddings = true,
                                .act_key = "activation_function",
                                .act = "relu"});
  c.norm_eps = 1e-5;  // no key of the config changes it
  c.position_offset = 2;
  c.position_rows = c.context_length + c.position_offset;
  c.norm_bias = true;
  c.qkv_bias = c.attn_out_bias = c.ffn_bias = h.Bool("enable_bias", true);
  h.Only("do_layer_norm_before", true);
  h.Only("_remove_final_layer_norm", false);
  h.Only("layer_norm_elementwise_affine", true);
  if (h.Int("word_embed_proj_dim", c.dim) != c.dim) {
    h.Fail({ErrorCode::kUnsupported,
            "config.json: word_embed_proj_dim is not hidden_size, which is not supported"});
  }
  SetNoRope(c);
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

constexpr std::array kNames = {
    NameRule{"token_embd", "model.decoder.embed_tokens.weight"},
    NameRule{"position_embd", "model.decoder.embed_positions.weight"},
    NameRule{"output_norm", "model.decoder.final_layer_norm.weight"},
    NameRule{"output_norm.bias", "model.decoder.final_layer_norm.bias"},
    NameRule{"output", "lm_head.weight"},
    NameRule{"blk.{}.attn_norm", "model.decoder.layers.{}.self_attn_layer_norm.weight"},
    NameRule{"blk.{}.attn_norm.bias", "model.decoder.layers.{}.self_attn_layer_norm.bias"},
    NameRule{"blk.{}.attn_q", "model.decoder.layers.{}.self_attn.q_proj.weight"},
    NameRule{"blk.{}.attn_q.bias", "model.decoder.layers.{}.self_attn.q_proj.bias"},
    NameRule{"blk.{}.attn_k", "model.decoder.layers.{}.self_attn.k_proj.weight"},
    NameRule{"blk.{}.attn_k.bias", "model.decoder.layers.{}.self_attn.k_proj.bias"},
    NameRule{"blk.{}.attn_v", "model.decoder.layers.{}.self_attn.v_proj.weight"},
    NameRule{"blk.{}.attn_v.bias", "model.decoder.layers.{}.self_attn.v_proj.bias"},
    NameRule{"blk.{}.attn_output", "model.decoder.layers.{}.self_attn.out_proj.weight"},
    NameRule{"blk.{}.attn_output.bias", "model.decoder.layers.{}.self_attn.out_proj.bias"},
    NameRule{"blk.{}.ffn_norm", "model.decoder.layers.{}.final_layer_norm.weight"},
    NameRule{"blk.{}.ffn_norm.bias", "model.decoder.layers.{}.final_layer_norm.bias"},
    NameRule{"blk.{}.ffn_up", "model.decoder.layers.{}.fc1.weight"},
    NameRule{"blk.{}.ffn_up.bias", "model.decoder.layers.{}.fc1.bias"},
    NameRule{"blk.{}.ffn_down", "model.decoder.layers.{}.fc2.weight"},
    NameRule{"blk.{}.ffn_down.bias", "model.decoder.layers.{}.fc2.bias"},
};

}  // namespace

extern const ArchSpec kOpt = {
    .name = "opt",
    .gguf = "",
    .hf = {"OPTForCausalLM"},
    .from_hf = FromHf,
    .hf_prefix = "model.",
    .hf_names = {kNames},
    .embed = parts::Embed,
    .block = parts::PlainBlock,
    .head = parts::Head,
};

}  // namespace lucid
