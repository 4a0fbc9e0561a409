#include "base/finite.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <vector>

namespace lucid {
namespace {

TEST(AllFinite, FindsWhatIsNoNumberAtEveryPlace) {
  for (const size_t n : {1u, 3u, 4u, 31u, 64u, 67u}) {
    std::vector<float> row(n, -FLT_MAX);
    row[n / 2] = FLT_MAX;
    row[n - 1] = 1e-42f;
    EXPECT_TRUE(AllFinite(row));
    for (size_t i = 0; i < n; ++i) {
      for (const float bad : {INFINITY, -INFINITY, NAN, -NAN}) {
        std::vector<float> spoilt = row;
        spoilt[i] = bad;
        EXPECT_FALSE(AllFinite(spoilt)) << bad << " at " << i << " of " << n;
      }
    }
  }
  EXPECT_TRUE(AllFinite({}));
}

}  // namespace
}  // namespace lucid
