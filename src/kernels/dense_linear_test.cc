// Linear, LinearGroup and GluLinear of packed plain weights (F32, F16, BF16) on every instruction
// set: close to the reference, a row's bits a function of that row, and the same bits on all
// instruction sets with fused multiply-add.
#include <gtest/gtest.h>

#include "kernels/kernel_test_util.h"
#include "kernels/packed.h"

namespace lucid {
namespace {

using namespace testing_util;  // NOLINT: the helpers of these tests

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
// Multiplies bfloat16 pairs, with activations rounded to bfloat16.
constexpr std::string_view kPairsKernel = "dense_linear.avx512bf16";

struct DenseCase {
  Weights w;
  std::vector<std::byte> packed;
  std::vector<float> x, bias, y;
  LinearArgs args;
  DenseCase(DType type, int64_t n_out, int64_t n_in, int64_t rows, bool with_bias) {
    w = RandomWeights(type, n_out, n_in, static_cast<uint32_t>(n_out + n_in));
    packed.resize(static_cast<size_t>(PackedBytes(w.tensor)) + 1);
    PackStrips(w.tensor, 0, (n_out + kStripRows - 1) / kStripRows, packed.data() + 1);
    x = RandomFloats(static_cast<size_t>(rows * n_in), 7);
    bias = RandomFloats(static_cast<size_t>(n_out), 8);
    y.assign(static_cast<size_t>(rows * n_out), NAN);
    args.w = w.tensor;
    args.packed = packed.data() + 1;
    args.bias = with_bias ? bias.data() : nullptr;
    args.x = x.data();
    args.y = y.data();
  }
  const Kernel& KernelFor(std::string_view isa) const {
    return KernelOf(isa, KernelOp::kLinear, &args);
  }
  std::vector<float> Run(std::string_view isa, int32_t rows, int threads) {
    std::fill(y.begin(), y.end(), NAN);
    RunAs(KernelFor(isa), &args, TokensStep(rows), threads);
    return {y.begin(), y.begin() + rows * w.tensor.rows()};
  }
  // With the activations that the kernel of `isa` multiplies with.
  std::vector<float> Reference(std::string_view isa, int32_t rows) {
    std::vector<float> rounded = x;
    if (KernelFor(isa).name == kPairsKernel) {
      const DTypeInfo& bf16 = Info(DType::kBF16);
      std::vector<std::byte> halves(2 * x.size());
      bf16.encode(x.data(), halves.data(), static_cast<int64_t>(x.size()));
      bf16.decode(halves.data(), rounded.data(), static_cast<int64_t>(x.size()));
    }
    LinearArgs plain = args;
    plain.packed = nullptr;
    plain.x = rounded.data();
    std::fill(y.begin(), y.end(), NAN);
    RunAs(KernelOf("reference", KernelOp::kLinear, &plain), &plain, TokensStep(rows), 1);
    return {y.begin(), y.begin() + rows * w.tensor.rows()};
  }
  // Of a sum of n_in products, each rounded by 2^-24 of the sum so far.
  double tolerance() const {
    return std::ldexp(1.0, -20) * std::sqrt(static_cast<double>(w.tensor.cols())) * w.max;
  }
};

TEST(DenseLinear, EveryCpuSetHasItsKernels) {
  for (const std::string& isa : CpuIsas()) {
    for (const DType type : kTypes) {
      const DenseCase c(type, 16, 32, 1, false);
      const std::string name = c.KernelFor(isa).name;
      EXPECT_EQ(name.rfind("dense_linear.", 0), 0u) << name;
      if (isa == "avx512bf16") {
        EXPECT_EQ(name == kPairsKernel, type == DType::kBF16) << name;
      }
    }
  }
}

TEST(DenseLinear, ExactActivationsAreNotRounded) {
  for (const std::string& isa : CpuIsas()) {
    DenseCase c(DType::kBF16, 21, 300, 3, false);
    c.args.exact = true;
    const std::vector<float> want = c.Reference(isa, 3);
    ExpectNear(c.Run(isa, 3, 1), want, 1e-5, c.tolerance(), c.KernelFor(isa).name);
  }
}

TEST(DenseLinear, MatchesTheReferenceForEveryTypeAndShape) {
  for (const std::string& isa : CpuIsas()) {
    for (const DType type : kTypes) {
      for (const int64_t n_in : {1, 2, 3, 33, 64, 511, 576, 1027, 1536}) {
        for (const int64_t n_out : {1, 37, 130}) {
          for (const int32_t rows : {1, 3, 29}) {
            DenseCase c(type, n_out, n_in, rows, n_out == 37);
            const std::vector<float> want = c.Reference(isa, rows);
            ExpectNear(c.Run(isa, rows, 2), want, 1e-5, c.tolerance(),
                       fmt::format("{} {} [{}, {}] x {}", isa, Name(type), n_out, n_in, rows));
          }
        }
      }
    }
  }
}

TEST(DenseLinear, ARowHasTheSameBitsAloneAndAmongOthersAndForAnyNumberOfThreads) {
  constexpr int32_t kRows = 70;
  constexpr int64_t kOut = 149;
  for (const std::string& isa : CpuIsas()) {
    for (const DType type : kTypes) {
      for (const int64_t n_in : {45, 1033}) {
        DenseCase c(type, kOut, n_in, kRows, true);
        std::vector<float> alone;
        for (int32_t r = 0; r < kRows; ++r) {
          c.args.x = c.x.data() + r * n_in;
          const std::vector<float> row = c.Run(isa, 1, 1);
          alone.insert(alone.end(), row.begin(), row.end());
        }
        c.args.x = c.x.data();
        for (const int32_t rows : {1, 2, 3, 4, 5, 6, 7, 12, 13, 33, kRows}) {
          const std::vector<float> want(alone.begin(), alone.begin() + rows * kOut);
          for (const int threads : {1, 2, 3, 5}) {
            ExpectSameBits(c.Run(isa, rows, threads), want,
                           fmt::format("{} {} rows {} threads {}", isa, Name(type), rows, threads));
          }
        }
      }
    }
  }
}

TEST(DenseLinear, InstructionSetsWithFusedMultiplyAddAgreeToTheBit) {
  for (const DType type : kTypes) {
    DenseCase c(type, 48, 770, 9, true);
    c.args.exact = true;
    std::vector<float> want;
    for (const std::string& isa : CpuIsas()) {
      if (isa == "generic") continue;
      const std::vector<float> got = c.Run(isa, 9, 1);
      if (!want.empty()) ExpectSameBits(got, want, fmt::format("{} {}", isa, Name(type)));
      want = got;
    }
  }
}

TEST(DenseLinear, ARowThatIsNoNumberSpoilsNoOther) {
  for (const std::string& isa : CpuIsas()) {
    for (const DType type : kTypes) {
      for (const float bad : {NAN, INFINITY, -INFINITY}) {
        DenseCase c(type, 20, 515, 8, false);
        const std::vector<float> want = c.Run(isa, 8, 1);
        c.x[3 * 515 + 100] = bad;
        c.x[3 * 515 + 514] = bad;
        const std::vector<float> got = c.Run(isa, 8, 1);
        for (size_t i = 0; i < got.size(); ++i) {
          if (i / 20 == 3) {
            EXPECT_FALSE(std::isfinite(got[i])) << isa;
          } else {
            EXPECT_EQ(got[i], want[i]) << isa;
          }
        }
      }
    }
  }
}

TEST(DenseLinear, TakesZerosDenormalsAndExtremeScales) {
  constexpr int64_t kIn = 129;
  for (const std::string& isa : CpuIsas()) {
    for (const DType type : kTypes) {
      DenseCase c(type, 16, kIn, 4, false);
      for (size_t i = 0; i < kIn; ++i) {
        c.x[i] = 0.0f;
        c.x[kIn + i] = 1e-41f;
        c.x[2 * kIn + i] *= 1e30f;
        c.x[3 * kIn + i] *= i < 32 ? 1e10f : 1e-10f;
      }
      const std::vector<float> want = c.Reference(isa, 4);
      const std::vector<float> got = c.Run(isa, 4, 1);
      for (size_t i = 0; i < 16; ++i) EXPECT_EQ(got[i], 0.0f) << isa;
      for (size_t i = 16; i < 32; ++i) EXPECT_NEAR(got[i], 0.0f, 1e-37f) << isa;
      for (size_t i = 32; i < 64; ++i) {
        const double scale = i < 48 ? 1e30 : 1e10;
        EXPECT_NEAR(got[i] / scale, want[i] / scale, c.tolerance()) << isa;
      }
    }
  }
}

TEST(DenseLinearGroup, EqualsItsMembers) {
  for (const std::string& isa : CpuIsas()) {
    for (const bool mixed : {false, true}) {
      DenseCase q(DType::kBF16, 150, 257, 15, true);
      DenseCase k(mixed ? DType::kF16 : DType::kBF16, 19, 257, 15, false);
      DenseCase v(mixed ? DType::kF32 : DType::kBF16, 7, 257, 15, false);
      LinearGroupArgs group;
      group.count = 3;
      DenseCase* members[] = {&q, &k, &v};
      for (int i = 0; i < 3; ++i) {
        members[i]->args.x = q.x.data();
        // One kernel takes all members, and not all of these are bfloat16.
        members[i]->args.exact = mixed;
        group.linear[i] = members[i]->args;
      }
      for (const int32_t rows : {1, 5, 15}) {
        std::vector<std::vector<float>> want;
        for (DenseCase* c : members) want.push_back(c->Run(isa, rows, 1));
        for (int threads = 1; threads <= 5; ++threads) {
          for (DenseCase* c : members) std::fill(c->y.begin(), c->y.end(), NAN);
          const Kernel& kernel = KernelOf(isa, KernelOp::kLinearGroup, &group);
          EXPECT_EQ(std::string(kernel.name).rfind("dense_linear_group.", 0), 0u) << kernel.name;
          RunAs(kernel, &group, TokensStep(rows), threads);
          for (size_t i = 0; i < 3; ++i) {
            const auto n = rows * members[i]->w.tensor.rows();
            ExpectSameBits({members[i]->y.begin(), members[i]->y.begin() + n}, want[i],
                           kernel.name);
          }
        }
      }
    }
  }
}

TEST(DenseGluLinear, IsTheActivationOfItsTwoProducts) {
  constexpr int32_t kRows = 31;
  constexpr int64_t kOut = 75, kIn = 1029;
  for (const std::string& isa : CpuIsas()) {
    for (const DType type : kTypes) {
      DenseCase gate(type, kOut, kIn, kRows, true);
      DenseCase up(type, kOut, kIn, kRows, true);
      up.args.x = gate.args.x;
      up.bias[0] = -3.0f;
      std::vector<float> y(kRows * kOut);
      const GluLinearArgs args{gate.args, up.args, y.data(), Activation::kRelu};
      const Kernel& kernel = KernelOf(isa, KernelOp::kGluLinear, &args);
      EXPECT_EQ(std::string(kernel.name).rfind("dense_glu_linear.", 0), 0u) << kernel.name;
      for (const int32_t rows : {1, 4, kRows}) {
        const std::vector<float> g = gate.Run(isa, rows, 1);
        const std::vector<float> u = up.Run(isa, rows, 1);
        for (int threads = 1; threads <= 4; ++threads) {
          std::fill(y.begin(), y.end(), NAN);
          RunAs(kernel, &args, TokensStep(rows), threads);
          for (size_t i = 0; i < g.size(); ++i) {
            ASSERT_EQ(y[i], std::max(g[i], 0.0f) * u[i]) << kernel.name << " at " << i;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace lucid
