// Mixtures of experts against Hugging Face transformers' routers, and the products of all
// instruction sets against the reference kernels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "base/buffer.h"
#include "base/component_test_util.h"
#include "base/thread_pool.h"
#include "kernels/packed.h"
#include "kernels/table.h"

namespace lucid {
namespace {

using Json = nlohmann::json;

// Runs the kernel of `tables` that takes the args, on `n_threads` threads.
template <typename Args>
std::string RunKernel(std::span<const KernelTable* const> tables, KernelOp op, const Args& args,
                      int32_t n_tokens, int n_threads = 2) {
  const KernelChoice choice = ChooseKernel(tables, op, &args);
  EXPECT_NE(choice.kernel, nullptr);
  StepView step;
  step.n_tokens = n_tokens;
  const size_t scratch =
      choice.kernel->scratch == nullptr ? 0 : choice.kernel->scratch(&args, n_tokens);
  const size_t shared =
      choice.kernel->shared == nullptr ? 0 : choice.kernel->shared(&args, n_tokens);
  Buffer shared_memory = *Buffer::Allocate(shared + 64);
  std::vector<Buffer> memory;
  for (int i = 0; i < n_threads; ++i) memory.push_back(*Buffer::Allocate(scratch + 64));
  ThreadPool pool(n_threads);
  pool.Run([&](int thread) {
    const ThreadSlot slot = {thread, n_threads, memory[static_cast<size_t>(thread)].data(),
                             shared_memory.data()};
    if (choice.kernel->prepare != nullptr && choice.kernel->prepare(&args, step, slot))
      pool.Barrier();
    choice.kernel->fn(&args, step, slot);
  });
  return choice.kernel->name;
}

RoutingRule RuleOf(const Json& c) {
  RoutingRule rule;
  const std::string name = c["name"];
  rule.n_used = c["top_k"];
  rule.n_groups = c.value("n_group", 1);
  rule.groups_used = c.value("topk_group", 1);
  rule.scale = c.value("routed_scaling_factor", 1.0f);
  rule.normalise = c.value("renormalise", c.value("norm_topk_prob", false));
  if (name == "topk_softmax") rule.score = RouteScore::kChosenSoftmax;
  if (name.starts_with("deepseek_v3")) {
    rule.score = RouteScore::kSigmoid;
    rule.group_pairs = true;
  }
  return rule;
}

TEST(Routing, MatchesTheFixtures) {
  LUCID_NEEDS_COMPONENTS();
  const testing_util::ComponentFixture fixture("moe_routing");
  const std::vector<float> logits = fixture.Floats("logits");
  const int64_t tokens = fixture.Shape("logits")[0];
  const auto all = SelectTables("");  // which choose the reference kernel, unless one is added
  ASSERT_TRUE(all.has_value());
  for (const auto& c : fixture.cases) {
    const RoutingRule rule = RuleOf(c);
    const std::vector<float> bias =
        c.contains("bias") ? fixture.Floats(c["bias"]) : std::vector<float>();
    const std::vector<int32_t> want = fixture.Ints(c["experts"]);
    const std::vector<float> want_weights = fixture.Floats(c["weights"]);
    for (size_t first = 0; first < all->size(); ++first) {
      std::vector<float> experts(want.size()), weights(want.size());
      RunKernel<RouteArgs>(std::span(*all).subspan(first), KernelOp::kRoute,
                           {.logits = logits.data(),
                            .bias = bias.empty() ? nullptr : bias.data(),
                            .experts = experts.data(),
                            .weights = weights.data(),
                            .n_experts = fixture.Shape("logits")[1],
                            .rule = rule},
                           static_cast<int32_t>(tokens));
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_EQ(experts[i], static_cast<float>(want[i])) << c["name"] << " " << i;
        EXPECT_NEAR(weights[i], want_weights[i], 1e-5 * std::abs(want_weights[i]) + 1e-6)
            << c["name"] << " " << i;
      }
    }
  }
  fixture.ExpectAllRead();
}

TEST(Routing, TiesGoToTheLowerIdAndNoNumberComesLast) {
  const float logits[] = {1, 3, 3, 3, NAN, 2, 2, -INFINITY};
  float experts[4], weights[4];
  const KernelTable* tables[] = {&ReferenceKernels()};
  const RouteArgs args = {.logits = logits,
                          .experts = experts,
                          .weights = weights,
                          .n_experts = 8,
                          .rule = {.n_used = 4, .score = RouteScore::kSigmoid}};
  RunKernel(tables, KernelOp::kRoute, args, 1);
  EXPECT_THAT(experts, testing::ElementsAre(1, 2, 3, 5));
  const float nothing[] = {NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
  for (const RouteScore score :
       {RouteScore::kSoftmax, RouteScore::kSigmoid, RouteScore::kChosenSoftmax}) {
    RouteArgs grouped = args;
    grouped.logits = nothing;
    grouped.rule = {
        .n_used = 4, .score = score, .n_groups = 4, .groups_used = 2, .group_pairs = true};
    RunKernel(tables, KernelOp::kRoute, grouped, 1);
    EXPECT_THAT(experts, testing::ElementsAre(0, 1, 2, 3));
  }
}

// A made-up layer of experts in one type.
struct Layer {
  static constexpr int64_t kExperts = 6;
  static constexpr int64_t kUsed = 2;
  int64_t dim, inner;
  DType type;
  std::vector<std::byte> data[3];
  std::vector<const std::byte*> parts[3];
  std::vector<std::byte> packed[3];
  std::vector<float> bias[3];
  ExpertMatrix matrices[3];  // gate, up, down

  Layer(int64_t d, int64_t n, DType t, bool pack) : dim(d), inner(n), type(t) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (int i = 0; i < 3; ++i) {
      const int64_t n_out = i == 2 ? dim : inner;
      const int64_t n_in = i == 2 ? inner : dim;
      Tensor w;
      w.dtype = type;
      w.rank = 2;
      w.shape = {n_out, n_in};
      data[i].resize(static_cast<size_t>(kExperts * w.bytes()));
      bias[i].resize(static_cast<size_t>(kExperts * n_out));
      for (float& b : bias[i]) b = normal(random);
      std::vector<float> row(static_cast<size_t>(n_in));
      for (int64_t r = 0; r < kExperts * n_out; ++r) {
        for (float& v : row) v = normal(random) / std::sqrt(static_cast<float>(n_in));
        Info(type).encode(row.data(), data[i].data() + r * w.row_bytes(), n_in);
      }
      w.data = data[i].data();
      for (int64_t e = 0; e < kExperts; ++e) parts[i].push_back(data[i].data() + e * w.bytes());
      matrices[i] = {
          .w = w, .n_experts = kExperts, .data = parts[i].data(), .bias = bias[i].data()};
      if (!pack || FindPackedForm(type) == nullptr) continue;
      matrices[i].packed_bytes = PackedBytes(w);
      packed[i].resize(static_cast<size_t>(kExperts * matrices[i].packed_bytes + 64));
      auto* to = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(packed[i].data()) + 63) /
                                              64 * 64);
      for (int64_t e = 0; e < kExperts; ++e) {
        Tensor one = w;
        one.data = parts[i][static_cast<size_t>(e)];
        PackStrips(one, 0, (n_out + kStripRows - 1) / kStripRows,
                   to + e * matrices[i].packed_bytes);
      }
      matrices[i].packed = to;
    }
  }

  // [T, dim] of the mixture of x[T, dim].
  std::vector<float> Run(std::span<const KernelTable* const> tables, std::span<const float> x,
                         std::span<const float> experts, int n_threads, float limit,
                         std::set<std::string>* names) const {
    const auto tokens = static_cast<int64_t>(x.size()) / dim;
    std::vector<float> h(static_cast<size_t>(tokens * kUsed * inner));
    std::vector<float> z(static_cast<size_t>(tokens * kUsed * dim));
    std::vector<float> y(x.size());
    std::vector<float> weights(static_cast<size_t>(tokens * kUsed));
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = i % 2 == 0 ? 0.25f : 0.75f;
    const auto t = static_cast<int32_t>(tokens);
    names->insert(RunKernel<ExpertGluArgs>(tables, KernelOp::kExpertGlu,
                                           {.gate = matrices[0],
                                            .up = matrices[1],
                                            .x = x.data(),
                                            .experts = experts.data(),
                                            .y = h.data(),
                                            .n_used = kUsed,
                                            .glu = {.act = Activation::kSilu, .limit = limit}},
                                           t, n_threads));
    names->insert(RunKernel<ExpertLinearArgs>(tables, KernelOp::kExpertLinear,
                                              {.w = matrices[2],
                                               .x = h.data(),
                                               .x_stride = inner,
                                               .experts = experts.data(),
                                               .y = z.data(),
                                               .n_used = kUsed},
                                              t, n_threads));
    RunKernel<MixExpertsArgs>(
        tables, KernelOp::kMixExperts,
        {.x = z.data(), .weights = weights.data(), .y = y.data(), .n_used = kUsed, .dim = dim}, t,
        n_threads);
    return y;
  }
};

class ExpertKernels : public testing::TestWithParam<DType> {};

TEST_P(ExpertKernels, AllTablesGiveWhatTheReferenceGivesAndTheSameBitsForARowAlone) {
  const auto all = SelectTables("");
  ASSERT_TRUE(all.has_value());
  const KernelTable* reference[] = {&ReferenceKernels()};
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  for (const auto& [dim, inner] : {std::pair<int64_t, int64_t>{256, 256}, {512, 768}}) {
    constexpr int64_t kTokens = 45;
    std::vector<float> x(static_cast<size_t>(kTokens * dim));
    for (float& v : x) v = normal(random);
    std::vector<float> experts;
    for (int64_t t = 0; t < kTokens; ++t) {  // expert 3 has no rows, expert 0 most
      const int second = std::array{1, 2, 4, 5}[random() % 4];
      experts.insert(experts.end(),
                     {t % 5 == 0 ? 1.0f : 0.0f, static_cast<float>(second == 1 ? 5 : second)});
    }
    for (const float limit : {0.0f, 1.0f}) {
      std::set<std::string> names;
      const std::vector<float> want =
          Layer(dim, inner, GetParam(), false).Run(reference, x, experts, 2, limit, &names);
      float size = 0;
      for (const float v : want) size = std::max(size, std::abs(v));
      for (const bool pack : {false, true}) {
        const Layer layer(dim, inner, GetParam(), pack);
        for (size_t first = 0; first + 1 < all->size(); ++first) {
          const std::span tables = std::span(*all).subspan(first);
          names.clear();
          const std::vector<float> got = layer.Run(tables, x, experts, 3, limit, &names);
          for (const std::string& name : names)
            EXPECT_THAT(name, testing::Not(testing::HasSubstr("reference")));
          const bool rounds = pack && FindPackedForm(GetParam()) != nullptr;
          for (size_t i = 0; i < want.size(); ++i) {
            ASSERT_NEAR(got[i], want[i], size * (rounds ? 2e-2f : 1e-5f))
                << *names.begin() << " " << i;
          }
          for (const int64_t t : {int64_t{0}, int64_t{17}}) {
            const std::vector<float> alone = layer.Run(
                tables,
                std::span(x).subspan(static_cast<size_t>(t * dim), static_cast<size_t>(dim)),
                std::span(experts).subspan(static_cast<size_t>(2 * t), 2), 1, limit, &names);
            EXPECT_TRUE(std::equal(alone.begin(), alone.end(), got.begin() + t * dim))
                << *names.begin();
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ExpertKernels,
                         testing::Values(DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0,
                                         DType::kQ4_0),
                         [](const auto& test) { return std::string(Name(test.param)); });

}  // namespace
}  // namespace lucid
