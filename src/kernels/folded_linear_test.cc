// Linears of packed weights with folded scales (cpu/folded_panel-inl.h), where the CPU has them.
// What the weights have been rounded to is read off products with rows of one number each; other
// rows are compared with sums of these weights.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/cpu_features.h"
#include "kernels/cpu/tables.h"
#include "kernels/kernel_test_util.h"
#include "kernels/packed.h"
#include "kernels/phase_test_util.h"

#if defined(__x86_64__)
namespace lucid {
namespace {

using namespace testing_util;  // NOLINT: the helpers of these tests

constexpr int64_t kChunk = 128;  // columns of a scale of activations

class FoldedLinear : public testing::Test {
 protected:
  void SetUp() override {
    const std::string unavailable = WhyUnavailable(kNeedsAvx512Vnni);
    if (!unavailable.empty()) GTEST_SKIP() << "avx512vnni cannot run: " << unavailable;
  }
  static const KernelTable& Table() { return Avx512VnniKernels(); }
};

PhasedCase FastCase(DType type, int64_t n_out, int64_t n_in, int64_t rows, bool with_bias) {
  PhasedCase c(type, n_out, n_in, rows, with_bias);
  c.args.error_budget = kAnyError;
  return c;
}

int64_t SliceOf(int64_t n_in) {
  return n_in <= 1024 ? 1024 : 512;
}

// [n_in][n_out]: the weights of the case as the kernel has them.
std::vector<float> RoundedWeights(const PhasedCase& c, const KernelTable& table) {
  const int64_t n_in = c.w.tensor.cols();
  std::vector<float> ones(static_cast<size_t>(n_in * n_in), 0.0f);
  for (int64_t i = 0; i < n_in; ++i) ones[static_cast<size_t>(i * n_in + i)] = 1.0f;
  std::vector<float> out(static_cast<size_t>(n_in * c.w.tensor.rows()));
  LinearArgs args = c.args;
  args.bias = nullptr;
  args.x = ones.data();
  args.y = out.data();
  RunAs(KernelFrom(table, KernelOp::kLinear, &args), &args,
        PhasedStep(static_cast<int32_t>(n_in), "p").view, 1);
  return out;
}

// Every weight lies within one step of 1/127 of the largest of its row and slice; rows whose
// largest is below 1e-30 are zero.
void ExpectCloseToTheFile(const PhasedCase& c, const std::vector<float>& rounded,
                          const std::string& what) {
  const int64_t n_in = c.w.tensor.cols();
  const int64_t n_out = c.w.tensor.rows();
  std::vector<float> w(static_cast<size_t>(n_in));
  for (int64_t n = 0; n < n_out; ++n) {
    DecodePackedRow(c.w.tensor.dtype, c.packed.data(), n_in, n, w.data());
    for (int64_t k = 0; k < n_in; k += SliceOf(n_in)) {
      const auto begin = w.begin() + k;
      const int64_t count = std::min(SliceOf(n_in), n_in - k);
      float largest = 0;
      for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::fabs(begin[i]));
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_NEAR(rounded[static_cast<size_t>((k + i) * n_out + n)], begin[i],
                    largest / 127 + 1e-30f)
            << what << " row " << n << " column " << k + i;
      }
    }
  }
}

// The rows of the case against these weights, in double precision.
std::vector<float> ProductOf(const PhasedCase& c, const std::vector<float>& weights, int64_t rows) {
  const int64_t n_in = c.w.tensor.cols();
  const int64_t n_out = c.w.tensor.rows();
  std::vector<float> out;
  for (int64_t m = 0; m < rows; ++m) {
    std::vector<double> sums(static_cast<size_t>(n_out), 0.0);
    for (int64_t k = 0; k < n_in; k += kChunk) {
      const float* x = c.x.data() + m * n_in + k;
      const int64_t count = std::min(kChunk, n_in - k);
      float largest = 0;
      for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::fabs(x[i]));
      for (int64_t i = 0; i < count; ++i) {
        const double rounded = std::nearbyint(x[i] * (127.0f / largest)) * (largest / 127.0f);
        for (int64_t n = 0; n < n_out; ++n) {
          sums[static_cast<size_t>(n)] +=
              rounded * weights[static_cast<size_t>((k + i) * n_out + n)];
        }
      }
    }
    for (int64_t n = 0; n < n_out; ++n) {
      const float bias = c.args.bias != nullptr ? c.bias[static_cast<size_t>(n)] : 0.0f;
      out.push_back(static_cast<float>(sums[static_cast<size_t>(n)]) + bias);
    }
  }
  return out;
}

TEST_F(FoldedLinear, IsTheProductOfRoundedWeightsAndActivationsForEveryTypeAndShape) {
  for (const DType type : QuantisedPackedTypes()) {
    const int64_t unit = Info(type).block_elems;
    // One block; a tail of a chunk; a slice and what is left; slices and a tail.
    for (const int64_t n_in : {unit, unit == 32 ? 18 * unit : 3 * unit, int64_t{1024},
                               unit == 32 ? 1024 + 5 * unit : 1024 + unit}) {
      for (const int64_t n_out : {1, 37, 150}) {
        const int32_t rows = n_out == 1 ? 45 : n_out == 37 ? 17 : 5;
        PhasedCase c = FastCase(type, n_out, n_in, rows, n_out == 37);
        const std::string what = fmt::format("{} [{}, {}] x {}", Name(type), n_out, n_in, rows);
        const std::vector<float> weights = RoundedWeights(c, Table());
        ExpectCloseToTheFile(c, weights, what);
        const std::vector<float> got = c.Run(Table(), PhasedStep(rows, "p").view, 2);
        const double tolerance = 1e-5 * std::sqrt(static_cast<double>(n_in)) * c.w.max;
        ExpectNear(got, ProductOf(c, weights, rows), 1e-5, tolerance, what);
      }
    }
  }
}

TEST_F(FoldedLinear, ARowHasTheSameBitsAloneAndAmongOthersAndForAnyNumberOfThreads) {
  constexpr int32_t kRows = 70;
  constexpr int64_t kOut = 77;
  for (const DType type : QuantisedPackedTypes()) {
    for (const int64_t n_in :
         {int64_t{768}, Info(type).block_elems == 32 ? int64_t{32 * 67} : int64_t{256 * 9}}) {
      PhasedCase c = FastCase(type, kOut, n_in, kRows, true);
      // Runs of both phases, of every kind of tail.
      PhasedStep step(kRows,
                      "ggpppppppppppppppppppppppppppppppppppppppppppgggggggpgpppppppppppppppp");
      const std::vector<float> alone = c.RunRows(Table(), step.view);
      for (const int32_t rows : {1, 2, 3, 19, 50, kRows}) {
        step.view.n_tokens = rows;
        const std::vector<float> want(alone.begin(), alone.begin() + rows * kOut);
        for (const int threads : {1, 3}) {
          ExpectSameBits(c.Run(Table(), step.view, threads), want,
                         fmt::format("{} {} rows {} threads {}", Name(type), n_in, rows, threads));
        }
      }
    }
  }
}

TEST_F(FoldedLinear, ARowHasTheSameBitsForAnyNumberOfRows) {
  constexpr int32_t kRows = 40;
  PhasedCase c = FastCase(DType::kQ4_K, 33, 512, kRows, false);
  const PhasedStep all(kRows, "p");
  const std::vector<float> alone = c.RunRows(Table(), all.view);
  for (int32_t rows = 1; rows <= kRows; ++rows) {
    const std::vector<float> want(alone.begin(), alone.begin() + rows * 33);
    ExpectSameBits(c.Run(Table(), PhasedStep(rows, "p").view, 2), want, std::to_string(rows));
  }
}

TEST_F(FoldedLinear, RowsOfRepliesAndOfLogitsAreThoseOfTheIntegerKernels) {
  constexpr int32_t kRows = 21;
  constexpr int64_t kOut = 53;
  PhasedCase c = FastCase(DType::kQ5_0, kOut, 480, kRows, true);
  // Kernels of the next table give the same bits, and fold nothing.
  const std::vector<float> want = c.Run(Avx2Kernels(), PhasedStep(kRows, "g").view, 1);
  ExpectSameBits(c.Run(Table(), PhasedStep(kRows, "g").view, 2), want, "all of replies");
  const PhasedStep mixed(kRows, "gppgg");
  const std::vector<float> got = c.Run(Table(), mixed.view, 2);
  for (int64_t r = 0; r < kRows; ++r) {
    if (mixed.phases[static_cast<size_t>(r)] == Phase::kPrompt) continue;
    ExpectSameBits({got.begin() + r * kOut, got.begin() + (r + 1) * kOut},
                   {want.begin() + r * kOut, want.begin() + (r + 1) * kOut}, std::to_string(r));
  }
  c.args.rows = RowAxis::kOutputs;
  PhasedStep logits(kRows, "p");
  logits.view.n_outputs = kRows;
  ExpectSameBits(c.Run(Table(), logits.view, 2), want, "logits");
}

TEST_F(FoldedLinear, OtherBudgetsKeepTheScalesOfTheFile) {
  PhasedCase c(DType::kQ4_K, 33, 512, 9, false);
  const PhasedStep step(9, "p");
  ASSERT_LT(c.args.error_budget, kAnyError);
  const std::vector<float> want = c.Run(Avx2Kernels(), step.view, 1);
  ExpectSameBits(c.Run(Table(), step.view, 1), want, "the default");
}

TEST_F(FoldedLinear, ARowThatIsNoNumberSpoilsNoOther) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    PhasedCase c = FastCase(DType::kQ4_K, 20, 512, 8, false);
    const PhasedStep step(8, "pppppppg");
    const std::vector<float> want = c.Run(Table(), step.view, 1);
    c.x[3 * 512 + 100] = bad;
    const std::vector<float> got = c.Run(Table(), step.view, 1);
    for (size_t i = 0; i < got.size(); ++i) {
      if (i / 20 == 3) {
        EXPECT_TRUE(std::isnan(got[i])) << bad;
      } else {
        EXPECT_EQ(got[i], want[i]) << bad;
      }
    }
  }
}

TEST_F(FoldedLinear, AWeightThatIsNoNumberSpoilsNoOtherColumn) {
  constexpr int32_t kRows = 7;
  constexpr int64_t kOut = 40;
  for (const uint16_t bad : {uint16_t{0x7c00}, uint16_t{0xfc00}, uint16_t{0x7e00}}) {
    PhasedCase c = FastCase(DType::kQ4_1, kOut, 256, kRows, false);
    const PhasedStep step(kRows, "p");
    const std::vector<float> want = c.Run(Table(), step.view, 1);
    // The scale of the third of the eight blocks of row 5, of 20 bytes each.
    std::memcpy(c.w.bytes.data() + 1 + (5 * 8 + 2) * 20, &bad, sizeof(bad));
    c.Pack();
    const std::vector<float> got = c.Run(Table(), step.view, 1);
    for (size_t i = 0; i < got.size(); ++i) {
      if (i % kOut == 5) {
        EXPECT_FALSE(std::isfinite(got[i])) << bad;
      } else {
        EXPECT_EQ(got[i], want[i]) << bad;
      }
    }
  }
}

TEST_F(FoldedLinear, TakesZerosDenormalsAndExtremeScales) {
  PhasedCase c = FastCase(DType::kQ4_0, 16, 256, 5, false);
  for (int64_t i = 0; i < 256; ++i) {
    c.x[static_cast<size_t>(i)] = 0.0f;
    c.x[static_cast<size_t>(256 + i)] = i % 2 == 0 ? 1e-41f : -1.17e-38f;
    c.x[static_cast<size_t>(512 + i)] *= 1e30f;
    c.x[static_cast<size_t>(768 + i)] *= i < 128 ? 1e10f : 1e-10f;
    c.x[static_cast<size_t>(1024 + i)] *= 1e-25f;
  }
  const std::vector<float> want = c.Reference(5);
  const std::vector<float> got = c.Run(Table(), PhasedStep(5, "p").view, 1);
  for (size_t i = 0; i < 16; ++i) EXPECT_EQ(got[i], 0.0f);
  for (size_t i = 16; i < 32; ++i) EXPECT_NEAR(got[i], 0.0f, 1e-30f);
  for (size_t i = 32; i < 80; ++i) {
    const double scale = i < 48 ? 1e30 : i < 64 ? 1e10 : 1e-25;
    EXPECT_NEAR(got[i] / scale, want[i] / scale, 0.05 * c.w.max * 16) << i;
  }
}

TEST_F(FoldedLinear, TakesRowsOfZerosAndScalesFarApart) {
  constexpr int64_t kIn = 1536;
  PhasedCase c = FastCase(DType::kQ4_0, 20, kIn, 7, false);
  constexpr int64_t kRowBlocks = kIn / 32;
  constexpr int64_t kBlockBytes = 18;
  const auto set_scale = [&](int64_t row, int64_t block, uint16_t half) {
    std::memcpy(c.w.bytes.data() + 1 + (row * kRowBlocks + block) * kBlockBytes, &half,
                sizeof(half));
  };
  for (int64_t b = 0; b < kRowBlocks; ++b) {
    set_scale(3, b, 0);                              // nothing but zeros
    set_scale(4, b, b % 16 == 5 ? 0x7bff : 0x0001);  // 65,504 and the smallest denormal
    set_scale(6, b, b < 16 ? 0 : 0x0001);            // a slice of zeros
  }
  c.Pack();
  const std::vector<float> want = c.Reference(7);
  const std::vector<float> got = c.Run(Table(), PhasedStep(7, "p").view, 1);
  for (size_t m = 0; m < 7; ++m) {
    EXPECT_EQ(got[m * 20 + 3], 0.0f);
    EXPECT_NEAR(got[m * 20 + 4] / 65504, want[m * 20 + 4] / 65504, 0.05 * 8 * 16);
    EXPECT_NEAR(got[m * 20 + 6] * 0x1p24, want[m * 20 + 6] * 0x1p24, 0.05 * 8 * 39);
  }
}

TEST_F(FoldedLinear, AGroupEqualsItsMembers) {
  PhasedCase q = FastCase(DType::kQ4_0, 48, 256, 40, true);
  PhasedCase k = FastCase(DType::kQ4_K, 19, 256, 40, false);
  PhasedCase v = FastCase(DType::kQ6_K, 7, 256, 40, false);
  LinearGroupArgs group;
  group.count = 3;
  PhasedCase* members[] = {&q, &k, &v};
  for (int i = 0; i < 3; ++i) {
    members[i]->args.x = q.x.data();
    group.linear[i] = members[i]->args;
  }
  for (const int32_t rows : {1, 5, 40}) {
    const PhasedStep step(rows, "ppppg");
    std::vector<std::vector<float>> want;
    for (PhasedCase* c : members) want.push_back(c->Run(Table(), step.view, 1));
    for (int threads = 1; threads <= 5; ++threads) {
      for (PhasedCase* c : members) std::fill(c->y.begin(), c->y.end(), NAN);
      RunAs(KernelFrom(Table(), KernelOp::kLinearGroup, &group), &group, step.view, threads);
      for (size_t i = 0; i < 3; ++i) {
        const auto n = rows * members[i]->w.tensor.rows();
        ExpectSameBits({members[i]->y.begin(), members[i]->y.begin() + n}, want[i],
                       fmt::format("{} of {} rows, {} threads", i, rows, threads));
      }
    }
  }
}

TEST_F(FoldedLinear, GluIsTheActivationOfItsTwoProducts) {
  constexpr int32_t kRows = 37;
  constexpr int64_t kOut = 299;
  for (const int64_t n_in : {608, 2112}) {
    PhasedCase gate = FastCase(DType::kQ4_1, kOut, n_in, kRows, true);
    PhasedCase up = FastCase(DType::kQ5_0, kOut, n_in, kRows, true);
    up.args.x = gate.args.x;
    std::vector<float> y(kRows * kOut);
    const GluLinearArgs args{gate.args, up.args, y.data(), Activation::kRelu};
    for (const int32_t rows : {1, 4, kRows}) {
      const PhasedStep step(rows, "pppgpppppp");
      const std::vector<float> g = gate.Run(Table(), step.view, 1);
      const std::vector<float> u = up.Run(Table(), step.view, 1);
      for (int threads = 1; threads <= 3; ++threads) {
        std::fill(y.begin(), y.end(), NAN);
        RunAs(KernelFrom(Table(), KernelOp::kGluLinear, &args), &args, step.view, threads);
        for (size_t i = 0; i < g.size(); ++i) {
          ASSERT_EQ(y[i], std::max(g[i], 0.0f) * u[i]) << rows << " rows, at " << i;
        }
      }
    }
  }
}

TEST_F(FoldedLinear, ComputesNothingForNoRows) {
  PhasedCase c = FastCase(DType::kQ4_0, 16, 32, 1, false);
  EXPECT_TRUE(c.Run(Table(), PhasedStep(0, "p").view, 2).empty());
  EXPECT_TRUE(std::isnan(c.y[0]));
}

}  // namespace
}  // namespace lucid
#endif  // x86-64
