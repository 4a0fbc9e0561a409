// Share: the contiguous part of a kernel's work that one thread takes.
//
// Everything here is `static`: the header is also included by files that are compiled for one
// instruction set, and a function of theirs must never become the copy that the linker keeps for
// everybody (ADR 0003).
#pragma once

#include <cstdint>

#include "kernels/args.h"

namespace lucid {

struct Share {
  int64_t begin = 0;
  int64_t end = 0;
};

// Part `thread.index` of `thread.count` of [0, n), cut at multiples of `unit`.
static inline Share ShareOf(int64_t n, int64_t unit, const ThreadSlot& thread) {
  const int64_t units = (n + unit - 1) / unit;
  const int64_t begin = units * thread.index / thread.count * unit;
  const int64_t end = units * (thread.index + 1) / thread.count * unit;
  return {begin < n ? begin : n, end < n ? end : n};
}

}  // namespace lucid
