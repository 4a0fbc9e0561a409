// What the recorder notes of steps that are sound, of a plan that was changed, and of steps whose
// buffers an observer spoils before the recorder looks.
#include "exec/step_record.h"

#include <functional>

#include "exec/reference_test_util.h"

namespace lucid {
namespace {

using namespace testing_util;  // NOLINT: the models and their fixture

constexpr double kSound = 1e-5;

// Spoils what it likes, then lets the recorder see the op.
class Vandal final : public Observer {
 public:
  using Spoil = std::function<void(const ObservedOp&)>;
  Vandal(Observer& next, Spoil spoil) : next_(next), spoil_(std::move(spoil)) {}
  void AfterOp(const ObservedOp& observed) override {
    if (spoil_) spoil_(observed);
    next_.AfterOp(observed);
  }

 private:
  Observer& next_;
  Spoil spoil_;
};

float& First(const ObservedOp& observed, Value v) {
  return const_cast<float&>(observed.Read(v).front());  // NOLINT: that is the point
}

class StepRecordTest : public Fixture {
 protected:
  // A prompt of six tokens and two tokens behind it.
  std::vector<StepRecord> Record(const Vandal::Spoil& spoil = {}) {
    StepRecorder recorder;
    Vandal vandal(recorder, spoil);
    const std::vector<int32_t> ids = LongPrompt(8);
    Run(std::span(ids).first(6), 0, /*all=*/false, &vandal);
    for (const int64_t position : {6, 7}) {
      Batch batch = NewBatch();
      AddSequence(batch, 0);
      batch.AddToken(ids[static_cast<size_t>(position)], position, Phase::kGenerated, true);
      runner_->Run(batch, &vandal);
    }
    return recorder.steps();
  }
};

TEST_P(StepRecordTest, NotesTheFactsOfASoundRun) {
  StartExact();
  const std::vector<StepRecord> steps = Record();
  ASSERT_EQ(steps.size(), 3u);
  const int64_t layers = model_->config.n_layers;
  for (size_t i = 0; i < steps.size(); ++i) {
    const StepRecord& step = steps[i];
    ASSERT_EQ(step.sequences.size(), 1u);
    EXPECT_EQ(step.sequences[0].start, i == 0 ? 0 : static_cast<int64_t>(5 + i));
    EXPECT_EQ(step.sequences[0].count, i == 0 ? 6 : 1);
    EXPECT_EQ(step.generated(), i > 0);
    // The embedding, and two sums in each layer.
    EXPECT_EQ(std::ssize(step.residual), 1 + 2 * layers);
    EXPECT_EQ(step.residual.back().width, model_->config.dim);
    EXPECT_EQ(std::ssize(step.heads), layers);
    EXPECT_EQ(std::ssize(step.rotations), 2 * layers);
    for (const RecordedRotation& rotation : step.rotations) {
      const bool query = rotation.op.find("attn_q") != std::string::npos;
      EXPECT_EQ(rotation.part, query ? RotatedPart::kQuery : RotatedPart::kKey) << rotation.op;
      EXPECT_LT(rotation.error, kSound);
      EXPECT_TRUE(rotation.moved);
    }
    for (const RecordedValues& values : step.values) EXPECT_LT(values.error, kSound);
    for (const RecordedOutput& output : step.outputs) EXPECT_LT(output.error, kSound);
    ASSERT_EQ(std::ssize(step.cache), layers);
    EXPECT_EQ(step.cache[0].places.size(), 6 + i);
    for (size_t p = 0; i > 0 && p < steps[i - 1].cache[0].places.size(); ++p) {
      EXPECT_EQ(step.cache[0].places[p], steps[i - 1].cache[0].places[p]);
    }
  }
}

TEST_P(StepRecordTest, SeesRotationsThatLeadToValues) {
  // Keys and values change places where they are stored.
  for (Op& op : model_->plan.ops) {
    if (op.kind == OpKind::kKvStore) std::swap(op.inputs[1], op.inputs[2]);
  }
  StartExact();
  const StepRecord step = Record().front();
  for (const RecordedRotation& rotation : step.rotations) {
    const bool query = rotation.op.find("attn_q") != std::string::npos;
    EXPECT_EQ(rotation.part, query ? RotatedPart::kQuery : RotatedPart::kValue) << rotation.op;
  }
}

TEST_P(StepRecordTest, SeesARotationThatLeadsNowhere) {
  for (Op& op : model_->plan.ops) {
    if (op.kind != OpKind::kKvStore || op.name != "blk.0.kv.store") continue;
    const Op& rope =
        model_->plan.ops[static_cast<size_t>(model_->plan.Info(op.inputs[1]).producer)];
    op.inputs[1] = rope.inputs[0];
  }
  StartExact();
  const StepRecord step = Record().front();
  const auto lost =
      std::ranges::count(step.rotations, RotatedPart::kNothing, &RecordedRotation::part);
  EXPECT_EQ(lost, 1);
}

TEST_P(StepRecordTest, SeesAnOldPlaceThatWasWrittenAgain) {
  StartExact();
  int64_t steps_seen = 0;
  const std::vector<StepRecord> steps = Record([&](const ObservedOp& observed) {
    if (&observed.op == &observed.plan.ops.front()) ++steps_seen;
    if (observed.op.kind != OpKind::kKvStore || steps_seen != 3) return;
    // Place 0 of the sequence, which lies where its block table says.
    const KvView& kv = static_cast<const KvStoreArgs*>(observed.args)->kv;
    const int32_t block = observed.step.Table(kv.pages, 0)[0];
    kv.pages.data[block * kv.pages.page_bytes] ^= std::byte{1};
  });
  for (size_t layer = 0; layer < steps[2].cache.size(); ++layer) {
    EXPECT_NE(steps[2].cache[layer].places[0], steps[1].cache[layer].places[0]);
    EXPECT_EQ(steps[2].cache[layer].places[1], steps[1].cache[layer].places[1]);
  }
}

TEST_P(StepRecordTest, SeesWhatIsNotAsTheFormulasHaveIt) {
  StartExact();
  const auto spoil = [](OpKind kind, bool input) {
    return [kind, input](const ObservedOp& observed) {
      if (observed.op.kind != kind) return;
      First(observed, input ? observed.op.inputs[2] : observed.op.outputs[0]) += 5.0f;
    };
  };
  EXPECT_GT(Record(spoil(OpKind::kAttention, false))[1].outputs[0].error, 0.1);
  EXPECT_GT(Record(spoil(OpKind::kRope, false))[1].rotations[0].error, 0.1);
  // A layer's values, changed behind the back of the cache.
  EXPECT_GT(Record(spoil(OpKind::kKvStore, true))[1].values[0].error, 0.1);
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StepRecordTest);
INSTANTIATE_TEST_SUITE_P(Models, StepRecordTest, testing::ValuesIn(Cases({"models/llama3_gqa"})),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace lucid
