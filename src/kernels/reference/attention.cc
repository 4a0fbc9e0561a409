// Softmax attention (Vaswani et al. 2017, arXiv 1706.03762, equation 1) over the paged cache, one
// query head at a time: a first pass over the keys for the maximum, a second for the weights. See
// reference.h.
#include <cmath>

#include "kernels/reference/reference.h"
#include "kernels/split.h"

namespace lucid::reference {
namespace {

struct Query {
  const float* q;
  const int32_t* block_table;
  int64_t kv_head;
  int64_t first;  // first and last visible position
  int64_t last;
};

// q . k[position], scaled and capped; `key` has room for k_dim floats.
double Score(const AttentionArgs& a, const Query& query, int64_t position, float* key) {
  const KvView& kv = a.kv;
  const int64_t bytes = RowBytes(kv.k_dtype, kv.k_dim);
  Info(kv.k_dtype)
      .decode(KvPlace(kv.k, kv, query.block_table, position, query.kv_head, bytes), key, kv.k_dim);
  double sum = 0;
  for (int64_t i = 0; i < kv.k_dim; ++i) sum += static_cast<double>(query.q[i]) * key[i];
  const double score = sum * a.scale;
  return a.softcap > 0 ? a.softcap * std::tanh(score / a.softcap) : score;
}

// `row` has room for max(k_dim, v_dim) floats, `sum` for v_dim doubles.
void AttendOne(const AttentionArgs& a, const Query& query, float* row, double* sum, float* y) {
  const KvView& kv = a.kv;
  double max = -INFINITY;
  for (int64_t p = query.first; p <= query.last; ++p) max = std::fmax(max, Score(a, query, p, row));
  double total = 0;
  for (int64_t i = 0; i < kv.v_dim; ++i) sum[i] = 0;
  for (int64_t p = query.first; p <= query.last; ++p) {
    const double weight = std::exp(Score(a, query, p, row) - max);
    total += weight;
    const int64_t bytes = RowBytes(kv.v_dtype, kv.v_dim);
    Info(kv.v_dtype)
        .decode(KvPlace(kv.v, kv, query.block_table, p, query.kv_head, bytes), row, kv.v_dim);
    for (int64_t i = 0; i < kv.v_dim; ++i) sum[i] += weight * row[i];
  }
  for (int64_t i = 0; i < kv.v_dim; ++i) y[i] = static_cast<float>(sum[i] / total);
}

}  // namespace

void Attention(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const AttentionArgs*>(args);
  const KvView& kv = a.kv;
  const int64_t heads_per_kv = a.n_heads / kv.n_heads;
  auto* sum = reinterpret_cast<double*>(thread.scratch);
  auto* row = reinterpret_cast<float*>(sum + kv.v_dim);
  // Later tokens of a prompt see more keys, so threads take query heads in turn.
  const int64_t queries = int64_t{step.n_tokens} * a.n_heads;
  for (int64_t i = thread.index; i < queries; i += thread.count) {
    const int64_t token = i / a.n_heads;
    const int64_t position = step.positions[token];
    const bool limited = a.window > 0 && position >= a.window;
    const Query query = {
        .q = a.q + i * kv.k_dim,
        .block_table = step.block_tables + int64_t{step.sequence[token]} * step.block_table_stride,
        .kv_head = i % a.n_heads / heads_per_kv,
        .first = limited ? position - a.window + 1 : 0,
        .last = position};
    AttendOne(a, query, row, sum, a.y + i * kv.v_dim);
  }
}

size_t AttentionScratch(const void* args, int64_t /*max_rows*/) {
  const KvView& kv = static_cast<const AttentionArgs*>(args)->kv;
  const auto k_dim = static_cast<size_t>(kv.k_dim);
  const auto v_dim = static_cast<size_t>(kv.v_dim);
  return v_dim * sizeof(double) + (k_dim > v_dim ? k_dim : v_dim) * sizeof(float);
}

}  // namespace lucid::reference
