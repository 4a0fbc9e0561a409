// Linear, LinearGroup and GluLinear of every instruction set against the reference, and the promise
// that a row's bits depend on that row alone.
#include <gtest/gtest.h>

#include "kernels/kernel_test_util.h"

namespace lucid {
namespace {

using namespace testing_util;  // NOLINT: the helpers of these tests

// Every block type that decodes, and the plain types that files store weights in.
std::vector<DType> WeightTypes() {
  std::vector<DType> types = {DType::kF32, DType::kF16, DType::kBF16};
  for (const DTypeInfo& info : AllDTypes()) {
    if (info.decode != nullptr && info.block_elems > 1) types.push_back(info.type);
  }
  return types;
}

// Row lengths that a type allows: a short one, one with a tail for plain types, a longer one.
std::vector<int64_t> Lengths(DType type) {
  const int64_t block = Info(type).block_elems;
  if (block == 1) return {1, 3, 16, 37, 200};
  return {block, 3 * block};
}

struct LinearCase {
  Weights w;
  std::vector<float> x, bias, y;
  LinearArgs args;
  LinearCase(DType type, int64_t n_out, int64_t n_in, int64_t rows, bool with_bias) {
    w = RandomWeights(type, n_out, n_in, static_cast<uint32_t>(n_out + n_in));
    x = RandomFloats(static_cast<size_t>(rows * n_in), 7);
    bias = RandomFloats(static_cast<size_t>(n_out), 8);
    y.assign(static_cast<size_t>(rows * n_out), NAN);
    args = {w.tensor, with_bias ? bias.data() : nullptr, x.data(), y.data(), RowAxis::kTokens};
  }
  double tolerance() const {
    return 1e-5 * std::sqrt(static_cast<double>(w.tensor.cols())) * w.max;
  }
  std::vector<float> Run(const Kernel& kernel, int32_t rows, int threads) {
    std::fill(y.begin(), y.end(), NAN);
    RunAs(kernel, &args, TokensStep(rows), threads);
    return {y.begin(), y.begin() + rows * w.tensor.rows()};
  }
};

TEST(Linear, MatchesTheReferenceForEveryTypeAndShape) {
  for (const std::string& isa : CpuIsas()) {
    for (DType type : WeightTypes()) {
      for (int64_t n_in : Lengths(type)) {
        for (int64_t n_out : {1, 5, 40}) {
          LinearCase c(type, n_out, n_in, 9, n_out == 5);
          const Kernel& kernel = KernelOf(isa, KernelOp::kLinear, &c.args);
          const Kernel& reference = KernelOf("reference", KernelOp::kLinear, &c.args);
          const std::vector<float> want = c.Run(reference, 9, 1);
          ExpectNear(c.Run(kernel, 9, 2), want, 1e-5, c.tolerance(),
                     fmt::format("{} {} [{}, {}]", kernel.name, Name(type), n_out, n_in));
        }
      }
    }
  }
}

TEST(Linear, ARowHasTheSameBitsAloneAndAmongOthersAndForAnyNumberOfThreads) {
  constexpr int32_t kRows = 70;
  for (const std::string& isa : CpuIsas()) {
    for (DType type : WeightTypes()) {
      const int64_t n_in = Lengths(type).back();
      const int64_t n_out = 37;
      LinearCase c(type, n_out, n_in, kRows, true);
      const Kernel& kernel = KernelOf(isa, KernelOp::kLinear, &c.args);
      std::vector<float> alone;  // each row on its own
      for (int32_t r = 0; r < kRows; ++r) {
        c.args.x = c.x.data() + r * n_in;
        const std::vector<float> row = c.Run(kernel, 1, 1);
        alone.insert(alone.end(), row.begin(), row.end());
      }
      c.args.x = c.x.data();
      for (int32_t rows : {1, 2, 3, 4, 5, 6, 7, 13, 33, kRows}) {
        const std::vector<float> want(alone.begin(), alone.begin() + rows * n_out);
        for (int threads = 1; threads <= 5; ++threads) {
          ExpectSameBits(
              c.Run(kernel, rows, threads), want,
              fmt::format("{} {} rows {} threads {}", kernel.name, Name(type), rows, threads));
        }
      }
    }
  }
}

TEST(Linear, ComputesNothingForNoRows) {
  for (const std::string& isa : CpuIsas()) {
    LinearCase c(DType::kF32, 8, 16, 1, false);
    EXPECT_TRUE(c.Run(KernelOf(isa, KernelOp::kLinear, &c.args), 0, 2).empty());
    EXPECT_TRUE(std::isnan(c.y[0]));
  }
}

TEST(Linear, LongRowsAndManyColumnsSpanSeveralPanels) {
  for (const std::string& isa : CpuIsas()) {
    LinearCase c(DType::kQ4_K, 70, 256 * 40, 8, false);
    const Kernel& kernel = KernelOf(isa, KernelOp::kLinear, &c.args);
    const std::vector<float> want = c.Run(KernelOf("reference", KernelOp::kLinear, &c.args), 8, 1);
    ExpectNear(c.Run(kernel, 8, 2), want, 1e-5, c.tolerance(), kernel.name);
  }
}

TEST(LinearGroup, EqualsItsMembers) {
  for (const std::string& isa : CpuIsas()) {
    LinearCase q(DType::kQ4_0, 48, 64, 5, true);
    LinearCase k(DType::kF16, 19, 64, 5, false);
    LinearCase v(DType::kQ8_0, 7, 64, 5, false);
    LinearGroupArgs group;
    group.count = 3;
    group.linear[0] = q.args;
    group.linear[1] = k.args;
    group.linear[2] = v.args;
    const Kernel& linear = KernelOf(isa, KernelOp::kLinear, &q.args);
    const Kernel& kernel = KernelOf(isa, KernelOp::kLinearGroup, &group);
    for (LinearCase* c : {&k, &v}) c->args.x = q.args.x;
    group.linear[1].x = group.linear[2].x = q.args.x;
    for (int32_t rows : {1, 5}) {
      std::vector<std::vector<float>> want;
      for (LinearCase* c : {&q, &k, &v}) want.push_back(c->Run(linear, rows, 1));
      for (int threads = 1; threads <= 5; ++threads) {
        for (LinearCase* c : {&q, &k, &v}) std::fill(c->y.begin(), c->y.end(), NAN);
        RunAs(kernel, &group, TokensStep(rows), threads);
        size_t i = 0;
        for (LinearCase* c : {&q, &k, &v}) {
          const std::vector<float> got(c->y.begin(), c->y.begin() + rows * c->w.tensor.rows());
          ExpectSameBits(got, want[i++], kernel.name);
        }
      }
    }
  }
}

TEST(GluLinear, MatchesTheReferenceAndKeepsARowsBits) {
  for (const std::string& isa : CpuIsas()) {
    for (Activation act : {Activation::kSilu, Activation::kGeluTanh, Activation::kGeluErf,
                           Activation::kRelu, Activation::kSigmoid}) {
      constexpr int32_t kRows = 11;
      LinearCase gate(DType::kQ4_1, 75, 96, kRows, true);
      LinearCase up(DType::kQ5_0, 75, 96, kRows, true);
      std::vector<float> y(kRows * 75);
      GluLinearArgs args{gate.args, up.args, y.data(), act};
      args.up.x = args.gate.x;
      RunAs(KernelOf("reference", KernelOp::kGluLinear, &args), &args, TokensStep(kRows), 1);
      const std::vector<float> want = y;
      float largest = 0;
      for (float v : want) largest = std::max(largest, std::fabs(v));
      const Kernel& kernel = KernelOf(isa, KernelOp::kGluLinear, &args);
      RunAs(kernel, &args, TokensStep(kRows), 1);
      const std::vector<float> all = y;
      ExpectNear(all, want, 1e-5, 1e-5 * largest, kernel.name);
      for (int32_t rows : {1, 2, 5, kRows}) {
        for (int threads = 1; threads <= 5; ++threads) {
          std::fill(y.begin(), y.end(), NAN);
          RunAs(kernel, &args, TokensStep(rows), threads);
          ExpectSameBits({y.begin(), y.begin() + rows * 75}, {all.begin(), all.begin() + rows * 75},
                         kernel.name);
        }
      }
    }
  }
}

}  // namespace
}  // namespace lucid
