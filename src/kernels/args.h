// The operands of every kernel as plain structs, and the per-step data that all kernels of a step
// share.
//
// A kernel runs on every thread of the pool at once: it gets its own thread number and takes its
// share of the work. The executor puts a barrier after each kernel. All activations are float32,
// rows contiguous.
//
// Numerics: what a kernel computes for one row (token) must not depend on how many rows there are,
// on the other rows or on the number of threads: the order of every reduction is fixed by the
// operand's own shape.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/op_enums.h"
#include "tensor/paged_view.h"
#include "tensor/tensor.h"

namespace lucid {

// Which rows an activation has in a step: one per token, or one per output row (tokens whose logits
// are wanted).
enum class RowAxis : int8_t { kTokens, kOutputs };

// The packed batch of one step. T tokens of S sequences, in sequence order; R output rows. A
// sequence's tokens have consecutive positions.
struct StepView {
  int32_t n_tokens = 0;                // T
  int32_t n_sequences = 0;             // S
  int32_t n_outputs = 0;               // R
  const int32_t* tokens = nullptr;     // [T] token ids
  const int32_t* positions = nullptr;  // [T] position in its sequence
  const int32_t* sequence = nullptr;   // [T] which of the S sequences
  const Phase* phases = nullptr;       // [T]
  // [T], or nullptr: how long the sequence is for which a token is rotated, where the model's
  // rotations depend on it (RopeStretch). nullptr: up to the token itself.
  const int32_t* rope_lengths = nullptr;
  const int32_t* block_tables = nullptr;  // [G][S][block_table_stride] physical blocks
  int32_t block_table_stride = 0;
  const int32_t* dropped =
      nullptr;  // [G][S] places that eviction has freed: place = position - dropped
  const KeyScores* scores =
      nullptr;  // [S], sums == nullptr where nobody asks; nullptr if none asks
  const int32_t* output_rows = nullptr;  // [R] indices into the T tokens, ascending

  int32_t rows(RowAxis axis) const { return axis == RowAxis::kTokens ? n_tokens : n_outputs; }
  // The block table of `pages` for sequence s.
  const int32_t* Table(const KvPages& pages, int32_t s) const {
    return block_tables + (int64_t{pages.table} * n_sequences + s) * int64_t{block_table_stride};
  }
  int32_t Dropped(const KvPages& pages, int32_t s) const {
    return dropped == nullptr ? 0 : dropped[int64_t{pages.table} * n_sequences + s];
  }
};

struct ThreadSlot {
  int32_t index = 0;  // this thread, 0 <= index < count
  int32_t count = 1;
  std::byte* scratch =
      nullptr;  // private to the thread, 64-byte aligned, at least the kernel's ScratchFn bytes
  // Memory that all threads of the step share, 64-byte aligned, at least Kernel::shared bytes. The
  // first kSharedCounterBytes are zero when a kernel begins and must be zero when it ends.
  std::byte* shared = nullptr;
};
constexpr int64_t kSharedCounterBytes = 4096;

// What an embedding is looked up by.
enum class EmbedIndex : int8_t { kTokens, kPositions };

// y[T, dim] = table[index + offset, :] * scale, where index is the token's id or its position; the
// last row stands for what lies behind the table.
struct EmbedArgs {
  Tensor table;  // [rows, dim], any dtype with a decoder
  float* y = nullptr;
  float scale = 1.0f;
  EmbedIndex index = EmbedIndex::kTokens;
  int64_t offset = 0;
  const std::byte* packed = nullptr;  // the table in its packed form, or nullptr
};

// y = x * rsqrt(mean(x^2) + eps) * weight, over groups of `dim` consecutive values of each row of
// `width` values (width == dim for a layer norm; heads * head_dim for a norm per head). In place
// allowed.
struct RmsNormArgs {
  const float* x = nullptr;
  const float* weight = nullptr;  // [dim], or nullptr for all ones
  float* y = nullptr;
  int64_t width = 0;
  int64_t dim = 0;
  float eps = 0;
  RowAxis rows = RowAxis::kTokens;
};

// y = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias, over groups as RmsNormArgs. Weight
// and bias have `dim` values that all groups share, or `width` of them. In place allowed.
struct LayerNormArgs {
  const float* x = nullptr;
  const float* weight = nullptr;  // nullptr: all ones
  const float* bias = nullptr;    // nullptr: all zero
  float* y = nullptr;
  int64_t width = 0;
  int64_t dim = 0;
  bool own_weights = false;  // weight and bias [width]
  float eps = 0;
  RowAxis rows = RowAxis::kTokens;
};

// sum = x + residual (stored in `sum`, may alias either), y = rmsnorm(sum) * weight.
struct AddRmsNormArgs {
  const float* x = nullptr;
  const float* residual = nullptr;
  float* sum = nullptr;
  const float* weight = nullptr;
  float* y = nullptr;
  int64_t dim = 0;
  float eps = 0;
  RowAxis rows = RowAxis::kTokens;
};

// docs/performance.md: what it costs in KL divergence, and in speed.
constexpr float kDefaultErrorBudget = 1.5e-4f;
// Activations need be no more than bytes, with scales as a kernel likes them (--numerics fast).
constexpr float kAnyError = 1.0f;

// y[rows, n_out] = x[rows, n_in] * w^T + bias.
struct LinearArgs {
  Tensor w;                     // [n_out, n_in]
  const float* bias = nullptr;  // [n_out] or nullptr
  const float* x = nullptr;
  float* y = nullptr;
  RowAxis rows = RowAxis::kTokens;
  const std::byte* packed =
      nullptr;  // the matrix in its packed form (kernels/packed.h), or nullptr
  // Packed weights only: the part of a row's squared length that rounding its activations may lose
  // (kernels/planes.h).
  float error_budget = kDefaultErrorBudget;
  bool exact = false;  // activations stay float32 (--numerics float)
};

// Up to four linears of one input (q, k, v): one phase, one barrier.
struct LinearGroupArgs {
  static constexpr int kMax = 4;
  LinearArgs linear[kMax];
  int32_t count = 0;
};

// y = act(gate) * up, elementwise over rows of `dim`; with one_gate, gate[rows] has one value for a
// whole row.
struct GluArgs {
  const float* gate = nullptr;
  const float* up = nullptr;
  float* y = nullptr;
  int64_t dim = 0;
  Activation act = Activation::kSilu;
  bool one_gate = false;
  RowAxis rows = RowAxis::kTokens;
};

// y = act(x w_gate^T + b_gate) * (x w_up^T + b_up): both matrices in one pass.
struct GluLinearArgs {
  LinearArgs gate;     // y unused
  LinearArgs up;       // y unused
  float* y = nullptr;  // [rows, n_out]
  Activation act = Activation::kSilu;
};

// Other frequencies for sequences of more than `limit` tokens: a table of their own, or those of
// dynamic NTK scaling by `factor` (plan/rope_spec.h).
struct RopeStretch {
  int32_t limit = 0;                // 0: the same frequencies for all
  const float* inv_freq = nullptr;  // [rotary_dim / 2], or nullptr
  double factor = 1.0;
};

// Rotates `rotary_dim` values from `first` on of every head of x[T, n_heads, head_dim] in place of
// x or into y, by the angles positions[t] * inv_freq[i]; cos and sin are multiplied by
// `attn_factor` (YaRN).
struct RopeArgs {
  const float* x = nullptr;
  float* y = nullptr;
  const float* inv_freq = nullptr;  // [rotary_dim / 2], scaling already applied
  int64_t n_heads = 0;
  int64_t head_dim = 0;
  int64_t first = 0;
  int64_t rotary_dim = 0;
  float attn_factor = 1.0f;
  RopeStyle style = RopeStyle::kHalfSplit;
  RopeStretch stretch = {};
};

// q/k norm per head, then rope: RmsNorm (dim = head_dim) and Rope in one pass.
struct NormRopeArgs {
  RmsNormArgs norm;  // y unused
  RopeArgs rope;     // x unused
};

// Writes k[T, n_heads, k_dim] and v[T, n_heads, v_dim] to each token's place; v is absent where
// v_dim is 0.
struct KvStoreArgs {
  KvView kv;
  const float* k = nullptr;
  const float* v = nullptr;
};

// y[T, n_heads, v_dim] = softmax(scale * q k^T + causal mask) v over the keys of the token's own
// sequence at places max(0, p - window + 1) .. p, p being the token's own place (its position minus
// what was dropped). Query head h reads KV head h / (n_heads / kv.n_heads).
//
// Where StepView::scores asks for it and there is no window, the softmax weight of every (query,
// head) is added to the sum of its key: for one KV head in the order of the tokens, then of the
// heads, so that the sums have the same bits for any chunking.
struct AttentionArgs {
  KvView kv;
  const float* q = nullptr;  // [T, n_heads, kv.k_dim]
  float* y = nullptr;
  int32_t n_heads = 0;
  int32_t window = 0;  // 0: no sliding window
  float scale = 0;
  float softcap = 0;  // 0: none; else scores = softcap * tanh(scores / softcap)
  // [n_heads], or nullptr: ALiBi adds slopes[h] * (key's place - p) to the scores.
  const float* slopes = nullptr;
  // [n_heads]: a score that joins each head's softmax and has no value (Xiao et al. 2023, arXiv
  // 2309.17453; as learned by GPT-OSS); or nullptr.
  const float* sinks = nullptr;
  bool generated_only = false;  // rows of given tokens are left as they are
  // Prompts in float32 as well: else they may be computed on bfloat16 pairs, unless the cache is
  // float32.
  bool exact = false;
};

// Whether the model made token t; the rest was given.
static inline bool IsGenerated(const StepView& step, int64_t t) {
  return step.phases != nullptr && step.phases[t] == Phase::kGenerated;
}

// The n_used experts of every token, ids ascending, and their weights, from logits[T, n_experts]:
// RoutingRule (tensor/op_enums.h). Of equal scores the lower id is chosen; a score that is no
// number comes last.
struct RouteArgs {
  const float* logits = nullptr;
  const float* bias = nullptr;  // [n_experts], added to scores for the choice only; or nullptr
  float* experts = nullptr;     // [T, n_used]
  float* weights = nullptr;     // [T, n_used]
  int64_t n_experts = 0;
  RoutingRule rule;
};

// A matrix of every expert.
struct ExpertMatrix {
  Tensor w;  // of one expert: [n_out, n_in]; data is that of expert 0
  int64_t n_experts = 0;
  const std::byte* const* data = nullptr;  // [n_experts]: where each lies
  const float* bias = nullptr;             // [n_experts, n_out] or nullptr
  // All in their packed form (kernels/packed.h), packed_bytes apart; or nullptr.
  const std::byte* packed = nullptr;
  int64_t packed_bytes = 0;
  float error_budget = kDefaultErrorBudget;  // as LinearArgs
  bool exact = false;
};

// y[T, n_used, n_out] = act(x[t] w_gate[e]^T + b_gate[e]) * (x[t] w_up[e]^T + b_up[e]) for each of
// a token's experts e; with a limit gate and up are clamped first (GluRule).
struct ExpertGluArgs {
  ExpertMatrix gate;
  ExpertMatrix up;
  const float* x = nullptr;        // [T, n_in]
  const float* experts = nullptr;  // [T, n_used]
  float* y = nullptr;
  int64_t n_used = 0;
  GluRule glu;
};

// y[T, n_used, n_out] = x[T, n_used, n_in] times the matrix of each row's expert, plus its bias.
struct ExpertLinearArgs {
  ExpertMatrix w;
  const float* x = nullptr;
  int64_t x_stride = 0;            // from row to row of x, n_in at least
  const float* experts = nullptr;  // [T, n_used]; nullptr: row i of every token goes to matrix i
  float* y = nullptr;
  int64_t n_used = 0;
  bool generated_only = false;  // rows of given tokens are left as they are
};

// y[T, dim] = sum over i of weights[t, i] * x[t, i, :], i ascending.
struct MixExpertsArgs {
  const float* x = nullptr;        // [T, n_used, dim]
  const float* weights = nullptr;  // [T, n_used]
  float* y = nullptr;
  int64_t n_used = 0;
  int64_t dim = 0;
};

// Attention of the given tokens over a latent cache, which keeps for each place a latent vector of
// all heads and a rotated part (DeepSeek-V2, arXiv 2405.04434): with latent c and rotated part r of
// a place, head h has the key [W_k[h]^T c, r] and the value W_v[h] c. Rows of generated tokens are
// left as they are.
struct MlaArgs {
  KvView kv;                 // one head, k_dim = lora + rope, v_dim = 0
  const float* q = nullptr;  // [T, n_heads, nope + rope]
  ExpertMatrix w_k;          // of every head [lora, nope]
  ExpertMatrix w_v;          // of every head [v_dim, lora]
  float* y = nullptr;        // [T, n_heads, v_dim]
  int64_t n_heads = 0;
  int64_t nope = 0;
  int64_t rope = 0;
  float scale = 0;

  int64_t lora() const { return w_k.w.shape[0]; }
  int64_t v_dim() const { return w_v.w.shape[0]; }
};

// y[row] = [a[row], the last b_dim of the b_stride values of b[row]] for `parts` rows of every
// token.
struct ConcatArgs {
  const float* a = nullptr;  // [T, parts, a_dim]
  const float* b = nullptr;  // [T, parts, b_stride]
  float* y = nullptr;        // [T, parts, a_dim + b_dim]
  int64_t parts = 1;
  int64_t a_dim = 0;
  int64_t b_stride = 0;
  int64_t b_dim = 0;
  bool generated_only = false;  // rows of given tokens are left as they are
};

// y[T, dim]: of each token the row of `prompt` if it was given, of `generated` if the model made
// it.
struct ByPhaseArgs {
  const float* prompt = nullptr;
  const float* generated = nullptr;
  float* y = nullptr;
  int64_t dim = 0;
};

// y = a + b over rows of `dim`.
struct AddArgs {
  const float* a = nullptr;
  const float* b = nullptr;
  float* y = nullptr;
  int64_t dim = 0;
  RowAxis rows = RowAxis::kTokens;
};

// y = x * factor over rows of `dim`.
struct ScaleArgs {
  const float* x = nullptr;
  float* y = nullptr;
  int64_t dim = 0;
  float factor = 1.0f;
  RowAxis rows = RowAxis::kTokens;
};

// y = act(x) over rows of `dim`.
struct ActivateArgs {
  const float* x = nullptr;
  float* y = nullptr;
  int64_t dim = 0;
  Activation act = Activation::kSilu;
  RowAxis rows = RowAxis::kTokens;
};

// y = min(max(x, -limit), limit) over rows of `dim`.
struct ClampArgs {
  const float* x = nullptr;
  float* y = nullptr;
  int64_t dim = 0;
  float limit = 0;
  RowAxis rows = RowAxis::kTokens;
};

// y = cap * tanh(x / cap) over rows of `dim`.
struct SoftcapArgs {
  const float* x = nullptr;
  float* y = nullptr;
  int64_t dim = 0;
  float cap = 0;
  RowAxis rows = RowAxis::kTokens;
};

// y[R, dim] = x[output_rows[r], :].
struct GatherRowsArgs {
  const float* x = nullptr;
  float* y = nullptr;
  int64_t dim = 0;
};

}  // namespace lucid
