// Every instruction set and the reference kernels against the fixtures of single operations
// (fixtures/component): norms, activations, rotations, softmax with masks. Every array is compared
// here or where AllFilesHaveTheirTests says.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "kernels/kernel_test_util.h"

namespace lucid {
namespace {

using namespace testing_util;  // NOLINT: the helpers of these tests

TEST(Components, RmsNormEqualsThem) {
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
  fixture.ExpectAllRead([](const std::string& array) {  // LayerNormEqualsThem
    return array.starts_with("layer_norm.") || array == "bias";
  });
}

TEST(Components, LayerNormEqualsThem) {
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
  fixture.ExpectAllRead([](const std::string& array) {  // RmsNormEqualsThem
    return array.starts_with("rms_norm.") || array.starts_with("gemma_rms_norm.");
  });
}

TEST(Components, ActivationsEqualThem) {
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
  const auto x = fixture.Floats("x");
  const auto tanh = fixture.Floats("tanh");
  for (const std::string& isa : AllIsas()) {  // a cap of 1
    std::vector<float> y(x.size());
    const SoftcapArgs args{x.data(), y.data(), static_cast<int64_t>(x.size()), 1.0f};
    RunAs(KernelOf(isa, KernelOp::kSoftcap, &args), &args, TokensStep(1), 2);
    ExpectNear(y, tanh, 1e-5, 1e-6, isa + " tanh");
  }
  fixture.ExpectAllRead([](const std::string& array) {  // ClampedGluEqualsThem
    return array.starts_with("gpt_oss_");
  });
}

// An expert whose gate takes the even inputs and whose up takes the odd ones.
TEST(Components, ClampedGluEqualsThem) {
  LUCID_NEEDS_FIXTURES();
  const Fixture fixture("activations");
  const auto x = fixture.Floats("gpt_oss_in");
  const auto want = fixture.Floats("gpt_oss_glu");
  const int64_t tokens = fixture.Shape("gpt_oss_in")[0];
  const int64_t n_in = fixture.Shape("gpt_oss_in")[1];
  const int64_t n_out = n_in / 2;
  std::vector<float> even(static_cast<size_t>(n_out * n_in), 0.0f);
  std::vector<float> odd = even;
  for (int64_t i = 0; i < n_out; ++i) {
    even[static_cast<size_t>(i * n_in + 2 * i)] = 1.0f;
    odd[static_cast<size_t>(i * n_in + 2 * i + 1)] = 1.0f;
  }
  const std::byte* gate[] = {reinterpret_cast<const std::byte*>(even.data())};
  const std::byte* up[] = {reinterpret_cast<const std::byte*>(odd.data())};
  const auto matrix = [&](const std::byte* const* data) {
    ExpertMatrix m;
    m.n_experts = 1;
    m.data = data;
    m.exact = true;
    m.w.data = data[0];
    m.w.rank = 2;
    m.w.shape = {n_out, n_in};
    return m;
  };
  const std::vector<float> experts(static_cast<size_t>(tokens), 0.0f);
  for (const std::string& isa : AllIsas()) {
    std::vector<float> y(want.size());
    const ExpertGluArgs args{.gate = matrix(gate),
                             .up = matrix(up),
                             .x = x.data(),
                             .experts = experts.data(),
                             .y = y.data(),
                             .n_used = 1,
                             .glu = {.act = Activation::kGeluQuick, .limit = 7.0f}};
    RunAs(KernelOf(isa, KernelOp::kExpertGlu, &args), &args,
          TokensStep(static_cast<int32_t>(tokens)), 2);
    ExpectNear(y, want, 1e-5, 1e-6, isa + " gpt_oss_glu");
  }
}

// Rotating (1, 0) gives (cos, sin).
TEST(Components, CosinesAndSinesEqualThem) {
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
    const auto cos64 = fixture.Floats(name + ".cos64");  // of angles in double
    const auto sin64 = fixture.Floats(name + ".sin64");
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
          const float cos = y[p * 2 * half + i];
          const float sin = y[p * 2 * half + half + i];
          ASSERT_NEAR(cos, want_cos[p * half + i], limit) << isa << ' ' << name;
          ASSERT_NEAR(sin, want_sin[p * half + i], limit) << isa << ' ' << name;
          ASSERT_NEAR(cos, cos64[p * half + i], limit) << isa << ' ' << name;
          ASSERT_NEAR(sin, sin64[p * half + i], limit) << isa << ' ' << name;
        }
      }
    }
  }
  fixture.ExpectAllRead([](const std::string& array) {  // RotatedHeadsEqualThem
    return array.starts_with("apply.");
  });
}

// DeepSeek-V3 in transformers: all first halves of the pairs, then all second ones.
std::vector<float> PairsApart(const std::vector<float>& x, int64_t head_dim) {
  std::vector<float> out;
  for (size_t row = 0; row < x.size(); row += static_cast<size_t>(head_dim)) {
    for (const size_t second : {0, 1}) {
      for (size_t i = second; i < static_cast<size_t>(head_dim); i += 2) out.push_back(x[row + i]);
    }
  }
  return out;
}

TEST(Components, RotatedHeadsEqualThem) {
  LUCID_NEEDS_FIXTURES();
  const Fixture fixture("rope");
  const std::vector<int32_t> positions = fixture.Ints("apply.positions");
  const int64_t heads = fixture.Shape("apply.q")[0];
  const int64_t head_dim = fixture.Shape("apply.q")[2];
  const auto n = static_cast<int64_t>(positions.size());
  const struct {
    std::string name;
    RopeStyle style;
    int64_t rotary_dim;
  } rows[] = {{"neox", RopeStyle::kHalfSplit, head_dim},
              {"interleaved", RopeStyle::kInterleaved, head_dim},
              {"complex", RopeStyle::kInterleaved, head_dim},
              {"deepseek_v3", RopeStyle::kInterleaved, head_dim},
              {"neox_partial_6", RopeStyle::kHalfSplit, 6}};
  StepView step = TokensStep(static_cast<int32_t>(n));
  step.positions = positions.data();
  for (const auto& row : rows) {
    std::vector<float> inv_freq;
    for (int64_t i = 0; i < row.rotary_dim; i += 2) {
      inv_freq.push_back(static_cast<float>(
          std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(row.rotary_dim))));
    }
    for (const std::string part : {"q", "k"}) {
      const auto x = fixture.Floats("apply." + part);  // [heads, positions, head_dim]
      const auto want = fixture.Floats("apply." + row.name + "." + part);
      for (const std::string& isa : AllIsas()) {
        std::vector<float> y(x.size());
        for (int64_t h = 0; h < heads; ++h) {  // one head at a time: the fixture is head-major
          const int64_t at = h * n * head_dim;
          const RopeArgs args{x.data() + at,  y.data() + at, inv_freq.data(), 1, head_dim, 0,
                              row.rotary_dim, 1.0f,          row.style};
          RunAs(KernelOf(isa, KernelOp::kRope, &args), &args, step, 2);
        }
        ExpectNear(row.name == "deepseek_v3" ? PairsApart(y, head_dim) : y, want, 1e-5, 1e-4,
                   isa + " " + row.name + "." + part);
      }
    }
  }
  fixture.ExpectAllRead([](const std::string& array) {  // CosinesAndSinesEqualThem
    return !array.starts_with("apply.");
  });
}

// softmax(scores) is attention with one-hot keys times the scores and one-hot values.
TEST(Components, SoftmaxWithMasksEqualsThem) {
  LUCID_NEEDS_FIXTURES();
  const Fixture fixture("softmax");
  for (const auto& c : fixture.cases) {
    const int32_t heads = c["heads"];
    const int32_t queries = c["queries"];
    const int32_t keys = c["keys"];
    const auto scores = fixture.Floats(c["scores"]);  // [heads, queries, keys]
    const auto want = fixture.Floats(c["out"]);
    std::vector<float> identity(static_cast<size_t>(keys * keys), 0.0f);
    for (int32_t i = 0; i < keys; ++i) identity[static_cast<size_t>(i * keys + i)] = 1.0f;
    const std::vector<float> sinks =
        c.contains("sink") ? fixture.Floats(c["sink"]) : std::vector<float>();
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
        args.sinks = sinks.empty() ? nullptr : &sinks[static_cast<size_t>(h)];
        RunAs(KernelOf(isa, KernelOp::kAttention, &args), &args, step, 2);
        const float* begin = want.data() + h * queries * keys;
        // Prompts may split a float into two bfloat16 parts, 16 bits in all.
        ExpectNear(y, {begin, begin + queries * keys}, 2e-5, 1e-6,
                   isa + " " + c["name"].get<std::string>());
      }
    }
  }
  fixture.ExpectAllRead();
}

// A file of arrays that no test opens would be forgotten whole.
TEST(Components, AllFilesHaveTheirTests) {
  LUCID_NEEDS_FIXTURES();
  const std::map<std::string, std::string> tests = {
      {"activations", "here"},
      {"alibi", "plan/rope_spec_test.cc"},
      {"attention", "attention_test.cc"},
      {"dtypes", "format/quants_test.cc"},
      {"logprobs", "decode/sampler_reference_test.cc"},
      {"moe_routing", "exec/experts_test.cc"},
      {"norms", "here"},
      {"rope", "here, plan/rope_spec_test.cc and models/config_rope_test.cc"},
      {"sampling", "decode/sampler_reference_test.cc"},
      {"softmax", "here"},
  };
  for (const auto& file : std::filesystem::directory_iterator(Fixture::Folder())) {
    EXPECT_TRUE(tests.contains(file.path().stem())) << "no test reads " << file.path();
  }
}

}  // namespace
}  // namespace lucid
