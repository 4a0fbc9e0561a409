#include "base/rng.h"

namespace lucid {
namespace {

// Multipliers and Weyl increments of Philox4x32 (table 2 and section 3.3 of the paper).
constexpr uint64_t kMultiplier0 = 0xD2511F53;
constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9;
constexpr uint32_t kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;

constexpr uint32_t Low(uint64_t x) {
  return static_cast<uint32_t>(x);
}
constexpr uint32_t High(uint64_t x) {
  return static_cast<uint32_t>(x >> 32);
}

}  // namespace

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {High(product1) ^ counter[1] ^ key[0], Low(product1),
               High(product0) ^ counter[3] ^ key[1], Low(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

double UniformDraw(uint64_t seed, uint64_t request, uint64_t position, uint32_t lane) {
  // Positions stay far below 2^32, so the high word of the position is free for the lane.
  const std::array<uint32_t, 4> block = Philox4x32(
      {Low(position), High(position) + lane, Low(request), High(request)}, {Low(seed), High(seed)});
  const uint64_t bits = (uint64_t{block[1]} << 32 | block[0]) >> 11;
  return static_cast<double>(bits) * 0x1.0p-53;
}

}  // namespace lucid
