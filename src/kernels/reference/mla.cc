// Attention of prompts over a latent cache, keys and values expanded for each head (DeepSeek-V2,
// arXiv 2405.04434, equations 9 to 19), and the small ops around it. See reference.h and MlaArgs.
#include <cmath>

#include "kernels/kv_place.h"
#include "kernels/reference/reference.h"
#include "kernels/split.h"

namespace lucid::reference {
namespace {

// Scratch of one thread.
struct LatentRows {
  float* w_k;   // [lora, nope]: the head's matrices
  float* w_v;   // [v_dim, lora]
  float* row;   // [lora + rope]: a place of the cache
  double* sum;  // [v_dim]
};

LatentRows LatentRowsIn(const MlaArgs& a, std::byte* scratch) {
  LatentRows rows;
  rows.sum = reinterpret_cast<double*>(scratch);
  rows.w_k = reinterpret_cast<float*>(rows.sum + a.v_dim());
  rows.w_v = rows.w_k + a.lora() * a.nope;
  rows.row = rows.w_v + a.v_dim() * a.lora();
  return rows;
}

const float* LatentAt(const MlaArgs& a, const int32_t* table, int64_t place, LatentRows& rows) {
  const KvArray keys = KeysOf(a.kv, a.kv.pages);
  DecodeKvRow(keys.type, RowOf(keys, table, place, 0), rows.row, a.kv.k_dim);
  return rows.row;
}

// q . [W_k latent; rotated part] * scale.
double LatentScore(const MlaArgs& a, const float* q, const float* latent, const LatentRows& rows) {
  double score = 0;
  for (int64_t n = 0; n < a.nope; ++n) {
    double key = 0;
    for (int64_t l = 0; l < a.lora(); ++l) {
      key += static_cast<double>(rows.w_k[l * a.nope + n]) * latent[l];
    }
    score += q[n] * key;
  }
  for (int64_t i = 0; i < a.rope; ++i) {
    score += static_cast<double>(q[a.nope + i]) * latent[a.lora() + i];
  }
  return score * a.scale;
}

void AttendLatent(const MlaArgs& a, const float* q, float* y, const int32_t* table, int64_t place,
                  LatentRows& rows) {
  double max = -INFINITY;
  for (int64_t p = 0; p <= place; ++p) {
    max = std::fmax(max, LatentScore(a, q, LatentAt(a, table, p, rows), rows));
  }
  double total = 0;
  for (int64_t d = 0; d < a.v_dim(); ++d) rows.sum[d] = 0;
  for (int64_t p = 0; p <= place; ++p) {
    const float* latent = LatentAt(a, table, p, rows);
    const double weight = std::exp(LatentScore(a, q, latent, rows) - max);
    total += weight;
    for (int64_t d = 0; d < a.v_dim(); ++d) {
      rows.sum[d] += weight * Dot(rows.w_v + d * a.lora(), latent, a.lora());
    }
  }
  for (int64_t d = 0; d < a.v_dim(); ++d) y[d] = static_cast<float>(rows.sum[d] / total);
}

void DecodeHead(const ExpertMatrix& m, int64_t head, float* out) {
  for (int64_t r = 0; r < m.w.rows(); ++r) {
    Info(m.w.dtype).decode(m.data[head] + r * m.w.row_bytes(), out + r * m.w.cols(), m.w.cols());
  }
}

}  // namespace

void MlaAttention(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const MlaArgs*>(args);
  LatentRows rows = LatentRowsIn(a, thread.scratch);
  const int64_t q_dim = a.nope + a.rope;
  const Share share = ShareOf(a.n_heads, 1, thread);
  for (int64_t head = share.begin; head < share.end; ++head) {
    DecodeHead(a.w_k, head, rows.w_k);
    DecodeHead(a.w_v, head, rows.w_v);
    for (int64_t t = 0; t < step.n_tokens; ++t) {
      if (IsGenerated(step, t)) continue;
      const int64_t row = t * a.n_heads + head;
      AttendLatent(a, a.q + row * q_dim, a.y + row * a.v_dim(),
                   step.Table(a.kv.pages, step.sequence[t]), PlaceOf(a.kv, step, t), rows);
    }
  }
}

HeadWeights SeenKeys(const MlaArgs& a, const StepView& step, int64_t token) {
  return {.first = 0, .count = PlaceOf(a.kv, step, token) + 1};
}

HeadWeights AttentionWeights(const MlaArgs& a, const StepView& step, int64_t token, int64_t head,
                             std::byte* scratch, float* weights) {
  LatentRows rows = LatentRowsIn(a, scratch);
  DecodeHead(a.w_k, head, rows.w_k);
  const float* q = a.q + (token * a.n_heads + head) * (a.nope + a.rope);
  const int32_t* table = step.Table(a.kv.pages, step.sequence[token]);
  const auto score = [&](int64_t place) {
    return LatentScore(a, q, LatentAt(a, table, place, rows), rows);
  };
  const HeadWeights seen = SeenKeys(a, step, token);
  double max = -INFINITY;
  for (int64_t p = 0; p < seen.count; ++p) max = std::fmax(max, score(p));
  double total = 0;
  for (int64_t p = 0; p < seen.count; ++p) total += std::exp(score(p) - max);
  for (int64_t p = 0; p < seen.count; ++p) {
    weights[p] = static_cast<float>(std::exp(score(p) - max) / total);
  }
  return seen;
}

size_t MlaAttentionScratch(const void* args, int64_t /*max_rows*/) {
  const auto& a = *static_cast<const MlaArgs*>(args);
  const int64_t floats = a.lora() * a.nope + a.v_dim() * a.lora() + a.kv.k_dim;
  return static_cast<size_t>(a.v_dim()) * sizeof(double) +
         static_cast<size_t>(floats) * sizeof(float);
}

void Concat(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const ConcatArgs*>(args);
  const Share share = ShareOf(step.n_tokens * a.parts, 1, thread);
  for (int64_t r = share.begin; r < share.end; ++r) {
    if (a.generated_only && !IsGenerated(step, r / a.parts)) continue;
    float* y = a.y + r * (a.a_dim + a.b_dim);
    const float* b = a.b + (r + 1) * a.b_stride - a.b_dim;
    for (int64_t i = 0; i < a.a_dim; ++i) y[i] = a.a[r * a.a_dim + i];
    for (int64_t i = 0; i < a.b_dim; ++i) y[a.a_dim + i] = b[i];
  }
}

void ByPhase(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const ByPhaseArgs*>(args);
  const Share share = ShareOf(step.n_tokens, 1, thread);
  for (int64_t t = share.begin; t < share.end; ++t) {
    const float* x = (IsGenerated(step, t) ? a.generated : a.prompt) + t * a.dim;
    for (int64_t i = 0; i < a.dim; ++i) a.y[t * a.dim + i] = x[i];
  }
}

}  // namespace lucid::reference
