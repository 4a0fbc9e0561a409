// Ops on single values, and the write to the KV cache. Work is cut by values: each depends on its
// own index alone.
#pragma once

#include <cstdint>

#include "kernels/args.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/split.h"

namespace lucid::LUCID_ISA {
namespace {

constexpr int64_t kValuesUnit = 64;  // whole cache lines and vectors

inline Share ValueShare(const StepView& step, RowAxis axis, int64_t dim, const ThreadSlot& thread) {
  return ShareOf((axis == RowAxis::kTokens ? step.n_tokens : step.n_outputs) * dim, kValuesUnit,
                 thread);
}

void Glu(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const GluArgs*>(args);
  const Share share = ValueShare(step, a.rows, a.dim, thread);
  GluRange(a.act, a.gate, a.up, a.y, share.begin, share.end);
}

void Add(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const AddArgs*>(args);
  const Share share = ValueShare(step, a.rows, a.dim, thread);
  ForVectors(
      share.begin, share.end, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        StoreUpTo(a.y + i, LoadUpTo(a.a + i, n) + LoadUpTo(a.b + i, n), n);
      });
}

void Scale(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const ScaleArgs*>(args);
  const Share share = ValueShare(step, a.rows, a.dim, thread);
  ForVectors(
      share.begin, share.end, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        StoreUpTo(a.y + i, LoadUpTo(a.x + i, n) * Set(a.factor), n);
      });
}

void Softcap(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const SoftcapArgs*>(args);
  const F cap = Set(a.cap);
  const Share share = ValueShare(step, a.rows, a.dim, thread);
  ForVectors(
      share.begin, share.end, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
        StoreUpTo(a.y + i, cap * Tanh(LoadUpTo(a.x + i, n) / cap), n);
      });
}

inline uint16_t ToBf16(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline void StoreAs(DType type, const float* src, uint8_t* dst, int64_t n) {
  if (type == DType::kF32) {
    __builtin_memcpy(dst, src, static_cast<size_t>(n) * sizeof(float));
  } else if (type == DType::kBF16) {
    for (int64_t i = 0; i < n; ++i) {
      const uint16_t h = ToBf16(src[i]);
      __builtin_memcpy(dst + 2 * i, &h, sizeof(h));
    }
  } else {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) StoreF16(dst + 2 * i, Load(src + i));
    if (i < n) {
      uint8_t last[2 * kLanes];
      StoreF16(last, LoadN(src + i, n - i));
      __builtin_memcpy(dst + 2 * i, last, static_cast<size_t>(2 * (n - i)));
    }
  }
}

inline int64_t KvElementBytes(DType type) {
  return type == DType::kF32 ? 4 : 2;
}

void KvStore(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const KvStoreArgs*>(args);
  const KvView& kv = a.kv;
  const int64_t k_bytes = KvElementBytes(kv.k_dtype) * kv.k_dim;
  const int64_t v_bytes = KvElementBytes(kv.v_dtype) * kv.v_dim;
  const Share share = ShareOf(int64_t{step.n_tokens} * kv.n_heads, 1, thread);
  for (int64_t i = share.begin; i < share.end; ++i) {
    const int64_t token = i / kv.n_heads;
    const int64_t position = step.positions[token];
    const int32_t* table =
        step.block_tables + int64_t{step.sequence[token]} * step.block_table_stride;
    const int64_t head = int64_t{table[position / kv.block_size]} * kv.n_heads + i % kv.n_heads;
    const int64_t place = head * kv.block_size + position % kv.block_size;
    StoreAs(kv.k_dtype, a.k + i * kv.k_dim, reinterpret_cast<uint8_t*>(kv.k) + place * k_bytes,
            kv.k_dim);
    StoreAs(kv.v_dtype, a.v + i * kv.v_dim, reinterpret_cast<uint8_t*>(kv.v) + place * v_bytes,
            kv.v_dim);
  }
}

}  // namespace
}  // namespace lucid::LUCID_ISA
