#include "kernels/kivi.h"

#include <algorithm>

#include "kernels/kv_place.h"

namespace lucid {

size_t KiviScratch(const KvView& kv) {
  const auto dim = static_cast<size_t>(std::max(kv.k_dim, kv.v_dim));
  return dim * static_cast<size_t>(kv.block_size) * sizeof(float);
}

void PackKiviBlocks(const KvView& kv, const StepView& step, int64_t begin, int64_t end,
                    int64_t head, std::byte* scratch) {
  const int32_t sequence = step.sequence[begin];
  const int32_t* packed = step.Table(kv.pages, sequence);
  const int32_t* recent = step.Table(kv.recent, sequence);
  const KvArray keys = KeysOf(kv, kv.pages), recent_keys = KeysOf(kv, kv.recent);
  const KvArray values = ValuesOf(kv, kv.pages), recent_values = ValuesOf(kv, kv.recent);
  auto* rows = reinterpret_cast<float*>(scratch);
  const int64_t first = PackedBlocks(kv, PlaceOf(kv, step, begin) - 1);
  const int64_t last = PackedBlocks(kv, PlaceOf(kv, step, end - 1));
  for (int64_t block = first; block < last; ++block) {
    if (packed[block] < 0) continue;  // a window has left it already: nobody will read it
    const std::byte* k = HeadOf(recent_keys, recent[block], head);
    for (int64_t i = 0; i < kv.block_size; ++i) {
      DecodeKvRow(recent_keys.type, k + i * recent_keys.row_bytes, rows + i * kv.k_dim, kv.k_dim);
    }
    EncodeKiviKeys(rows, kv.k_dim, HeadOf(keys, packed[block], head), kv.k_dim, kv.block_size);
    const std::byte* v = HeadOf(recent_values, recent[block], head);
    std::byte* out = HeadOf(values, packed[block], head);
    for (int64_t i = 0; i < kv.block_size; ++i) {
      DecodeKvRow(recent_values.type, v + i * recent_values.row_bytes, rows, kv.v_dim);
      EncodeKvRow(values.type, rows, out + i * values.row_bytes, kv.v_dim);
    }
  }
}

}  // namespace lucid
