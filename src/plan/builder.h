// Builder: the vocabulary in which architectures are written (models/*.cc). Each method appends one
// op.
//
// Shapes are inferred as ops are added; a contradiction is our own bug, found at once by
// LUCID_CHECK with the op's name.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "plan/plan.h"

namespace lucid {

class Builder;

// Names the weights of one layer: Vec("attn_norm", dim) is the slot "blk.<layer>.attn_norm".
class LayerScope {
 public:
  Value Vec(std::string_view name, Extent n) const;
  Value Mat(std::string_view name, Extent n_out, Extent n_in) const;
  Value Stack(std::string_view name, Extent n, Extent n_out, Extent n_in) const;
  int layer() const { return layer_; }

 private:
  friend class Builder;
  LayerScope(Builder& builder, int layer) : builder_(builder), layer_(layer) {}
  Builder& builder_;
  int layer_;
};

struct AttentionOptions {
  double scale = 0;
  int64_t window = 0;  // 0: all earlier positions
  double softcap = 0;
  double alibi_max_bias = 0;  // 0: no ALiBi; else as AlibiSlopes (rope_spec.h)
  double alibi_factor = 1;
  Value sinks = {};    // [n_heads]: a score of every head that joins the softmax and has no value
  int64_t v_in_k = 0;  // of a latent cache: values are the first numbers of the keys
  bool generated_only = false;
};

// What Route gives, both [T, k]: ids in ascending order (as numbers in float32), and their weights.
struct Routes {
  Value experts;
  Value weights;
};
// A matrix of every expert: [E, n_out, n_in]; biases [E, n_out] or absent.
struct ExpertWeights {
  Value w;
  Value bias;
};

class Builder {
 public:
  explicit Builder(std::string arch);

  // Weights. Asking twice for one name gives the same value (tied embeddings).
  Value Vec(std::string_view name, Extent n);
  Value Mat(std::string_view name, Extent n_out, Extent n_in);
  Value Stack(std::string_view name, Extent n, Extent n_out, Extent n_in);  // n matrices
  LayerScope Layer(int layer) { return LayerScope(*this, layer); }

  using Where = std::source_location;

  // [T, dim]: rows of table[vocab, dim] for the batch's tokens, times `scale`.
  Value Embed(Value table, double scale = 1.0, Where where = Where::current());
  // [T, dim]: rows of table[positions, dim] for the batch's positions plus `offset`.
  Value EmbedPositions(Value table, int64_t offset = 0, Where where = Where::current());
  // RMS norm (Zhang and Sennrich 2019) times weight [n], over groups of n values: the whole row [T,
  // n], or every head of a row, which gives [T, heads, n].
  Value RmsNorm(Value x, Value weight, double eps, Where where = Where::current());
  // Layer norm (Ba et al. 2016, arXiv 1607.06450) over groups of `dim` values of a row, as RmsNorm.
  // `weight` and `bias` may be absent; they have `dim` values, or as many as a row, where every
  // group has its own.
  Value LayerNorm(Value x, Value weight, Value bias, int64_t dim, double eps, std::string_view name,
                  Where where = Where::current());
  // [rows, n_out]: x W^T + bias; `bias` may be absent.
  Value Linear(Value x, Value w, Value bias = {}, Where where = Where::current());
  // The same, activations never rounded: for routers, where a little tips the choice.
  Value ExactLinear(Value x, Value w, Value bias = {}, Where where = Where::current());
  // [T, heads, head_dim]: q or k [T, heads * head_dim], each head rotated by the batch's positions.
  Value Rope(Value x, int64_t head_dim, const RopeSpec& spec, Where where = Where::current());
  // The same with the rotary_dim values from `first` on of every head.
  Value RopePart(Value x, int64_t head_dim, int64_t first, const RopeSpec& spec,
                 Where where = Where::current());
  // Declares the cache of the next layer.
  Value Kv(const KvSpec& spec, std::string_view name);
  // Writes k, v [T, heads * dim] (a latent cache has no v) at the batch's positions; returns the
  // new version of the cache.
  Value KvStore(Value kv, Value k, Value v, Where where = Where::current());
  // [T, n_heads * v_dim]: causal attention of q [T, n_heads * k_dim] over the cache.
  Value Attention(Value q, Value kv, const AttentionOptions& options,
                  Where where = Where::current());
  Value Add(Value a, Value b, Where where = Where::current());
  // act(gate) * up, where gate may be [T, 1]: one for a whole row (Shazeer, "GLU variants improve
  // Transformer", 2020).
  Value Glu(Value gate, Value up, Activation act, Where where = Where::current());
  Value Activate(Value x, Activation act, Where where = Where::current());
  Value Scale(Value x, double factor, Where where = Where::current());
  // Between -limit and limit.
  Value Clamp(Value x, double limit, Where where = Where::current());
  // cap * tanh(x / cap).
  Value Softcap(Value x, double cap, Where where = Where::current());
  // [R, n]: the rows whose logits are wanted.
  Value GatherRows(Value x, Where where = Where::current());

  // The experts of every token and their weights, from the router's logits [T, E]; `bias` [E]
  // counts for the choice only and may be absent.
  Routes Route(Value logits, Value bias, const RoutingRule& rule, Where where = Where::current());
  // [T, k, n_out]: the gated unit of each of a token's experts: act(x W_gate^T) * x W_up^T, from
  // stacks [E, n_out, n_in]; biases [E, n_out] may be absent.
  Value ExpertGlu(Value x, Value experts, const ExpertWeights& gate, const ExpertWeights& up,
                  const GluRule& glu, Where where = Where::current());
  // [T, k, n_out]: each of a token's rows [T, k, n_in] times the matrix of its expert.
  Value ExpertLinear(Value x, Value experts, const ExpertWeights& w,
                     Where where = Where::current());
  // [T, n]: the sum of a token's rows [T, k, n], each times its weight.
  Value MixExperts(Value x, Value weights, Where where = Where::current());

  // [T, n, n_out]: the first n_in values of each of a token's n rows times the matrix of that row,
  // from a stack [n, n_out, n_in].
  Value HeadLinear(Value x, Value w, bool generated_only, Where where = Where::current());
  // [T, parts, ...]: the rows of `a`, each followed by the last b_dim values of the row of `b`.
  Value Concat(Value a, Value b, const ConcatAttrs& attrs, Where where = Where::current());
  // [T, n_heads, v]: expanded attention of the given tokens' q [T, n_heads * (nope + rope)] over a
  // latent cache; w_k [n_heads, lora, nope], w_v [n_heads, v, lora].
  Value MlaAttention(Value q, Value kv, Value w_k, Value w_v, const MlaAttrs& attrs,
                     Where where = Where::current());
  // Rows of given tokens from `prompt`, those of generated ones from `generated`.
  Value ByPhase(Value prompt, Value generated, Where where = Where::current());

  // Names the value (and its op) for dumps, taps and errors, e.g. "blk.0.out". Returns it.
  Value Named(Value v, std::string name);

  // Ends the plan. `logits` is [R, vocab].
  Plan Finish(Value logits);

 private:
  Value NewValue(ValueInfo info);
  Value Weight(std::string_view name, const Shape& shape, std::vector<Extent> extents);
  std::vector<Value> EmitAll(OpKind kind, std::string name, std::vector<Value> inputs,
                             OpAttrs attrs, Where where);
  Value Emit(OpKind kind, std::string name, std::vector<Value> inputs, OpAttrs attrs, Where where);

  Plan plan_;
  std::unordered_map<std::string, Value> weights_;  // by slot name
};

}  // namespace lucid
