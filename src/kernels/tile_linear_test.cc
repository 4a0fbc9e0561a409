// Linears of packed weights on tiles, for each table that this machine can run: over emulated tiles
// everywhere, and over those of the CPU where it has AMX (else that instance of each test says why
// it is skipped). A prompt's row is compared with the sum written out in its order, to the bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/cpu_features.h"
#include "kernels/cpu/emulated_tables.h"
#include "kernels/cpu/tables.h"
#include "kernels/kernel_test_util.h"
#include "kernels/packed.h"
#include "kernels/phase_test_util.h"

namespace lucid {
namespace {

using namespace testing_util;  // NOLINT: the helpers of these tests

struct TileTable {
  const char* name;
  const KernelTable& (*get)();
  const KernelTable& (*replies)();
  std::string_view needs;
};
constexpr TileTable kTileTables[] = {
    {"emulated_generic", GenericTileKernels, GenericKernels, ""},
#if defined(__x86_64__)
    {"emulated_avx512", Avx512TileKernels, Avx512VnniKernels, kNeedsAvx512Bf16},
    {"amx", AmxKernels, Avx512VnniKernels, kNeedsAmx},
#endif
};
void PrintTo(const TileTable& table, std::ostream* out) {
  *out << table.name;
}

class TileLinear : public testing::TestWithParam<TileTable> {
 protected:
  void SetUp() override {
    const std::string unavailable = WhyUnavailable(GetParam().needs);
    if (!unavailable.empty()) GTEST_SKIP() << GetParam().name << " cannot run: " << unavailable;
  }
  static const KernelTable& Table() { return GetParam().get(); }
};
INSTANTIATE_TEST_SUITE_P(On, TileLinear, testing::ValuesIn(kTileTables),
                         [](const auto& param) { return std::string(param.param.name); });

// Some scales of MXFP4 make denormal numbers.
float Flush(float x) {
  return std::fabs(x) < 0x1p-126f ? 0.0f : x;
}
// To the nearest bfloat16, ties to even; finite numbers.
float Bf16(float x) {
  x = Flush(x);
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  bits = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

// What a prompt's row is defined as.
std::vector<float> Defined(const PhasedCase& c, int64_t rows) {
  const int64_t n_in = c.w.tensor.cols();
  const int64_t n_out = c.w.tensor.rows();
  std::vector<float> w(static_cast<size_t>(n_in));
  std::vector<float> out(static_cast<size_t>(rows * n_out));
  std::vector<float> x(static_cast<size_t>(rows * n_in));
  for (size_t i = 0; i < x.size(); ++i) x[i] = Bf16(c.x[i]);
  for (int64_t n = 0; n < n_out; ++n) {
    DecodePackedRow(c.w.tensor.dtype, c.packed.data(), n_in, n, w.data());
    for (float& value : w) value = Bf16(value);
    for (int64_t m = 0; m < rows; ++m) {
      const float* a = x.data() + m * n_in;
      float sum = 0;
      for (int64_t k = 0; k < n_in; k += 32) {
        float even = 0;
        float odd = 0;
        for (int64_t i = k; i < k + 32; i += 2) {
          even = Flush(std::fma(a[i], w[static_cast<size_t>(i)], even));
          odd = Flush(std::fma(a[i + 1], w[static_cast<size_t>(i + 1)], odd));
        }
        sum = Flush(sum + Flush(even + odd));
      }
      if (c.args.bias != nullptr) sum += c.bias[static_cast<size_t>(n)];
      out[static_cast<size_t>(m * n_out + n)] = sum;
    }
  }
  return out;
}

TEST_P(TileLinear, APromptsRowIsTheSumInItsOrderForEveryTypeAndShape) {
  for (const DType type : QuantisedPackedTypes()) {
    const int64_t unit = Info(type).block_elems;
    // One block; a tail of a tile of 256; more than are unpacked at a time.
    for (const int64_t n_in : {unit, unit == 32 ? 18 * unit : 3 * unit, 2048 + 2 * unit}) {
      for (const int64_t n_out : {1, 37, 150}) {
        const int32_t rows = n_out == 1 ? 45 : n_out == 37 ? 17 : 5;
        PhasedCase c(type, n_out, n_in, rows, n_out == 37);
        const std::vector<float> got = c.Run(Table(), PhasedStep(rows, "p").view, 2);
        const std::string what = fmt::format("{} [{}, {}] x {}", Name(type), n_out, n_in, rows);
        ExpectSameBits(got, Defined(c, rows), what);
        // Two roundings to 8 bits for each product.
        const double tolerance =
            std::ldexp(1.0, -6) * std::sqrt(static_cast<double>(n_in)) * c.w.max;
        ExpectNear(got, c.Reference(rows), 0, tolerance, what);
      }
    }
  }
}

TEST_P(TileLinear, ARowHasTheSameBitsAloneAndAmongOthersAndForAnyNumberOfThreads) {
  constexpr int32_t kRows = 70;
  constexpr int64_t kOut = 77;
  for (const DType type : QuantisedPackedTypes()) {
    const int64_t n_in = Info(type).block_elems == 32 ? 32 * 67 : 256 * 9;
    PhasedCase c(type, kOut, n_in, kRows, true);
    // Runs of both phases, of every kind of tail.
    PhasedStep step(kRows,
                    "ggpppppppppppppppppppppppppppppppppppppppppppgggggggpgpppppppppppppppp");
    const std::vector<float> alone = c.RunRows(Table(), step.view);
    for (const int32_t rows : {1, 2, 3, 19, 50, kRows}) {
      step.view.n_tokens = rows;
      const std::vector<float> want(alone.begin(), alone.begin() + rows * kOut);
      for (const int threads : {1, 3}) {
        ExpectSameBits(c.Run(Table(), step.view, threads), want,
                       fmt::format("{} rows {} threads {}", Name(type), rows, threads));
      }
    }
  }
}

TEST_P(TileLinear, ARowHasTheSameBitsForAnyNumberOfRows) {
  constexpr int32_t kRows = 70;
  PhasedCase c(DType::kQ4_K, 33, 512, kRows, false);
  const PhasedStep all(kRows, "p");
  const std::vector<float> alone = c.RunRows(Table(), all.view);
  for (int32_t rows = 1; rows <= kRows; ++rows) {
    const std::vector<float> want(alone.begin(), alone.begin() + rows * 33);
    ExpectSameBits(c.Run(Table(), PhasedStep(rows, "p").view, 2), want, std::to_string(rows));
  }
}

TEST_P(TileLinear, RowsOfRepliesAndOfLogitsAreThoseOfTheIntegerKernels) {
  constexpr int32_t kRows = 21;
  PhasedCase c(DType::kQ5_0, 53, 480, kRows, true);
  const PhasedStep replies(kRows, "g");
  const std::vector<float> want = c.Run(GetParam().replies(), replies.view, 1);
  ExpectSameBits(c.Run(Table(), replies.view, 2), want, "all of replies");
  const PhasedStep mixed(kRows, "gppgg");
  const std::vector<float> got = c.Run(Table(), mixed.view, 2);
  for (int32_t r = 0; r < kRows; ++r) {
    if (mixed.phases[static_cast<size_t>(r)] == Phase::kPrompt) continue;
    ExpectSameBits({got.begin() + r * 53, got.begin() + (r + 1) * 53},
                   {want.begin() + r * 53, want.begin() + (r + 1) * 53}, std::to_string(r));
  }
  c.args.rows = RowAxis::kOutputs;
  PhasedStep logits(kRows, "p");
  logits.view.n_outputs = kRows;
  ExpectSameBits(c.Run(Table(), logits.view, 2), want, "logits");
}

TEST_P(TileLinear, AllTablesAgreeToTheBit) {
  for (const DType type : QuantisedPackedTypes()) {
    PhasedCase c(type, 48, 768, 35, true);
    const PhasedStep step(35, "p");
    ExpectSameBits(c.Run(Table(), step.view, 1), c.Run(GenericTileKernels(), step.view, 1),
                   std::string(Name(type)));
  }
}

TEST_P(TileLinear, ARowThatIsNoNumberSpoilsNoOther) {
  for (const float bad : {NAN, INFINITY, -INFINITY, 3.4e38f}) {
    PhasedCase c(DType::kQ4_K, 20, 512, 8, false);
    const PhasedStep step(8, "pppppppg");
    const std::vector<float> want = c.Run(Table(), step.view, 1);
    c.x[3 * 512 + 100] = bad;
    const std::vector<float> got = c.Run(Table(), step.view, 1);
    for (size_t i = 0; i < got.size(); ++i) {
      if (i / 20 == 3) {
        EXPECT_FALSE(std::isfinite(got[i])) << bad;
      } else {
        EXPECT_EQ(got[i], want[i]) << bad;
      }
    }
  }
}

TEST_P(TileLinear, TakesZerosDenormalsAndExtremeScales) {
  PhasedCase c(DType::kQ4_0, 16, 128, 4, false);
  for (int64_t i = 0; i < 128; ++i) {
    c.x[static_cast<size_t>(i)] = 0.0f;
    c.x[static_cast<size_t>(128 + i)] = i % 2 == 0 ? 1e-41f : -1.17e-38f;
    c.x[static_cast<size_t>(256 + i)] *= 1e30f;
    c.x[static_cast<size_t>(384 + i)] *= i < 32 ? 1e10f : 1e-10f;
  }
  const std::vector<float> got = c.Run(Table(), PhasedStep(4, "p").view, 1);
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(got[i], 0.0f);
  const std::vector<float> want = Defined(c, 4);
  ExpectSameBits({got.begin() + 32, got.end()}, {want.begin() + 32, want.end()}, "large values");
}

TEST_P(TileLinear, AGroupEqualsItsMembers) {
  PhasedCase q(DType::kQ4_0, 48, 256, 40, true);
  PhasedCase k(DType::kQ4_K, 19, 256, 40, false);
  PhasedCase v(DType::kQ6_K, 7, 256, 40, false);
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

TEST_P(TileLinear, GluIsTheActivationOfItsTwoProducts) {
  constexpr int32_t kRows = 37;
  constexpr int64_t kOut = 299, kIn = 2112;
  PhasedCase gate(DType::kQ4_1, kOut, kIn, kRows, true);
  PhasedCase up(DType::kQ5_0, kOut, kIn, kRows, true);
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

TEST_P(TileLinear, ComputesNothingForNoRows) {
  PhasedCase c(DType::kQ4_0, 16, 32, 1, false);
  EXPECT_TRUE(c.Run(Table(), PhasedStep(0, "p").view, 2).empty());
  EXPECT_TRUE(std::isnan(c.y[0]));
}

TEST_P(TileLinear, RefusesWeightsThatAreNotPacked) {
  PhasedCase c(DType::kQ4_0, 16, 32, 1, false);
  c.args.packed = nullptr;
  const GluLinearArgs glu{c.args, c.args, c.y.data(), Activation::kRelu};
  LinearGroupArgs group;
  group.count = 1;
  group.linear[0] = c.args;
  const void* args[] = {&c.args, &group, &glu};
  ASSERT_EQ(Table().kernels.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const char* reason = Table().kernels[i].refuse(args[i]);
    ASSERT_NE(reason, nullptr);
    EXPECT_EQ(std::string_view(reason).substr(0, 20), "wants packed weights");
  }
}

}  // namespace
}  // namespace lucid
