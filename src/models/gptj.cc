// GPT-J: attention and FFN side by side from one layer norm, neighbours rotated in part of each
// head. Read from Hugging Face files only.
#include <array>

#include "models/arch.h"
#include "models/config_readers.h"
#include "models/parts.h"

namespace lucid {
namespace {

Result<ModelConfig> FromHf(const nlohmann::ordered_json& config) {
  HfConfigReader h(config);
  ModelConfig c = ReadHfCommon(h, "gptj",
                               {.intermediate_size = 0,
                                .num_hidden_layers = 28,
                                .num_attention_heads = 16,
                                .vocab_size = 50400,
                                .norm = NormKind::kLayer,
                                .eps_key = "layer_norm_epsilon",
                                .norm_eps = 1e-5,
                                .act_key = "activation_function",
                                .act = "gelu_new"});
  c.norm_bias = c.ffn_bias = c.output_bias = true;
  SetLayers(c, ReadHfRope(h, c, {.rotary_dim = 64, .style = RopeStyle::kInterleaved}));
  LUCID_RETURN_IF_ERROR(h.status());
  return c;
}

Value Block(Builder& b, const ModelConfig& c, int layer, Value x) {
  return parts::ParallelBlock(b, c, layer, x, parts::PlainFfn);
}

constexpr std::array kNames = {
    NameRule{"token_embd", "transformer.wte.weight"},
    NameRule{"output_norm", "transformer.ln_f.weight"},
    NameRule{"output_norm.bias", "transformer.ln_f.bias"},
    NameRule{"output", "lm_head.weight"},
    NameRule{"output.bias", "lm_head.bias"},
    NameRule{"blk.{}.attn_norm", "transformer.h.{}.ln_1.weight"},
    NameRule{"blk.{}.attn_norm.bias", "transformer.h.{}.ln_1.bias"},
    NameRule{"blk.{}.attn_q", "transformer.h.{}.attn.q_proj.weight"},
    NameRule{"blk.{}.attn_k", "transformer.h.{}.attn.k_proj.weight"},
    NameRule{"blk.{}.attn_v", "transformer.h.{}.attn.v_proj.weight"},
    NameRule{"blk.{}.attn_output", "transformer.h.{}.attn.out_proj.weight"},
    NameRule{"blk.{}.ffn_up", "transformer.h.{}.mlp.fc_in.weight"},
    NameRule{"blk.{}.ffn_up.bias", "transformer.h.{}.mlp.fc_in.bias"},
    NameRule{"blk.{}.ffn_down", "transformer.h.{}.mlp.fc_out.weight"},
    NameRule{"blk.{}.ffn_down.bias", "transformer.h.{}.mlp.fc_out.bias"},
};

}  // namespace

extern const ArchSpec kGptj = {
    .name = "gptj",
    .gguf = "",
    .hf = {"GPTJForCausalLM"},
    .from_hf = FromHf,
    .hf_prefix = "transformer.",
    .hf_names = {kNames},
    .embed = parts::Embed,
    .block = Block,
    .head = parts::Head,
};

}  // namespace lucid
