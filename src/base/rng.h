// Philox4x32-10: a counter-based random generator (Salmon et al., "Parallel random numbers: as easy
// as 1, 2, 3", SC 2011).
//
// A draw is a pure function of (seed, request, position), so a reply does not depend on threads, on
// batch mates or on how often other requests drew.
#pragma once

#include <array>
#include <cstdint>

namespace lucid {

// The 128-bit block for this counter and key.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// A double in [0, 1) with 53 random bits. `lane` gives further independent draws at one position.
double UniformDraw(uint64_t seed, uint64_t request, uint64_t position, uint32_t lane = 0);

}  // namespace lucid
