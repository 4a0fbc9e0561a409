// The loops of the probes, over what an instruction set brings. Included by probe_<name>.cc, which
// has defined LUCID_PROBE, its namespace.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/probes.h"

namespace lucid::LUCID_PROBE {
namespace {

template <typename Vec>
uint64_t Fold(Vec v) {
  uint64_t words[sizeof(Vec) / sizeof(uint64_t)];
  memcpy(words, &v, sizeof(v));
  uint64_t sum = 0;
  for (const uint64_t word : words) sum += word;
  return sum;
}

// Reads lines of the first, second, ... part in turn, kStreams parts of equal size; each is asked
// for kAhead bytes before it is read, where kAhead is not 0. A hardware prefetcher that stops at
// the end of a 4 KB page has more to do with several streams.
inline constexpr int64_t kReadBytes = 1024;
template <typename Vec, int kStreams, int64_t kAhead>
uint64_t Read(const void* data, int64_t n) {
  constexpr int64_t kLine = 64;
  constexpr int64_t kStep = kReadBytes / kStreams;
  constexpr int kVectors = static_cast<int>(kLine / static_cast<int64_t>(sizeof(Vec)));
  const int64_t part = n * kStep;
  const char* at = static_cast<const char*>(data);
  Vec sum[4] = {};
  for (int64_t i = 0; i < part; i += kStep) {
#pragma GCC unroll 4
    for (int s = 0; s < kStreams; ++s) {
      const char* line = at + s * part + i;
#pragma GCC unroll 16
      for (int64_t j = 0; j < kStep; j += kLine) {
        if (kAhead > 0) __builtin_prefetch(line + j + kAhead);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          sum[v] ^= *reinterpret_cast<const Vec*>(line + j + v * static_cast<int>(sizeof(Vec)));
        }
      }
    }
  }
  return Fold(sum[0]) ^ Fold(sum[1]) ^ Fold(sum[2]) ^ Fold(sum[3]);
}

#define LUCID_READ_PROBES(Vec)                                                         \
  {ProbeKind::kRead, "", kReadBytes, Read<Vec, 1, 0>},                                 \
      {ProbeKind::kRead, "prefetch 1 KB ahead", kReadBytes, Read<Vec, 1, 1024>},       \
      {ProbeKind::kRead, "prefetch 4 KB ahead", kReadBytes, Read<Vec, 1, 4096>},       \
      {ProbeKind::kRead, "prefetch 8 KB ahead", kReadBytes, Read<Vec, 1, 8192>},       \
      {ProbeKind::kRead, "4 streams", kReadBytes, Read<Vec, 4, 0>}, {                  \
    ProbeKind::kRead, "4 streams, prefetch 1 KB ahead", kReadBytes, Read<Vec, 4, 1024> \
  }

// The vector, as a value that the compiler knows nothing of: else it could multiply once, before
// the loop, and only add in it.
template <typename Vec>
Vec Renewed(Vec v) {
#if defined(__x86_64__)
  asm volatile("" : "+v"(v));
#elif defined(__aarch64__)
  asm volatile("" : "+w"(v));
#else
  asm volatile("" : "+m"(v));
#endif
  return v;
}

// Sums of an outer product, as the inner loop of a matrix product has them: D::kA x D::kB
// independent accumulators, enough to hide the latency of two units of four cycles each.
template <typename D>
uint64_t MultiplyAdd(const void* data, int64_t n) {
  using Vec = typename D::Vec;
  const char* operands = static_cast<const char*>(data);
  Vec a[D::kA], b[D::kB], sum[D::kA * D::kB] = {};
#pragma GCC unroll 4
  for (int i = 0; i < D::kA; ++i) memcpy(&a[i], operands + i * sizeof(Vec), sizeof(Vec));
#pragma GCC unroll 4
  for (int i = 0; i < D::kB; ++i) memcpy(&b[i], operands + (8 + i) * sizeof(Vec), sizeof(Vec));
  for (int64_t step = 0; step < n; ++step) {
#pragma GCC unroll 4
    for (int i = 0; i < D::kA; ++i) {
      const Vec factor = Renewed(a[i]);
#pragma GCC unroll 4
      for (int j = 0; j < D::kB; ++j) {
        sum[i * D::kB + j] = D::MultiplyAdd(sum[i * D::kB + j], factor, b[j]);
      }
    }
  }
  uint64_t folded = 0;
#pragma GCC unroll 16
  for (int i = 0; i < D::kA * D::kB; ++i) folded ^= Fold(sum[i]);
  return folded;
}
template <typename D>
constexpr int64_t Work() {
  return int64_t{D::kA} * D::kB * D::kLanes;
}

}  // namespace
}  // namespace lucid::LUCID_PROBE
