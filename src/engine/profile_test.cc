// Profiles of a small model: what was run, whether the numbers add up, what does not fit.
#include "engine/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "plan/op_table.h"

namespace lucid {
namespace {

const std::string kStories = std::string(LUCID_SHARED_DIR) + "/fixtures/trained/stories_llama";

class ProfileTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kStories)) GTEST_SKIP() << "no model at " << kStories;
  }
  static std::unique_ptr<Engine> Load(const ProfileOptions& options, int64_t kv_memory = 0) {
    EngineConfig config;
    config.model = kStories;
    config.n_threads = 2;
    config.batch = 32;
    config.context = ProfileContext(options);
    config.n_parallel = options.sequences;
    config.kv_memory = kv_memory;
    config.numerics = Numerics::kFloat;
    auto engine = Engine::Load(config);
    EXPECT_TRUE(engine.has_value()) << engine.error().message;
    return *std::move(engine);
  }
};

TEST_F(ProfileTest, CountsWhatRan) {
  const ProfileOptions options{
      .prompt = 40, .generated = 6, .depth = 10, .sequences = 2, .repetitions = 2, .say = {}};
  const auto engine = Load(options);
  const Profile profile = MakeProfile(*engine, options).value();
  ASSERT_EQ(profile.phases.size(), 2u);
  const ProfiledPhase& prefill = profile.phases[0];
  EXPECT_TRUE(prefill.prefill);
  EXPECT_EQ(prefill.tokens, 2 * 40);
  EXPECT_EQ(prefill.steps, 3) << "80 tokens in steps of 32";
  EXPECT_EQ(prefill.passes, 2);
  const ProfiledPhase& decode = profile.phases[1];
  EXPECT_EQ(decode.tokens, 2);
  EXPECT_EQ(decode.passes, 3) << "every second step is timed";
  EXPECT_FALSE(decode.timing_cost.has_value());
  EXPECT_EQ(profile.steps.size(), 2u * 3 + 3);
  for (const ProfiledPhase& phase : profile.phases) {
    ASSERT_EQ(phase.ops.size(), engine->runner().plan().ops.size());
    double measured = 0;
    for (const ProfiledOp& op : phase.ops) measured += op.measured.total();
    EXPECT_NEAR(measured, phase.ops_seconds, 1e-12);
    EXPECT_NEAR(phase.ops_seconds + phase.before + phase.after + phase.threads_seconds,
                phase.seconds, 1e-6);
    EXPECT_NEAR(phase.Residual().sum(), phase.mean_seconds - phase.predicted_seconds(), 1e-9);
    EXPECT_NEAR(phase.ReadingSeconds() + phase.BeyondReading().sum(), phase.mean_seconds, 1e-9);
  }
  // The costs are those of the steps: of the prompts, two sequences of tokens 10 to 49.
  int64_t flops = 0;
  for (const ProfiledStep& step : profile.steps) {
    if (!step.prefill) continue;
    for (const Op& op : engine->runner().plan().ops) {
      flops += Info(op.kind).cost(engine->runner().plan(), op, step.work).flops;
    }
  }
  int64_t counted = 0;
  for (const ProfiledOp& op : prefill.ops) counted += op.row.cost.flops;
  EXPECT_EQ(counted, flops / prefill.passes);
  for (const ProfiledStep& step : profile.steps) {
    EXPECT_LE(step.begin, step.times.begin());
    EXPECT_LE(step.times.end(), step.end);
    for (const SequenceSpan& span : step.work.sequences) EXPECT_GE(span.start, 10);
  }
}

TEST_F(ProfileTest, ACacheThatIsTooSmallIsSaid) {
  const ProfileOptions options{
      .prompt = 0, .generated = 200, .depth = 200, .sequences = 3, .repetitions = 1, .say = {}};
  const auto engine = Load(options, /*kv_memory=*/200'000);
  const Result<Profile> profile = MakeProfile(*engine, options);
  ASSERT_FALSE(profile.has_value());
  EXPECT_EQ(profile.error().code, ErrorCode::kCapacity);
}

}  // namespace
}  // namespace lucid
