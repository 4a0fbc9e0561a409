// ExpertGlu and ExpertLinear: rows are put in the order of their experts, so that the matrix of
// every expert that is touched is read once in a step and meets all of its rows in the loops of
// linears.
//
//   here                     grouping, who does what, the gated unit
//   experts_packed-inl.h     packed quantised matrices (packed_linear-inl.h)
//   experts_dense-inl.h      packed plain ones (dense_linear-inl.h)
//   experts_plain-inl.h      matrices as they lie in the file (linear-inl.h)
//
// A row's products are those of linears, hence the same bits whichever rows are beside it.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/args.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/split.h"
#include "kernels/table.h"

namespace lucid::LUCID_ISA {
namespace {

// What each kind of matrices brings:
//   kTile                          rows that lie in memory together
//   kUnit                          columns: where work may be cut
//   Columns(rows)                  columns that are computed at a time, at most kMostColumns
//   RowBytes(m, rows)              bytes of the rows of one expert
//   PutTile(m, x, rows, count, to) rows x[rows[i]] to memory; `to`: where the tile begins
//   TileOffset(m, rows, tile)      bytes in front of a tile, of `rows` rows
//   Sums(m, expert, rows, count, begin, end, y, ldy, scratch)
//                                  y[count][end - begin]: columns of the product, bias added
//   ScratchBytes(m, rows)          that Sums wants
constexpr int64_t kMostColumns = 256;

// The operands of a linear, for one expert.
inline LinearArgs LinearOf(const ExpertMatrix& m, int64_t expert) {
  LinearArgs a;
  a.w = m.w;
  a.w.data = m.data[expert];
  a.bias = m.bias == nullptr ? nullptr : m.bias + expert * m.w.shape[0];
  a.packed = m.packed == nullptr ? nullptr : m.packed + expert * m.packed_bytes;
  a.error_budget = m.error_budget;
  a.exact = m.exact;
  return a;
}

// The rows of a step by expert.
struct RowGroups {
  int32_t* begin;  // [n_experts + 1]: where each expert's begin in `row`
  int32_t* row;    // [rows]: token * n_used + which of its experts
  int64_t n_experts;
  int64_t Rows(int64_t expert) const { return begin[expert + 1] - begin[expert]; }
  int64_t All() const { return begin[n_experts]; }
};
// Which rows there are, and whose.
struct RowsOfExperts {
  const float* experts;  // nullptr: row i of a token goes to matrix i
  int64_t n_used;
  bool generated_only;
};
inline int64_t GroupBytes(int64_t n_experts, int64_t rows) {
  return (4 * (n_experts + 1 + rows) + 63) / 64 * 64;
}
inline RowGroups GroupRows(const RowsOfExperts& of, const StepView& step, int64_t n_experts,
                           std::byte* memory) {
  RowGroups g = {reinterpret_cast<int32_t*>(memory), nullptr, n_experts};
  g.row = g.begin + n_experts + 1;
  const auto for_rows = [&](auto&& body) {
    for (int64_t t = 0; t < step.n_tokens; ++t) {
      if (of.generated_only && !IsGenerated(step, t)) continue;
      for (int64_t i = 0; i < of.n_used; ++i) {
        const int64_t r = t * of.n_used + i;
        body(r, of.experts == nullptr ? i : static_cast<int64_t>(of.experts[r]));
      }
    }
  };
  for (int64_t e = 0; e <= n_experts; ++e) g.begin[e] = 0;
  for_rows([&](int64_t, int64_t e) { ++g.begin[e + 1]; });
  for (int64_t e = 0; e < n_experts; ++e) g.begin[e + 1] += g.begin[e];
  for_rows([&](int64_t r, int64_t e) { g.row[g.begin[e]++] = static_cast<int32_t>(r); });
  for (int64_t e = n_experts; e > 0; --e) g.begin[e] = g.begin[e - 1];
  g.begin[0] = 0;
  return g;
}

// Calls body(expert, begin, end) for this thread's share of the columns of all experts with rows. A
// column counts as many times as it meets rows, and kReading more for its weights.
template <typename Body>
inline void ForExpertColumns(const RowGroups& g, int64_t n_out, int64_t unit,
                             const ThreadSlot& thread, Body&& body) {
  constexpr int64_t kReading = 4;
  const int64_t units = (n_out + unit - 1) / unit;
  int64_t total = 0;
  for (int64_t e = 0; e < g.n_experts; ++e) {
    if (g.Rows(e) > 0) total += units * (g.Rows(e) + kReading);
  }
  const int64_t from = total * thread.index / thread.count;
  const int64_t to = total * (thread.index + 1) / thread.count;
  int64_t at = 0;
  for (int64_t e = 0; e < g.n_experts; ++e) {
    if (g.Rows(e) == 0) continue;
    const int64_t cost = g.Rows(e) + kReading;
    const auto unit_at = [&](int64_t border) {
      const int64_t n = border <= at ? 0 : (border - at + cost - 1) / cost;
      return Least(n, units);
    };
    const int64_t begin = unit_at(from) * unit;
    const int64_t end = Least(unit_at(to) * unit, n_out);
    if (begin < end) body(e, begin, end);
    at += units * cost;
  }
}

// Rows from x[source] to the memory that all threads share, where Sums finds them by expert.
template <typename Math>
inline uint8_t* SharedRows(const ThreadSlot& thread) {
  return reinterpret_cast<uint8_t*>(thread.shared) + kSharedCounterBytes;
}
// `per_source`: rows that share one row of x, which are `stride` apart.
template <typename Math>
inline void PutExpertRows(const ExpertMatrix& m, const RowGroups& g, const float* x,
                          int64_t per_source, int64_t stride, const ThreadSlot& thread) {
  int64_t tiles = 0;
  for (int64_t e = 0; e < g.n_experts; ++e) tiles += (g.Rows(e) + Math::kTile - 1) / Math::kTile;
  const Share share = ShareOf(tiles, 1, thread);
  int64_t first = 0;
  uint8_t* to = SharedRows<Math>(thread);
  for (int64_t e = 0; e < g.n_experts && first < share.end; ++e) {
    const int64_t rows = g.Rows(e);
    const int64_t count = (rows + Math::kTile - 1) / Math::kTile;
    for (int64_t t = share.begin > first ? share.begin - first : 0;
         t < Least(count, share.end - first); ++t) {
      const float* source[Math::kTile] = {};
      const int64_t in_tile = Least(Math::kTile, rows - t * Math::kTile);
      for (int64_t i = 0; i < in_tile; ++i) {
        source[i] = x + g.row[g.begin[e] + t * Math::kTile + i] / per_source * stride;
      }
      Math::PutTile(m, source, in_tile, to + Math::TileOffset(m, t));
    }
    first += count;
    to += Math::RowBytes(m, rows);
  }
}

// Memory of a thread: the groups, sums of two matrices, what Sums wants.
struct ExpertScratch {
  std::byte* groups;
  float* gate;
  float* up;
  std::byte* sums;
};
// Floats of a product's columns, for any number of rows up to this.
template <typename Math>
inline int64_t ColumnFloats(int64_t rows) {
  const int64_t most = rows * Math::Columns(rows);
  const int64_t least = Math::kFewRows * kMostColumns;
  return most > least ? most : least;
}
template <typename Math>
inline ExpertScratch ExpertScratchOf(const ThreadSlot& thread, int64_t n_experts, int64_t rows,
                                     int64_t tokens) {
  ExpertScratch s;
  s.groups = thread.scratch;
  s.gate = reinterpret_cast<float*>(s.groups + GroupBytes(n_experts, rows));
  s.up = s.gate + ColumnFloats<Math>(tokens);
  s.sums = reinterpret_cast<std::byte*>(s.up + ColumnFloats<Math>(tokens));
  return s;
}
template <typename Math>
inline size_t ExpertScratchBytes(const ExpertMatrix& m, int64_t n_used, int64_t max_tokens) {
  return static_cast<size_t>(GroupBytes(m.n_experts, max_tokens * n_used) +
                             2 * ColumnFloats<Math>(max_tokens) * 4) +
         Math::ScratchBytes(m, max_tokens);
}
template <typename Math>
inline size_t ExpertSharedBytes(const ExpertMatrix& m, int64_t n_used, int64_t max_tokens) {
  const int64_t rows = max_tokens * n_used;
  return static_cast<size_t>(kSharedCounterBytes + rows * Math::RowBytes(m, 1));
}

// Calls body(expert, rows, count, begin, end, which) for parts of this thread's columns: `count`
// rows of the expert, which are those at which[0], which[1], ... of the output.
template <typename Math, typename Body>
inline void ForExpertParts(const ExpertMatrix& m, const RowGroups& g, const ThreadSlot& thread,
                           Body&& body) {
  const uint8_t* rows = SharedRows<Math>(thread);
  int64_t known = 0;  // experts in front of `rows`
  ForExpertColumns(g, m.w.shape[0], Math::kUnit, thread,
                   [&](int64_t expert, int64_t begin, int64_t end) {
                     for (; known < expert; ++known) rows += Math::RowBytes(m, g.Rows(known));
                     const int64_t count = g.Rows(expert);
                     const int64_t step = Math::Columns(count);
                     for (int64_t n = begin; n < end; n += step) {
                       body(expert, rows, count, n, Least(n + step, end), g.row + g.begin[expert]);
                     }
                   });
}

inline void LimitGate(float limit, int64_t n, float* gate, float* up) {
  ForVectors(
      0, n, [&](int64_t i, int64_t count) __attribute__((always_inline)) {
        const F top = Set(limit);
        StoreUpTo(gate + i, Min(LoadUpTo(gate + i, count), top), count);
        const F u = Max(Min(LoadUpTo(up + i, count), top), Set(-limit));
        StoreUpTo(up + i, u + Set(1.0f), count);
      });
}

template <typename Math>
void ExpertGluOf(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const ExpertGluArgs*>(args);
  const int64_t n_out = a.gate.w.shape[0];
  const int64_t rows = step.n_tokens * a.n_used;
  const ExpertScratch s = ExpertScratchOf<Math>(thread, a.gate.n_experts, rows, step.n_tokens);
  const RowGroups g = GroupRows({a.experts, a.n_used, false}, step, a.gate.n_experts, s.groups);
  ForExpertParts<Math>(a.gate, g, thread,
                       [&](int64_t expert, const uint8_t* x, int64_t count, int64_t begin,
                           int64_t end, const int32_t* which) {
                         const int64_t n = end - begin;
                         Math::Sums(a.gate, expert, x, count, begin, end, s.gate, n, s.sums);
                         Math::Sums(a.up, expert, x, count, begin, end, s.up, n, s.sums);
                         if (a.glu.limit > 0) LimitGate(a.glu.limit, count * n, s.gate, s.up);
                         for (int64_t i = 0; i < count; ++i) {
                           GluRange(a.glu.act, s.gate + i * n, s.up + i * n,
                                    a.y + which[i] * n_out + begin, 0, n);
                         }
                       });
}

template <typename Math>
void ExpertLinearOf(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const ExpertLinearArgs*>(args);
  const int64_t n_out = a.w.w.shape[0];
  const int64_t rows = step.n_tokens * a.n_used;
  const ExpertScratch s = ExpertScratchOf<Math>(thread, a.w.n_experts, rows, step.n_tokens);
  const RowGroups g =
      GroupRows({a.experts, a.n_used, a.generated_only}, step, a.w.n_experts, s.groups);
  ForExpertParts<Math>(a.w, g, thread,
                       [&](int64_t expert, const uint8_t* x, int64_t count, int64_t begin,
                           int64_t end, const int32_t* which) {
                         const int64_t n = end - begin;
                         Math::Sums(a.w, expert, x, count, begin, end, s.gate, n, s.sums);
                         for (int64_t i = 0; i < count; ++i) {
                           memcpy(a.y + which[i] * n_out + begin, s.gate + i * n,
                                  static_cast<size_t>(n) * sizeof(float));
                         }
                       });
}

template <typename Math>
bool PrepareExpertGlu(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const ExpertGluArgs*>(args);
  const RowGroups g =
      GroupRows({a.experts, a.n_used, false}, step, a.gate.n_experts, thread.scratch);
  PutExpertRows<Math>(a.gate, g, a.x, a.n_used, a.gate.w.shape[1], thread);
  return true;
}
template <typename Math>
bool PrepareExpertLinear(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const ExpertLinearArgs*>(args);
  const RowGroups g =
      GroupRows({a.experts, a.n_used, a.generated_only}, step, a.w.n_experts, thread.scratch);
  PutExpertRows<Math>(a.w, g, a.x, 1, a.x_stride, thread);
  return g.All() > 0;
}

template <typename Math>
size_t ExpertGluScratch(const void* args, int64_t max_rows) {
  const auto& a = *static_cast<const ExpertGluArgs*>(args);
  return ExpertScratchBytes<Math>(a.gate, a.n_used, max_rows);
}
template <typename Math>
size_t ExpertLinearScratch(const void* args, int64_t max_rows) {
  const auto& a = *static_cast<const ExpertLinearArgs*>(args);
  return ExpertScratchBytes<Math>(a.w, a.n_used, max_rows);
}
template <typename Math>
size_t ExpertGluShared(const void* args, int64_t max_rows) {
  const auto& a = *static_cast<const ExpertGluArgs*>(args);
  return ExpertSharedBytes<Math>(a.gate, a.n_used, max_rows);
}
template <typename Math>
size_t ExpertLinearShared(const void* args, int64_t max_rows) {
  const auto& a = *static_cast<const ExpertLinearArgs*>(args);
  return ExpertSharedBytes<Math>(a.w, a.n_used, max_rows);
}
template <typename Math>
const char* RefuseExpertGlu(const void* args) {
  const auto& a = *static_cast<const ExpertGluArgs*>(args);
  const char* reason = Math::Refuse(LinearOf(a.gate, 0));
  return reason != nullptr ? reason : Math::Refuse(LinearOf(a.up, 0));
}
template <typename Math>
const char* RefuseExpertLinear(const void* args) {
  return Math::Refuse(LinearOf(static_cast<const ExpertLinearArgs*>(args)->w, 0));
}

}  // namespace
}  // namespace lucid::LUCID_ISA

// Rows of a Kernel array; `kind` and `isa` are string literals.
#define LUCID_EXPERT_KERNELS(Math, kind, isa)                                                    \
  {KernelOp::kExpertGlu,  kind "expert_glu." isa, ExpertGluOf<Math>,     ExpertGluScratch<Math>, \
   RefuseExpertGlu<Math>, ExpertGluShared<Math>,  PrepareExpertGlu<Math>},                       \
  {                                                                                              \
    KernelOp::kExpertLinear, kind "expert_linear." isa, ExpertLinearOf<Math>,                    \
        ExpertLinearScratch<Math>, RefuseExpertLinear<Math>, ExpertLinearShared<Math>,           \
        PrepareExpertLinear<Math>                                                                \
  }
