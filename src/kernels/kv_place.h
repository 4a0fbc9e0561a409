// Where keys and values of a layer lie (tensor/paged_view.h), worked out once per kernel call, and
// which of its blocks a kivi2 query reads packed.
//
// Everything here is `static`, for the reason that split.h gives.
#pragma once

#include <cstdint>

#include "kernels/args.h"
#include "tensor/kv_type.h"

namespace lucid {

// The keys or the values of all heads in one set of pages.
struct KvArray {
  std::byte* data;  // of head 0 in block 0
  int64_t page_bytes;
  int64_t head_bytes;  // of one head in one page
  int64_t row_bytes;   // of one vector; 0 for packed keys, which have no rows
  int64_t dim;
  int64_t block_size;
  KvType type;
};

static inline std::byte* HeadOf(const KvArray& a, int64_t block, int64_t head) {
  return a.data + block * a.page_bytes + head * a.head_bytes;
}
static inline std::byte* RowOf(const KvArray& a, const int32_t* table, int64_t place,
                               int64_t head) {
  return HeadOf(a, table[place / a.block_size], head) + place % a.block_size * a.row_bytes;
}

static inline KvArray KeysOf(const KvView& kv, const KvPages& pages) {
  return {.data = pages.data,
          .page_bytes = pages.page_bytes,
          .head_bytes = KvHeadBytes(pages.k_type, true, kv.k_dim, kv.block_size),
          .row_bytes = IsRowType(pages.k_type) ? KvRowBytes(pages.k_type, kv.k_dim) : 0,
          .dim = kv.k_dim,
          .block_size = kv.block_size,
          .type = pages.k_type};
}

static inline KvArray ValuesOf(const KvView& kv, const KvPages& pages) {
  if (kv.v_in_k) {
    KvArray values = KeysOf(kv, pages);
    values.dim = kv.v_dim;
    return values;
  }
  return {.data = pages.data + pages.v_offset,
          .page_bytes = pages.page_bytes,
          .head_bytes = KvHeadBytes(pages.v_type, false, kv.v_dim, kv.block_size),
          .row_bytes = KvRowBytes(pages.v_type, kv.v_dim),
          .dim = kv.v_dim,
          .block_size = kv.block_size,
          .type = pages.v_type};
}

// Kivi2: quantised pages beside recent ones.
static inline bool HasRecent(const KvView& kv) {
  return kv.recent.data != nullptr;
}

// Kivi2: blocks [0, n) that the query at place p reads from kv.pages; later ones lie in kv.recent.
static inline int64_t PackedBlocks(const KvView& kv, int64_t place) {
  const int64_t end = place + 1 - kKiviResidual;
  return end > 0 ? end / kv.block_size : 0;
}

// The token's place in the cache.
static inline int64_t PlaceOf(const KvView& kv, const StepView& step, int64_t token) {
  return step.positions[token] - step.Dropped(kv.pages, step.sequence[token]);
}

// Whether a step's attention weights are wanted of a sequence. Windowed layers are never bounded,
// and their places are not those of KeyScores.
static inline bool WantsScores(const AttentionArgs& a, const StepView& step, int32_t sequence) {
  return step.scores != nullptr && a.window == 0 && step.scores[sequence].sums != nullptr;
}

// The first token of the next sequence.
static inline int64_t SequenceEnd(const StepView& step, int64_t token) {
  int64_t end = token + 1;
  while (end < step.n_tokens && step.sequence[end] == step.sequence[token]) ++end;
  return end;
}

}  // namespace lucid
