// How a stored tensor becomes a weight, and the tables of names that families share.
//
// A slot of the plan is named as in GGUF files, so a GGUF file's tensors fill slots by their names;
// the rules here and in models/<family>.cc are for Hugging Face files and for tensors that hold
// several slots. weights.cc applies them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lucid {

enum class Transform : int8_t {
  kNone,
  kAddOne,     // the weight is (1 + stored): norms of Gemma and Nemotron in Hugging Face files
  kTranspose,  // stored as [n_in, n_out]: GPT-2's Conv1D
  kMxfp4,      // <tensor>_blocks and <tensor>_scales, as GPT-OSS publishes its experts
  kFlatten,    // stored with more dimensions, read as one row of values: norms per head of Cohere
};

// Which rows of the stored tensor (after a transpose; of a bias: which values) a slot takes.
enum class Rows : int8_t {
  kAll,
  // Fused projections: [all of q; all of k; all of v], ...
  kQ,
  kK,
  kV,
  // ... or one KV head after the other: [its heads of q; k; v].
  kGroupQ,
  kGroupK,
  kGroupV,
  // [gate; up].
  kFirstHalf,
  kSecondHalf,
  // Gate and up in turns (of stacks only).
  kEven,
  kOdd,
  // [latent; rotated key part] of latent attention, ...
  kLatent,
  kRotated,
  // ... and of every head [rows of its keys; rows of its values] (of stacks only, keys transposed).
  kHeadKeys,
  kHeadValues,
};

// A slot and the tensor that fills it. "{}" stands for the layer number in both. Of several rules
// for one slot the first counts whose tensor the file has, in the shape that the rule wants.
struct NameRule {
  std::string_view slot;
  std::string_view tensor;
  Transform transform = Transform::kNone;
  Rows rows = Rows::kAll;
};
using NameTable = std::span<const NameRule>;

// A slot's name without the number of its layer.
struct SlotName {
  std::string pattern;  // "blk.{}.attn_q" of "blk.12.attn_q"; the name itself outside of layers
  std::string layer;    // "12", or ""
};
SlotName SplitLayer(std::string_view slot);
// The name with the number in place of the first "{}".
std::string WithLayer(std::string_view pattern, std::string_view layer);

namespace names {

// Names that Llama gave and most others kept. Biases that a model does not have are not asked for.
inline constexpr std::array kEnds = {
    NameRule{"token_embd", "model.embed_tokens.weight"},
    NameRule{"output_norm", "model.norm.weight"},
    NameRule{"output_norm.bias", "model.norm.bias"},
    NameRule{"output", "lm_head.weight"},
    NameRule{"output.bias", "lm_head.bias"},
};
inline constexpr std::array kPreNorms = {
    NameRule{"blk.{}.attn_norm", "model.layers.{}.input_layernorm.weight"},
    NameRule{"blk.{}.attn_norm.bias", "model.layers.{}.input_layernorm.bias"},
    NameRule{"blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm.weight"},
    NameRule{"blk.{}.ffn_norm.bias", "model.layers.{}.post_attention_layernorm.bias"},
};
inline constexpr std::array kAttention = {
    NameRule{"blk.{}.attn_q", "model.layers.{}.self_attn.q_proj.weight"},
    NameRule{"blk.{}.attn_q.bias", "model.layers.{}.self_attn.q_proj.bias"},
    NameRule{"blk.{}.attn_k", "model.layers.{}.self_attn.k_proj.weight"},
    NameRule{"blk.{}.attn_k.bias", "model.layers.{}.self_attn.k_proj.bias"},
    NameRule{"blk.{}.attn_v", "model.layers.{}.self_attn.v_proj.weight"},
    NameRule{"blk.{}.attn_v.bias", "model.layers.{}.self_attn.v_proj.bias"},
    NameRule{"blk.{}.attn_output", "model.layers.{}.self_attn.o_proj.weight"},
    NameRule{"blk.{}.attn_output.bias", "model.layers.{}.self_attn.o_proj.bias"},
};
inline constexpr std::array kQkNorms = {
    NameRule{"blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm.weight"},
    NameRule{"blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm.weight"},
};
inline constexpr std::array kFfn = {
    NameRule{"blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj.weight"},
    NameRule{"blk.{}.ffn_gate.bias", "model.layers.{}.mlp.gate_proj.bias"},
    NameRule{"blk.{}.ffn_up", "model.layers.{}.mlp.up_proj.weight"},
    NameRule{"blk.{}.ffn_up.bias", "model.layers.{}.mlp.up_proj.bias"},
    NameRule{"blk.{}.ffn_down", "model.layers.{}.mlp.down_proj.weight"},
    NameRule{"blk.{}.ffn_down.bias", "model.layers.{}.mlp.down_proj.bias"},
};
inline constexpr std::array kFusedGateUp = {
    NameRule{"blk.{}.ffn_gate", "model.layers.{}.mlp.gate_up_proj.weight", Transform::kNone,
             Rows::kFirstHalf},
    NameRule{"blk.{}.ffn_up", "model.layers.{}.mlp.gate_up_proj.weight", Transform::kNone,
             Rows::kSecondHalf},
    NameRule{"blk.{}.ffn_down", "model.layers.{}.mlp.down_proj.weight"},
};

// Experts, each with matrices of its own, and the one of all tokens.
inline constexpr std::array kExperts = {
    NameRule{"blk.{}.ffn_gate_inp", "model.layers.{}.mlp.gate.weight"},
    NameRule{"blk.{}.exp_probs_b.bias", "model.layers.{}.mlp.gate.e_score_correction_bias"},
    NameRule{"blk.{}.ffn_gate_exps", "model.layers.{}.mlp.experts.{}.gate_proj.weight"},
    NameRule{"blk.{}.ffn_up_exps", "model.layers.{}.mlp.experts.{}.up_proj.weight"},
    NameRule{"blk.{}.ffn_down_exps", "model.layers.{}.mlp.experts.{}.down_proj.weight"},
    NameRule{"blk.{}.ffn_gate_shexp", "model.layers.{}.mlp.shared_experts.gate_proj.weight"},
    NameRule{"blk.{}.ffn_up_shexp", "model.layers.{}.mlp.shared_experts.up_proj.weight"},
    NameRule{"blk.{}.ffn_down_shexp", "model.layers.{}.mlp.shared_experts.down_proj.weight"},
};
// Norms only behind each half of a block.
inline constexpr std::array kPostNorms = {
    NameRule{"blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm.weight"},
    NameRule{"blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm.weight"},
};
// Gemma 2 and 3: norms before and behind, stored as their difference from one.
inline constexpr std::array kGemmaNorms = {
    NameRule{"output_norm", "model.norm.weight", Transform::kAddOne},
    NameRule{"blk.{}.attn_norm", "model.layers.{}.input_layernorm.weight", Transform::kAddOne},
    NameRule{"blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm.weight", Transform::kAddOne},
    NameRule{"blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm.weight", Transform::kAddOne},
    NameRule{"blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm.weight",
             Transform::kAddOne},
    NameRule{"blk.{}.ffn_norm", "model.layers.{}.pre_feedforward_layernorm.weight",
             Transform::kAddOne},
    NameRule{"blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm.weight",
             Transform::kAddOne},
};
// Norms before attention and before the feed-forward part, stored as weight - 1: Gemma, Nemotron.
inline constexpr std::array kPreNormsAddOne = {
    NameRule{"output_norm", "model.norm.weight", Transform::kAddOne},
    NameRule{"blk.{}.attn_norm", "model.layers.{}.input_layernorm.weight", Transform::kAddOne},
    NameRule{"blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm.weight",
             Transform::kAddOne},
};
// Layers of BLOOM and Falcon, whose q, k and v are one matrix, grouped by KV head.
inline constexpr std::array kMegatron = {
    NameRule{"blk.{}.attn_norm", "transformer.h.{}.input_layernorm.weight"},
    NameRule{"blk.{}.attn_norm.bias", "transformer.h.{}.input_layernorm.bias"},
    NameRule{"blk.{}.attn_q", "transformer.h.{}.self_attention.query_key_value.weight",
             Transform::kNone, Rows::kGroupQ},
    NameRule{"blk.{}.attn_q.bias", "transformer.h.{}.self_attention.query_key_value.bias",
             Transform::kNone, Rows::kGroupQ},
    NameRule{"blk.{}.attn_k", "transformer.h.{}.self_attention.query_key_value.weight",
             Transform::kNone, Rows::kGroupK},
    NameRule{"blk.{}.attn_k.bias", "transformer.h.{}.self_attention.query_key_value.bias",
             Transform::kNone, Rows::kGroupK},
    NameRule{"blk.{}.attn_v", "transformer.h.{}.self_attention.query_key_value.weight",
             Transform::kNone, Rows::kGroupV},
    NameRule{"blk.{}.attn_v.bias", "transformer.h.{}.self_attention.query_key_value.bias",
             Transform::kNone, Rows::kGroupV},
    NameRule{"blk.{}.attn_output", "transformer.h.{}.self_attention.dense.weight"},
    NameRule{"blk.{}.attn_output.bias", "transformer.h.{}.self_attention.dense.bias"},
    NameRule{"blk.{}.ffn_norm", "transformer.h.{}.post_attention_layernorm.weight"},
    NameRule{"blk.{}.ffn_norm.bias", "transformer.h.{}.post_attention_layernorm.bias"},
    NameRule{"blk.{}.ffn_up", "transformer.h.{}.mlp.dense_h_to_4h.weight"},
    NameRule{"blk.{}.ffn_up.bias", "transformer.h.{}.mlp.dense_h_to_4h.bias"},
    NameRule{"blk.{}.ffn_down", "transformer.h.{}.mlp.dense_4h_to_h.weight"},
    NameRule{"blk.{}.ffn_down.bias", "transformer.h.{}.mlp.dense_4h_to_h.bias"},
};

// GGUF files whose q, k and v are one tensor, or whose gate and up are. Slots of other names are
// the tensor <slot>.weight, or <slot> where it ends in .bias.
inline constexpr std::array kGguf = {
    NameRule{"blk.{}.attn_q", "blk.{}.attn_qkv.weight", Transform::kNone, Rows::kQ},
    NameRule{"blk.{}.attn_q.bias", "blk.{}.attn_qkv.bias", Transform::kNone, Rows::kQ},
    NameRule{"blk.{}.attn_k", "blk.{}.attn_qkv.weight", Transform::kNone, Rows::kK},
    NameRule{"blk.{}.attn_k.bias", "blk.{}.attn_qkv.bias", Transform::kNone, Rows::kK},
    NameRule{"blk.{}.attn_v", "blk.{}.attn_qkv.weight", Transform::kNone, Rows::kV},
    NameRule{"blk.{}.attn_v.bias", "blk.{}.attn_qkv.bias", Transform::kNone, Rows::kV},
    NameRule{"blk.{}.ffn_gate", "blk.{}.ffn_up.weight", Transform::kNone, Rows::kFirstHalf},
    NameRule{"blk.{}.ffn_up", "blk.{}.ffn_up.weight", Transform::kNone, Rows::kSecondHalf},
    NameRule{"blk.{}.ffn_norm", "blk.{}.post_attention_norm.weight"},
    NameRule{"blk.{}.ffn_gate_inp_shexp", "blk.{}.ffn_gate_inp_shexp.weight", Transform::kFlatten},
    NameRule{"blk.{}.attn_kv_a", "blk.{}.attn_kv_a_mqa.weight", Transform::kNone, Rows::kLatent},
    NameRule{"blk.{}.attn_k_pe", "blk.{}.attn_kv_a_mqa.weight", Transform::kNone, Rows::kRotated},
    NameRule{"blk.{}.attn_k_b", "blk.{}.attn_kv_b.weight", Transform::kNone, Rows::kHeadKeys},
    NameRule{"blk.{}.attn_v_b", "blk.{}.attn_kv_b.weight", Transform::kNone, Rows::kHeadValues},
    NameRule{"blk.{}.attn_q_norm", "blk.{}.attn_q_norm.weight", Transform::kFlatten},
    NameRule{"blk.{}.attn_k_norm", "blk.{}.attn_k_norm.weight", Transform::kFlatten},
};

}  // namespace names
}  // namespace lucid
