// Softmax attention (Vaswani et al. 2017, arXiv 1706.03762, equation 1) over the paged cache, one
// query head at a time: a first pass over the keys for the maximum, a second for the weights. See
// reference.h.
#include <cmath>

#include "kernels/kv_place.h"
#include "kernels/reference/reference.h"

namespace lucid::reference {
namespace {

// Scratch of one thread.
struct Rows {
  double* sum;   // [v_dim]
  float* row;    // [max(k_dim, v_dim)]
  float* block;  // [block_size, k_dim], kivi2 only: the decoded keys of block `loaded`
  int64_t loaded = -1;
};

Rows RowsIn(const KvView& kv, std::byte* scratch) {
  Rows rows;
  rows.sum = reinterpret_cast<double*>(scratch);
  rows.row = reinterpret_cast<float*>(rows.sum + kv.v_dim);
  rows.block = rows.row + (kv.k_dim > kv.v_dim ? kv.k_dim : kv.v_dim);
  return rows;
}

struct Query {
  const float* q;
  float* y;
  const int32_t* table;
  const int32_t* recent;  // kivi2: the table of recent pages
  int64_t kv_head;
  int64_t first;  // first and last visible place
  int64_t last;
  int64_t packed;     // kivi2: blocks before this one are read packed
  double slope;       // of ALiBi, 0 without
  const float* sink;  // the head's, or nullptr
  float* sums;        // by place, where the weights are added; or nullptr
};

// The key at a place.
const float* Key(const KvView& kv, const Query& query, int64_t place, Rows& rows) {
  const int64_t block = place / kv.block_size;
  if (!HasRecent(kv) || block >= query.packed) {
    const KvArray keys = KeysOf(kv, HasRecent(kv) ? kv.recent : kv.pages);
    const int32_t* table = HasRecent(kv) ? query.recent : query.table;
    DecodeKvRow(keys.type, RowOf(keys, table, place, query.kv_head), rows.row, kv.k_dim);
    return rows.row;
  }
  if (rows.loaded != block) {
    const KvArray keys = KeysOf(kv, kv.pages);
    DecodeKiviKeys(HeadOf(keys, query.table[block], query.kv_head), rows.block, kv.k_dim, kv.k_dim,
                   kv.block_size);
    rows.loaded = block;
  }
  return rows.block + place % kv.block_size * kv.k_dim;
}

const float* Value(const KvView& kv, const Query& query, int64_t place, const Rows& rows) {
  const bool recent = HasRecent(kv) && place / kv.block_size >= query.packed;
  const KvArray values = ValuesOf(kv, recent ? kv.recent : kv.pages);
  const int32_t* table = recent ? query.recent : query.table;
  const int64_t dim = kv.v_in_k ? kv.k_dim : kv.v_dim;  // scales may lie behind the whole key
  DecodeKvRow(values.type, RowOf(values, table, place, query.kv_head), rows.row, dim);
  return rows.row;
}

// q . k[place], scaled and capped, less for what is far away.
double Score(const AttentionArgs& a, const Query& query, int64_t place, Rows& rows) {
  const float* key = Key(a.kv, query, place, rows);
  double sum = 0;
  for (int64_t i = 0; i < a.kv.k_dim; ++i) sum += static_cast<double>(query.q[i]) * key[i];
  const double score = sum * a.scale;
  const double capped = a.softcap > 0 ? a.softcap * std::tanh(score / a.softcap) : score;
  return capped + query.slope * static_cast<double>(place - query.last);
}

void AttendOne(const AttentionArgs& a, const Query& query, Rows& rows) {
  const KvView& kv = a.kv;
  rows.loaded = -1;
  double max = -INFINITY;
  for (int64_t p = query.first; p <= query.last; ++p) {
    max = std::fmax(max, Score(a, query, p, rows));
  }
  if (query.sink != nullptr) max = std::fmax(max, *query.sink);
  double total = query.sink != nullptr ? std::exp(*query.sink - max) : 0.0;
  for (int64_t i = 0; i < kv.v_dim; ++i) rows.sum[i] = 0;
  for (int64_t p = query.first; p <= query.last; ++p) {
    const double weight = std::exp(Score(a, query, p, rows) - max);
    total += weight;
    const float* value = Value(kv, query, p, rows);
    for (int64_t i = 0; i < kv.v_dim; ++i) rows.sum[i] += weight * value[i];
  }
  for (int64_t i = 0; i < kv.v_dim; ++i) query.y[i] = static_cast<float>(rows.sum[i] / total);
  if (query.sums == nullptr) return;
  for (int64_t p = query.first; p <= query.last; ++p) {
    query.sums[p] += static_cast<float>(std::exp(Score(a, query, p, rows) - max) / total);
  }
}

Query QueryOf(const AttentionArgs& a, const StepView& step, int64_t token, int64_t head) {
  const KvView& kv = a.kv;
  const int32_t sequence = step.sequence[token];
  const int64_t place = PlaceOf(kv, step, token);
  const int64_t row = token * a.n_heads + head;
  Query query = {.q = a.q + row * kv.k_dim,
                 .y = a.y + row * kv.v_dim,
                 .table = step.Table(kv.pages, sequence),
                 .recent = nullptr,
                 .kv_head = head / (a.n_heads / kv.n_heads),
                 .first = a.window > 0 && place >= a.window ? place - a.window + 1 : 0,
                 .last = place,
                 .packed = 0,
                 .slope = a.slopes != nullptr ? a.slopes[head] : 0.0,
                 .sink = a.sinks != nullptr ? a.sinks + head : nullptr,
                 .sums = nullptr};
  if (HasRecent(kv)) {
    query.recent = step.Table(kv.recent, sequence);
    query.packed = PackedBlocks(kv, place);
  }
  if (WantsScores(a, step, sequence)) {
    const KeyScores& scores = step.scores[sequence];
    if (step.positions[token] >= scores.first_position) {
      query.sums = scores.sums + kv.layer * scores.layer_stride + query.kv_head * scores.capacity;
    }
  }
  return query;
}

}  // namespace

void Attention(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const AttentionArgs*>(args);
  const KvView& kv = a.kv;
  const int64_t group = a.n_heads / kv.n_heads;
  Rows rows = RowsIn(kv, thread.scratch);
  // Later tokens of a prompt see more keys, so threads take query heads in turn; where weights are
  // summed, all queries of a KV head, since they are added in order.
  int64_t item = 0;
  for (int64_t begin = 0; begin < step.n_tokens;) {
    const int64_t end = SequenceEnd(step, begin);
    const bool summed = WantsScores(a, step, step.sequence[begin]);
    for (int64_t kv_head = 0; kv_head < kv.n_heads; ++kv_head) {
      for (int64_t token = begin; token < end; ++token) {
        if (a.generated_only && !IsGenerated(step, token)) continue;
        for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
          if (item % thread.count == thread.index) {
            AttendOne(a, QueryOf(a, step, token, head), rows);
          }
          if (!summed) ++item;
        }
      }
      if (summed) ++item;
    }
    begin = end;
  }
}

HeadWeights SeenKeys(const AttentionArgs& a, const StepView& step, int64_t token) {
  const Query query = QueryOf(a, step, token, /*head=*/0);
  return {.first = query.first, .count = query.last - query.first + 1};
}

HeadWeights AttentionWeights(const AttentionArgs& a, const StepView& step, int64_t token,
                             int64_t head, std::byte* scratch, float* weights) {
  const Query query = QueryOf(a, step, token, head);
  Rows rows = RowsIn(a.kv, scratch);
  HeadWeights seen = SeenKeys(a, step, token);
  double max = query.sink != nullptr ? *query.sink : -INFINITY;
  for (int64_t i = 0; i < seen.count; ++i) {
    max = std::fmax(max, Score(a, query, seen.first + i, rows));
  }
  const double sink = query.sink != nullptr ? std::exp(*query.sink - max) : 0.0;
  double total = sink;
  for (int64_t i = 0; i < seen.count; ++i) {
    total += std::exp(Score(a, query, seen.first + i, rows) - max);
  }
  for (int64_t i = 0; i < seen.count; ++i) {
    const double score = Score(a, query, seen.first + i, rows);
    weights[i] = static_cast<float>(std::exp(score - max) / total);
  }
  seen.sink = static_cast<float>(sink / total);
  return seen;
}

size_t AttentionScratch(const void* args, int64_t /*max_rows*/) {
  const KvView& kv = static_cast<const AttentionArgs*>(args)->kv;
  const auto k_dim = static_cast<size_t>(kv.k_dim);
  const auto v_dim = static_cast<size_t>(kv.v_dim);
  const size_t block = HasRecent(kv) ? static_cast<size_t>(kv.block_size) * k_dim : 0;
  return v_dim * sizeof(double) + ((k_dim > v_dim ? k_dim : v_dim) + block) * sizeof(float);
}

}  // namespace lucid::reference
