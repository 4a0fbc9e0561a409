// Norms, rope, activations and the other small ops of every instruction set against the reference
// kernels and the fixtures.
#include <gtest/gtest.h>

#include "kernels/kernel_test_util.h"

namespace lucid {
namespace {

using namespace testing_util;  // NOLINT: the helpers of these tests

std::vector<std::string> AllIsas() {
  std::vector<std::string> isas = CpuIsas();
  isas.emplace_back("reference");
  return isas;
}

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

TEST(Fixtures, RmsNormEqualsThem) {
  LUCID_NEEDS_FIXTURES();
  const Fixture fixture("norms");
  const auto x = fixture.Floats("x");
  const int64_t dim = fixture.Shape("x")[1];
  const auto rows = static_cast<int32_t>(fixture.Shape("x")[0]);
  for (const auto& c : fixture.cases) {
    if (c["op"] == "layer_norm") continue;
    auto weight = fixture.Floats("weight");
    if (c["op"] == "gemma_rms_norm") {
      for (float& w : weight) w += 1.0f;
    }
    const auto want = fixture.Floats(c["out"]);
    for (const std::string& isa : AllIsas()) {
      std::vector<float> y(x.size());
      const RmsNormArgs args{x.data(), weight.data(), y.data(), dim, dim, c["eps"].get<float>()};
      RunAs(KernelOf(isa, KernelOp::kRmsNorm, &args), &args, TokensStep(rows), 2);
      ExpectNear(y, want, 1e-5, 1e-6, isa + " " + c["out"].get<std::string>());
    }
  }
}

TEST(Fixtures, LayerNormEqualsThem) {
  LUCID_NEEDS_FIXTURES();
  const Fixture fixture("norms");
  const auto x = fixture.Floats("x");
  const int64_t dim = fixture.Shape("x")[1];
  const auto rows = static_cast<int32_t>(fixture.Shape("x")[0]);
  const auto weight = fixture.Floats("weight");
  const auto bias = fixture.Floats("bias");
  for (const auto& c : fixture.cases) {
    if (c["op"] != "layer_norm") continue;
    const auto want = fixture.Floats(c["out"]);
    for (const std::string& isa : AllIsas()) {
      std::vector<float> y(x.size());
      const LayerNormArgs args{x.data(),
                               c["weight"] == true ? weight.data() : nullptr,
                               c["bias"] == true ? bias.data() : nullptr,
                               y.data(),
                               dim,
                               dim,
                               false,
                               c["eps"].get<float>()};
      RunAs(KernelOf(isa, KernelOp::kLayerNorm, &args), &args, TokensStep(rows), 2);
      const std::string what = isa + " " + c["out"].get<std::string>();
      const auto last = static_cast<std::ptrdiff_t>((rows - 1) * dim);  // of mean 100
      ExpectNear({y.begin(), y.begin() + last}, {want.begin(), want.begin() + last}, 1e-5, 1e-6,
                 what);
      ExpectNear({y.begin() + last, y.end()}, {want.begin() + last, want.end()}, 0, 3e-4, what);
    }
  }
}

TEST(Fixtures, ActivationsEqualThem) {
  LUCID_NEEDS_FIXTURES();
  const Fixture fixture("activations");
  const struct {
    const char* out;
    Activation act;
    bool glu;
  } rows[] = {
      {"silu", Activation::kSilu, false},
      {"gelu", Activation::kGeluErf, false},
      {"relu", Activation::kRelu, false},
      {"gelu_pytorch_tanh", Activation::kGeluTanh, false},
      {"gelu_new", Activation::kGeluTanh, false},
      {"quick_gelu", Activation::kGeluQuick, false},
      {"relu2", Activation::kReluSquared, false},
      {"sigmoid", Activation::kSigmoid, false},
      {"swiglu", Activation::kSilu, true},
      {"geglu_tanh", Activation::kGeluTanh, true},
      {"geglu_erf", Activation::kGeluErf, true},
      {"reglu", Activation::kRelu, true},
      {"glu", Activation::kSigmoid, true},
  };
  for (const auto& row : rows) {
    const auto gate = fixture.Floats(row.glu ? "gate" : "x");
    const auto up = row.glu ? fixture.Floats("up") : std::vector<float>(gate.size(), 1.0f);
    const auto want = fixture.Floats(row.out);
    for (const std::string& isa : AllIsas()) {
      std::vector<float> y(gate.size());
      const GluArgs args{gate.data(), up.data(), y.data(), static_cast<int64_t>(gate.size()),
                         row.act};
      RunAs(KernelOf(isa, KernelOp::kGlu, &args), &args, TokensStep(1), 2);
      ExpectNear(y, want, 1e-5, 1e-6, isa + " " + row.out);
      if (row.glu) continue;
      const ActivateArgs plain{gate.data(), y.data(), static_cast<int64_t>(gate.size()), row.act};
      RunAs(KernelOf(isa, KernelOp::kActivate, &plain), &plain, TokensStep(1), 2);
      ExpectNear(y, want, 1e-5, 1e-6, isa + " plain " + row.out);
    }
  }
}

// Rotating (1, 0) gives (cos, sin).
TEST(Fixtures, CosinesAndSinesEqualThem) {
  LUCID_NEEDS_FIXTURES();
  const Fixture fixture("rope");
  const std::vector<int32_t> positions = fixture.Ints("positions");
  StepView step = TokensStep(static_cast<int32_t>(positions.size()));
  step.positions = positions.data();
  for (const auto& c : fixture.cases) {
    if (!c.contains("rotary_dim")) continue;
    const std::string name = c["name"];
    const auto inv_freq = fixture.Floats(name + ".inv_freq");
    const auto want_cos = fixture.Floats(name + ".cos");
    const auto want_sin = fixture.Floats(name + ".sin");
    const size_t half = inv_freq.size();
    std::vector<float> x(positions.size() * 2 * half, 0.0f);
    for (size_t p = 0; p < positions.size(); ++p) {
      for (size_t i = 0; i < half; ++i) x[p * 2 * half + i] = 1.0f;
    }
    for (const std::string& isa : AllIsas()) {
      std::vector<float> y(x.size());
      const auto dim = static_cast<int64_t>(2 * half);
      const RopeArgs args{
          x.data(), y.data(), inv_freq.data(), 1, dim, 0, dim, c["attention_factor"].get<float>()};
      RunAs(KernelOf(isa, KernelOp::kRope, &args), &args, step, 2);
      for (size_t p = 0; p < positions.size(); ++p) {
        const double limit = 1e-6 + 6e-7 * positions[p];
        for (size_t i = 0; i < half; ++i) {
          ASSERT_NEAR(y[p * 2 * half + i], want_cos[p * half + i], limit) << isa << ' ' << name;
          ASSERT_NEAR(y[p * 2 * half + half + i], want_sin[p * half + i], limit)
              << isa << ' ' << name;
        }
      }
    }
  }
}

TEST(Fixtures, RotatedHeadsEqualThem) {
  LUCID_NEEDS_FIXTURES();
  const Fixture fixture("rope");
  const std::vector<int32_t> positions = fixture.Ints("apply.positions");
  const auto x = fixture.Floats("apply.q");  // [heads, positions, head_dim]
  const int64_t heads = fixture.Shape("apply.q")[0];
  const int64_t head_dim = fixture.Shape("apply.q")[2];
  const auto n = static_cast<int64_t>(positions.size());
  const struct {
    const char* name;
    RopeStyle style;
    int64_t rotary_dim;
  } rows[] = {{"neox", RopeStyle::kHalfSplit, head_dim},
              {"interleaved", RopeStyle::kInterleaved, head_dim},
              {"neox_partial_6", RopeStyle::kHalfSplit, 6}};
  StepView step = TokensStep(static_cast<int32_t>(n));
  step.positions = positions.data();
  for (const auto& row : rows) {
    std::vector<float> inv_freq;
    for (int64_t i = 0; i < row.rotary_dim; i += 2) {
      inv_freq.push_back(static_cast<float>(
          std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(row.rotary_dim))));
    }
    const auto want = fixture.Floats(std::string("apply.") + row.name + ".q");
    for (const std::string& isa : AllIsas()) {
      for (int64_t h = 0; h < heads; ++h) {  // one head at a time: the fixture is head-major
        std::vector<float> y(static_cast<size_t>(n * head_dim));
        const RopeArgs args{x.data() + h * n * head_dim,
                            y.data(),
                            inv_freq.data(),
                            1,
                            head_dim,
                            0,
                            row.rotary_dim,
                            1.0f,
                            row.style};
        RunAs(KernelOf(isa, KernelOp::kRope, &args), &args, step, 2);
        const auto* begin = want.data() + h * n * head_dim;
        ExpectNear(y, {begin, begin + n * head_dim}, 1e-5, 1e-4, isa + " " + row.name);
      }
    }
  }
}

// softmax(scores) is attention with one-hot keys times the scores and one-hot values.
TEST(Fixtures, SoftmaxWithMasksEqualsThem) {
  LUCID_NEEDS_FIXTURES();
  const Fixture fixture("softmax");
  for (const auto& c : fixture.cases) {
    if (c.contains("sink")) continue;  // another op
    const int32_t heads = c["heads"];
    const int32_t queries = c["queries"];
    const int32_t keys = c["keys"];
    const auto scores = fixture.Floats(c["scores"]);  // [heads, queries, keys]
    const auto want = fixture.Floats(c["out"]);
    std::vector<float> identity(static_cast<size_t>(keys * keys), 0.0f);
    for (int32_t i = 0; i < keys; ++i) identity[static_cast<size_t>(i * keys + i)] = 1.0f;
    std::vector<int32_t> positions;
    for (int32_t i = 0; i < queries; ++i) positions.push_back(keys - queries + i);
    const std::vector<int32_t> sequence(positions.size(), 0);
    const int32_t block = 0;
    StepView step = TokensStep(queries);
    step.positions = positions.data();
    step.sequence = sequence.data();
    step.block_tables = &block;
    step.block_table_stride = 1;
    // Keys and values are the same matrix: values begin where keys do.
    KvView kv;
    kv.pages = {.data = reinterpret_cast<std::byte*>(identity.data()),
                .page_bytes = keys * keys * static_cast<int64_t>(sizeof(float)),
                .k_type = KvType::kF32,
                .v_type = KvType::kF32};
    kv.n_heads = 1;
    kv.k_dim = keys;
    kv.v_dim = keys;
    kv.block_size = keys;
    for (const std::string& isa : AllIsas()) {
      for (int32_t h = 0; h < heads; ++h) {
        const float* q = scores.data() + h * queries * keys;
        std::vector<float> y(static_cast<size_t>(queries * keys), NAN);
        AttentionArgs args{.kv = kv, .q = q, .y = y.data(), .n_heads = 1};
        args.window = c["window"].is_null() ? 0 : c["window"].get<int32_t>();
        args.softcap = c.contains("softcap") ? c["softcap"].get<float>() : 0;
        args.scale = 1.0f;
        RunAs(KernelOf(isa, KernelOp::kAttention, &args), &args, step, 2);
        const float* begin = want.data() + h * queries * keys;
        // Prompts may split a float into two bfloat16 parts, 16 bits in all.
        ExpectNear(y, {begin, begin + queries * keys}, 2e-5, 1e-6,
                   isa + " " + c["name"].get<std::string>());
      }
    }
  }
}

}  // namespace
}  // namespace lucid
