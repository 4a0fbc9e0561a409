// The row kernels of every instruction set of this machine against plain loops in double.
#include "kernels/rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

namespace lucid {
namespace {

constexpr float kInf = INFINITY;

std::vector<const RowKernels*> AllRowKernels() {
  std::vector<const RowKernels*> all;
  for (const char* isa : {"generic", "avx2", "avx512"}) {
    const auto tables = SelectTables(isa);
    if (!tables) {
      std::printf("not run here: %s\n", tables.error().message.c_str());
      continue;
    }
    all.push_back(&RowKernelsOf(*tables));
    EXPECT_EQ(all.back()->isa, isa);
  }
  return all;
}

// Blocks of numbers, some of them special, and some blocks of nothing else.
std::vector<float> Numbers(std::mt19937& random, int64_t n_blocks) {
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(n_blocks * kRowBlock));
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t block = i / kRowBlock;
    const float special = random() % 3 == 0 ? NAN : random() % 2 == 0 ? -kInf : -3e38f;
    x[i] = block % 5 == 4 || random() % 9 == 0 ? special : 6 * normal(random);
  }
  return x;
}

TEST(RowKernels, TheCeilingIsThatOfTheTables) {
  EXPECT_EQ(RowKernelsOf(*SelectTables("reference")).isa, "generic");
  EXPECT_EQ(RowKernelsOf(*SelectTables("generic")).isa, "generic");
  EXPECT_EQ(&BestRowKernels(), &RowKernelsOf(*SelectTables("auto")));
}

TEST(RowKernels, MaximaAndMasksEqualPlainLoops) {
  std::mt19937 random(1);
  for (const RowKernels* kernels : AllRowKernels()) {
    SCOPED_TRACE(kernels->isa);
    for (const int64_t n_blocks : {1, 2, 7, 40}) {
      // Misaligned by one float.
      auto x = Numbers(random, n_blocks);
      x.insert(x.begin(), 0.0f);
      std::vector<float> maxima(static_cast<size_t>(n_blocks));
      const float most = kernels->maxima(&x[1], n_blocks, maxima.data());
      float wanted_most = -kInf;
      for (int64_t b = 0; b < n_blocks; ++b) {
        const float* block = &x[1] + b * kRowBlock;
        float wanted = -kInf;
        uint64_t bits = 0;
        for (int i = 0; i < kRowBlock; ++i) {
          if (block[i] > wanted) wanted = block[i];
          if (block[i] >= 1.5f) bits |= uint64_t{1} << i;
        }
        EXPECT_EQ(maxima[static_cast<size_t>(b)], wanted);
        EXPECT_EQ(kernels->at_least(block, 1.5f), bits);
        if (wanted > -kInf) {
          EXPECT_NE(kernels->at_least(block, wanted), 0u);
        }
        wanted_most = std::max(wanted_most, wanted);
      }
      EXPECT_EQ(most, wanted_most);
    }
  }
}

TEST(RowKernels, WeightsAreWithinTheirErrorAndEqualWithFusedMultiplyAdd) {
  std::mt19937 random(2);
  constexpr int64_t kBlocks = 50;
  for (const float temperature : {0.0f, 1e-40f, 0.3f, 1.0f, 1.9f, 1e30f}) {
    const bool tempered = temperature > 0;
    const auto x = Numbers(random, kBlocks);
    std::vector<float> maxima(kBlocks);
    std::vector<double> fused;
    for (const RowKernels* kernels : AllRowKernels()) {
      SCOPED_TRACE(kernels->isa);
      const float max = kernels->maxima(x.data(), kBlocks, maxima.data());
      std::vector<double> sums(kBlocks);
      kernels->weights(x.data(), kBlocks, {max, tempered, temperature}, sums.data());
      for (size_t b = 0; b < kBlocks; ++b) {
        double wanted = 0;
        for (size_t i = b * kRowBlock; i < (b + 1) * kRowBlock; ++i) {
          if (!(x[i] > -kInf)) continue;
          const double y = static_cast<double>(x[i]) - max;
          wanted += std::exp(tempered ? static_cast<float>(y / temperature) : y);
        }
        EXPECT_NEAR(sums[b], wanted, kWeightError * wanted + 65 * std::exp(-700.0));
      }
      if (kernels->isa == "generic") continue;
      if (fused.empty()) fused = sums;
      EXPECT_EQ(sums, fused);
    }
  }
}

// The largest weighs exactly 1: log-probabilities are never above 0.
TEST(RowKernels, TheLargestWeighsOne) {
  for (const RowKernels* kernels : AllRowKernels()) {
    std::vector<float> x(kRowBlock, -kInf);
    x[17] = 3.25f;
    double sum = 0;
    kernels->weights(x.data(), 1, {.max = 3.25f}, &sum);
    EXPECT_EQ(sum, 1.0) << kernels->isa;
  }
}

}  // namespace
}  // namespace lucid
