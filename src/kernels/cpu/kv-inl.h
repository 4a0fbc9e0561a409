// KvStore: keys and values of a step to their places in the cache.
#pragma once

#include <cstdint>

#include "kernels/args.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/kivi.h"
#include "kernels/kv_place.h"
#include "kernels/split.h"

namespace lucid::LUCID_ISA {
namespace {

// One row; types whose scale depends on the whole row go through the codec.
inline void StoreAs(KvType type, const float* src, std::byte* row, int64_t n) {
  auto* dst = reinterpret_cast<uint8_t*>(row);
  if (type == KvType::kF32) {
    __builtin_memcpy(dst, src, static_cast<size_t>(n) * sizeof(float));
  } else if (type == KvType::kBF16) {
    for (int64_t i = 0; i < n; ++i) {
      const uint16_t h = ToBf16(src[i]);
      __builtin_memcpy(dst + 2 * i, &h, sizeof(h));
    }
  } else if (type == KvType::kF16) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) StoreF16(dst + 2 * i, Load(src + i));
    if (i < n) {
      uint8_t last[2 * kLanes];
      StoreF16(last, LoadN(src + i, n - i));
      __builtin_memcpy(dst + 2 * i, last, static_cast<size_t>(2 * (n - i)));
    }
  } else {
    EncodeKvRow(type, src, row, n);
  }
}

struct KvTarget {
  KvArray keys;
  KvArray values;
  const KvPages& pages;
};

inline void StoreOne(const KvStoreArgs& a, const StepView& step, const KvTarget& to, int64_t token,
                     int64_t head) {
  const int32_t* table = step.Table(to.pages, step.sequence[token]);
  const int64_t place = PlaceOf(a.kv, step, token);
  const int64_t row = token * a.kv.n_heads + head;
  StoreAs(to.keys.type, a.k + row * a.kv.k_dim, RowOf(to.keys, table, place, head), a.kv.k_dim);
  if (a.kv.v_dim == 0) return;
  StoreAs(to.values.type, a.v + row * a.kv.v_dim, RowOf(to.values, table, place, head), a.kv.v_dim);
}

// Float16 rows first; then one thread packs the blocks of a head whose rows it has written.
inline void StoreKivi(const KvStoreArgs& a, const StepView& step, const ThreadSlot& thread) {
  const KvTarget to = {KeysOf(a.kv, a.kv.recent), ValuesOf(a.kv, a.kv.recent), a.kv.recent};
  int64_t item = 0;
  for (int64_t begin = 0; begin < step.n_tokens;) {
    const int64_t end = SequenceEnd(step, begin);
    for (int64_t head = 0; head < a.kv.n_heads; ++head, ++item) {
      if (item % thread.count != thread.index) continue;
      for (int64_t token = begin; token < end; ++token) StoreOne(a, step, to, token, head);
      PackKiviBlocks(a.kv, step, begin, end, head, thread.scratch);
    }
    begin = end;
  }
}

void KvStore(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const KvStoreArgs*>(args);
  if (HasRecent(a.kv)) return StoreKivi(a, step, thread);
  const KvTarget to = {KeysOf(a.kv, a.kv.pages), ValuesOf(a.kv, a.kv.pages), a.kv.pages};
  const Share share = ShareOf(int64_t{step.n_tokens} * a.kv.n_heads, 1, thread);
  for (int64_t i = share.begin; i < share.end; ++i) {
    StoreOne(a, step, to, i / a.kv.n_heads, i % a.kv.n_heads);
  }
}

size_t KvStoreScratch(const void* args, int64_t /*max_rows*/) {
  const KvView& kv = static_cast<const KvStoreArgs*>(args)->kv;
  return HasRecent(kv) ? KiviScratch(kv) : 0;
}

}  // namespace
}  // namespace lucid::LUCID_ISA
