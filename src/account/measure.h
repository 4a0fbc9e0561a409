// Measures a Machine. Entry points: MeasureMachine for all of it, MeasureRead and MeasurePeaks for
// one number. Nothing else should run meanwhile. A reading is the median of several passes, since
// what a memory gives for a moment is no limit that it keeps; other figures are the best of many
// short passes, so that what does run spoils few of them.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "account/machine.h"

namespace lucid {

inline constexpr int64_t kDefaultModelBytes = 350'000'000;
inline constexpr int64_t kLargeBytes = int64_t{4} << 30;

struct MeasureOptions {
  int64_t model_bytes = kDefaultModelBytes;  // a buffer as large as what one token reads
  int64_t large_bytes = kLargeBytes;         // and one that no cache holds
  std::vector<int> threads;                  // empty: 1, 2, some up to all cores
  double most_seconds = 15;                  // after which no figure is begun
  // Called before each part with its name.
  std::function<void(std::string_view part)> progress;
};

// Under 20 s; on a machine that has no time for all figures the rest is left out, and a note names
// it. A buffer that half of the available memory does not hold is made smaller, and a note
// says so. kCapacity if the system gives less than it promised.
Result<Machine> MeasureMachine(const MeasureOptions& options);

// The fastest way to read `bytes` bytes with so many threads: of all loops of the widest
// instruction set, the best median of several passes. Takes about half a second. The buffer is cut
// to half of the available memory, its size is in the result. kCapacity.
Result<ReadSpeed> MeasureRead(int64_t bytes, int threads, bool huge_pages);

// The size of a buffer: `wanted`, or half of what is available (0: unknown) where that is less, in
// whole pages, one for every thread at least.
int64_t BufferBytes(int64_t wanted, int threads, int64_t available);

// One for each kind of number and instruction set that this CPU has. Takes about a second.
std::vector<ComputePeak> MeasurePeaks(int threads);

}  // namespace lucid
