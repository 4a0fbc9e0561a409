#include "base/rng.h"

#include <gtest/gtest.h>

#include <set>

namespace lucid {
namespace {

using Block = std::array<uint32_t, 4>;

// The published known-answer vectors of the Random123 distribution for philox4x32, 10 rounds.
TEST(PhiloxTest, MatchesKnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(UniformDrawTest, IsAPureFunctionOfItsKey) {
  EXPECT_EQ(UniformDraw(1, 2, 3), UniformDraw(1, 2, 3));
  const std::set<double> draws = {UniformDraw(1, 2, 3),         UniformDraw(2, 2, 3),
                                  UniformDraw(1, 3, 3),         UniformDraw(1, 2, 4),
                                  UniformDraw(1, 2, 3, 1),      UniformDraw(1ull << 32, 2, 3),
                                  UniformDraw(1, 2ull << 32, 3)};
  EXPECT_EQ(draws.size(), 7u);
}

TEST(UniformDrawTest, StaysInRangeWithTheRightMean) {
  double sum = 0;
  int low = 0;
  constexpr int kDraws = 100000;
  for (uint64_t i = 0; i < kDraws; ++i) {
    const double u = UniformDraw(42, 7, i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    if (u < 0.1) ++low;
  }
  // Six standard deviations: 0.2887/sqrt(n) and sqrt(0.09/n).
  EXPECT_NEAR(sum / kDraws, 0.5, 0.0055);
  EXPECT_NEAR(static_cast<double>(low) / kDraws, 0.1, 0.0057);
}

}  // namespace
}  // namespace lucid
