// Norms, rope, activations and the other small ops of every instruction set against the reference
// kernels; component_test.cc compares them with the fixtures.
#include <gtest/gtest.h>

#include "kernels/kernel_test_util.h"

namespace lucid {
namespace {

using namespace testing_util;  // NOLINT: the helpers of these tests

// Runs `op` with args made by make(y) for each instruction set and thread count: near the
// reference, and the same bits for any number of threads.
template <typename MakeArgs>
void CompareWithReference(KernelOp op, const StepView& step, size_t n_out, double relative,
                          double absolute, MakeArgs make) {
  std::vector<float> want(n_out);
  const auto reference_args = make(want.data());
  RunAs(KernelOf("reference", op, &reference_args), &reference_args, step, 1);
  for (const std::string& isa : CpuIsas()) {
    std::vector<float> first;
    for (int threads = 1; threads <= 5; ++threads) {
      std::vector<float> y(n_out, NAN);
      const auto args = make(y.data());
      RunAs(KernelOf(isa, op, &args), &args, step, threads);
      if (threads == 1) {
        first = y;
        ExpectNear(y, want, relative, absolute, fmt::format("{} {}", isa, Name(op)));
      }
      ExpectSameBits(y, first, fmt::format("{} {} threads {}", isa, Name(op), threads));
    }
  }
}

constexpr int64_t kDims[] = {1, 3, 16, 31, 64, 576, 1000};

TEST(RmsNorm, MatchesTheReference) {
  for (int64_t dim : kDims) {
    for (int64_t groups : {1, 3}) {
      const int64_t width = dim * groups;
      const auto x = RandomFloats(static_cast<size_t>(4 * width), 1, 3.0f);
      const auto weight = RandomFloats(static_cast<size_t>(dim), 2);
      for (const float* w : {weight.data(), static_cast<const float*>(nullptr)}) {
        CompareWithReference(
            KernelOp::kRmsNorm, TokensStep(4), x.size(), 1e-6, 1e-9,
            [&](float* y) { return RmsNormArgs{x.data(), w, y, width, dim, 1e-5f}; });
      }
    }
  }
}

TEST(LayerNorm, MatchesTheReferenceWithSharedAndOwnWeights) {
  for (int64_t dim : kDims) {
    for (int64_t groups : {1, 3}) {
      const int64_t width = dim * groups;
      const auto x = RandomFloats(static_cast<size_t>(4 * width), 1, 3.0f);
      const auto weight = RandomFloats(static_cast<size_t>(width), 2);
      const auto bias = RandomFloats(static_cast<size_t>(width), 3);
      for (const bool own : {false, true}) {
        for (const float* w : {weight.data(), static_cast<const float*>(nullptr)}) {
          for (const float* b : {bias.data(), static_cast<const float*>(nullptr)}) {
            CompareWithReference(
                KernelOp::kLayerNorm, TokensStep(4), x.size(), 1e-5, 2e-6,
                [&](float* y) { return LayerNormArgs{x.data(), w, b, y, width, dim, own, 1e-5f}; });
          }
        }
      }
    }
  }
}

TEST(AddRmsNorm, MatchesTheReferenceAlsoInPlace) {
  for (int64_t dim : kDims) {
    const auto n = static_cast<size_t>(3 * dim);
    const auto x = RandomFloats(n, 1);
    const auto residual = RandomFloats(n, 2);
    const auto weight = RandomFloats(static_cast<size_t>(dim), 3);
    std::vector<float> sum(n);
    CompareWithReference(KernelOp::kAddRmsNorm, TokensStep(3), n, 1e-6, 1e-7, [&](float* y) {
      sum = x;  // `sum` may alias either operand
      return AddRmsNormArgs{sum.data(), residual.data(), sum.data(), weight.data(), y, dim, 1e-6f};
    });
    for (size_t i = 0; i < n; ++i) EXPECT_EQ(sum[i], x[i] + residual[i]);
  }
}

TEST(Rope, MatchesTheReferenceAtShortAndLongPositions) {
  const std::vector<int32_t> positions = {0, 1, 17, 4095, 131071, 1000000};
  StepView step = TokensStep(static_cast<int32_t>(positions.size()));
  step.positions = positions.data();
  for (RopeStyle style : {RopeStyle::kHalfSplit, RopeStyle::kInterleaved}) {
    for (auto [head_dim, rotary_dim] : {std::pair{64, 64}, {16, 6}, {80, 32}, {128, 128}, {2, 2}}) {
      std::vector<float> inv_freq;
      for (int i = 0; i < rotary_dim; i += 2) {
        inv_freq.push_back(
            std::pow(10000.0f, -static_cast<float>(i) / static_cast<float>(rotary_dim)));
      }
      const auto x = RandomFloats(positions.size() * 3 * static_cast<size_t>(head_dim), 4);
      const auto weight = RandomFloats(static_cast<size_t>(head_dim), 5);
      const auto rope = [&](float* y) {
        return RopeArgs{x.data(), y, inv_freq.data(), 3, head_dim, 0, rotary_dim, 1.25f, style};
      };
      CompareWithReference(KernelOp::kRope, step, x.size(), 1e-6, 2e-6, rope);
      CompareWithReference(KernelOp::kNormRope, step, x.size(), 1e-6, 4e-6, [&](float* y) {
        return NormRopeArgs{
            {x.data(), weight.data(), nullptr, int64_t{3} * head_dim, head_dim, 1e-6f}, rope(y)};
      });
      CompareWithReference(KernelOp::kRope, step, x.size(), 1e-6, 2e-6, [&](float* y) {
        std::copy(x.begin(), x.end(), y);
        RopeArgs in_place = rope(y);
        in_place.x = y;
        return in_place;
      });
    }
  }
}

// Frequencies of sequences that are longer than the limit.
TEST(Rope, MatchesTheReferenceWhereLengthsCount) {
  const std::vector<int32_t> positions = {0, 1, 17, 40, 63, 64, 200};
  const std::vector<int32_t> lengths = {64, 65, 18, 4000, 64, 65, 201};
  StepView step = TokensStep(static_cast<int32_t>(positions.size()));
  step.positions = positions.data();
  const auto x = RandomFloats(positions.size() * 2 * 16, 4);
  const auto short_freq = std::vector<float>{1.0f, 0.3f, 0.1f, 0.03f, 0.01f, 0.003f};
  const auto long_freq = std::vector<float>{0.9f, 0.2f, 0.05f, 0.01f, 0.003f, 0.0005f};
  for (const RopeStretch& stretch :
       {RopeStretch{64, long_freq.data(), 1.0}, RopeStretch{64, nullptr, 4.0}}) {
    for (const int32_t* known : {lengths.data(), static_cast<const int32_t*>(nullptr)}) {
      step.rope_lengths = known;
      CompareWithReference(KernelOp::kRope, step, x.size(), 1e-6, 2e-6, [&](float* y) {
        RopeArgs args;
        args.x = x.data();
        args.y = y;
        args.inv_freq = short_freq.data();
        args.n_heads = 2;
        args.head_dim = 16;
        args.rotary_dim = 12;
        args.attn_factor = 1.25f;
        args.stretch = stretch;
        return args;
      });
    }
  }
}

TEST(Glu, MatchesTheReferenceForEveryActivationOverTheWholeRange) {
  std::vector<float> gate;
  for (float v = -120.0f; v < 120.0f; v += 0.0371f) gate.push_back(v);
  for (float v : {0.0f, -0.0f, 1e-30f, -1e-30f, 1e-8f, 3e4f, -3e4f}) gate.push_back(v);
  const std::vector<float> up(gate.size(), 1.0f);
  const auto dim = static_cast<int64_t>(gate.size());
  for (Activation act :
       {Activation::kSilu, Activation::kGeluTanh, Activation::kGeluErf, Activation::kGeluQuick,
        Activation::kRelu, Activation::kReluSquared, Activation::kSigmoid}) {
    CompareWithReference(KernelOp::kGlu, TokensStep(1), gate.size(), 1e-6, 5e-7, [&](float* y) {
      return GluArgs{gate.data(), up.data(), y, dim, act};
    });
    CompareWithReference(KernelOp::kActivate, TokensStep(1), gate.size(), 1e-6, 5e-7,
                         [&](float* y) {
                           return ActivateArgs{gate.data(), y, dim, act};
                         });
  }
}

TEST(Clamp, CutsAtBothEndsAndKeepsNaN) {
  const std::vector<float> x = {-3.0f, -1.5f, -1.25f, 0.0f, 1.5f, 1e30f, NAN, INFINITY};
  const std::vector<float> want = {-1.5f, -1.5f, -1.25f, 0.0f, 1.5f, 1.5f, NAN, 1.5f};
  for (const std::string& isa : AllIsas()) {
    std::vector<float> y(x.size());
    const ClampArgs args{x.data(), y.data(), static_cast<int64_t>(x.size()), 1.5f};
    RunAs(KernelOf(isa, KernelOp::kClamp, &args), &args, TokensStep(1), 2);
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_TRUE(y[i] == want[i] || (std::isnan(y[i]) && std::isnan(want[i]))) << isa << " " << i;
    }
  }
}

TEST(Softcap, MatchesTheReferenceDownToSmallValues) {
  std::vector<float> x;
  for (float v = -300.0f; v < 300.0f; v += 0.173f) x.push_back(v);
  for (float v = 1e-6f; v < 1.0f; v *= 1.7f) x.push_back(v);
  for (float cap : {5.0f, 30.0f, 50.0f}) {
    CompareWithReference(KernelOp::kSoftcap, TokensStep(1), x.size(), 4e-7, 1e-12, [&](float* y) {
      return SoftcapArgs{x.data(), y, static_cast<int64_t>(x.size()), cap};
    });
  }
}

TEST(AddAndScale, AreExact) {
  for (int64_t dim : kDims) {
    const auto a = RandomFloats(static_cast<size_t>(5 * dim), 1);
    const auto b = RandomFloats(static_cast<size_t>(5 * dim), 2);
    CompareWithReference(KernelOp::kAdd, TokensStep(5), a.size(), 0, 0, [&](float* y) {
      return AddArgs{a.data(), b.data(), y, dim};
    });
    CompareWithReference(KernelOp::kScale, TokensStep(5), a.size(), 0, 0, [&](float* y) {
      return ScaleArgs{a.data(), y, dim, 1.7f};
    });
  }
}

TEST(EmbedAndGatherRows, PickRows) {
  const Weights table = RandomWeights(DType::kQ8_0, 10, 64, 3);
  const std::vector<int32_t> tokens = {9, 0, 4, 4};
  const std::vector<int32_t> wanted = {1, 3};
  StepView step = TokensStep(4);
  step.tokens = tokens.data();
  step.n_outputs = 2;
  step.output_rows = wanted.data();
  std::vector<float> y(4 * 64);
  const EmbedArgs embed{table.tensor, y.data(), 2.0f};
  RunAs(KernelOf("reference", KernelOp::kEmbed, &embed), &embed, step, 3);
  std::vector<float> row(64);
  for (size_t t = 0; t < tokens.size(); ++t) {
    Info(DType::kQ8_0).decode(table.tensor.row(tokens[t]), row.data(), 64);
    for (size_t i = 0; i < 64; ++i) ASSERT_EQ(y[t * 64 + i], 2.0f * row[i]);
  }
  std::vector<float> rows(2 * 64);
  const GatherRowsArgs gather{y.data(), rows.data(), 64};
  RunAs(KernelOf("reference", KernelOp::kGatherRows, &gather), &gather, step, 3);
  ExpectSameBits({rows.begin(), rows.begin() + 64}, {y.begin() + 64, y.begin() + 128}, "row 1");
  ExpectSameBits({rows.begin() + 64, rows.end()}, {y.begin() + 192, y.end()}, "row 3");
}

}  // namespace
}  // namespace lucid
