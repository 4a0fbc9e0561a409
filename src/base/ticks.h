// Ticks: the cheapest clock there is, the counter that the CPU keeps for itself: a few nanoseconds
// to read, where a steady_clock takes twenty or more. What a tick is worth is found by reading both
// clocks at the ends of what is timed. It counts on while a thread is not running, and alike on all
// cores (x86: "constant_tsc" and "nonstop_tsc" of /proc/cpuinfo; aarch64: the generic timer).
#pragma once

#include <cstdint>

#if !defined(__x86_64__) && !defined(__i386__) && !defined(__aarch64__)
#include "base/timer.h"
#endif

namespace lucid {

// Neither waits for earlier instructions nor holds later ones up: right to some tens of
// nanoseconds.
inline int64_t ReadTicks() {
#if defined(__x86_64__) || defined(__i386__)
  return static_cast<int64_t>(__builtin_ia32_rdtsc());
#elif defined(__aarch64__)
  uint64_t ticks;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return static_cast<int64_t>(ticks);
#else
  return Clock::now().time_since_epoch().count();
#endif
}

}  // namespace lucid
