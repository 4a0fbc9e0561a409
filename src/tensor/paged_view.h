// KvView: where the keys and values of one layer lie, as plain data for kernels.
//
// Storage is cut into blocks of `block_size` positions. A layer's part of a block is a page: the
// keys of all heads, then the values. A sequence's block table maps its logical block number to a
// physical one, so the cache place s of a sequence is found in page table[s / block_size], place
// s % block_size. Kernels use only this view and never assume that blocks follow each other; an
// entry of -1 belongs to a block that a sliding window has left and is never read.
//
// A cache place is the token's position, minus what eviction has dropped in front of it
// (StepView::dropped).
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/kv_type.h"

namespace lucid {

struct KvPages {
  std::byte* data = nullptr;  // [n_blocks][page_bytes]
  int64_t page_bytes = 0;     // [n_heads] keys, KvHeadBytes each, then from v_offset the values
  int64_t v_offset = 0;
  KvType k_type = KvType::kF16;
  KvType v_type = KvType::kF16;
  int32_t table = 0;  // which of the step's block tables leads to these pages
};

struct KvView {
  KvPages pages;
  // Kivi2 only (data == nullptr otherwise): float16 pages of the newest positions. A query at
  // position p reads block b from `pages` if (b + 1) * block_size <= p + 1 - kKiviResidual, else
  // from here.
  KvPages recent;
  int32_t n_heads = 0;  // KV heads
  int32_t k_dim = 0;    // elements of a key
  int32_t v_dim = 0;
  bool v_in_k = false;  // values are the first v_dim numbers of the keys
  int32_t block_size = 0;
  int32_t layer = 0;  // index among the plan's KV layers: which rows of StepView::scores
};

// Where the attention that keys receive is added up, for sequences whose cache is bounded by an
// eviction policy. For every head of every KV layer one float per cache place.
struct KeyScores {
  float* sums = nullptr;  // [n_kv_layers][layer_stride]: sums[layer][kv_head * capacity + place]
  int64_t layer_stride = 0;
  int64_t capacity = 0;        // places per head
  int64_t first_position = 0;  // queries before this position do not count
};

}  // namespace lucid
