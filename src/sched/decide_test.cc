// Decide on hand-made states.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kv/kv_cache.h"
#include "kv/kv_layout.h"
#include "kv/null_kv_memory_test_util.h"
#include "sched/scheduler.h"

namespace lucid {
namespace {

constexpr int64_t kBlock = 4;

// Sequences with any state, and a cache that holds what they say is computed.
class DecideTest : public ::testing::Test {
 protected:
  void SetUp() override { MakeCache(1000); }

  void MakeCache(int64_t n_blocks, bool sharing = true) {
    const std::vector<KvSpec> layers = {{.heads = 1, .k_dim = 4, .v_dim = 4}};
    const KvLayout layout = *KvLayout::Make(layers, {.block_size = kBlock});
    memory_ = std::make_unique<NullKvMemory>(layout);
    KvCacheOptions options;
    options.n_blocks[0] = n_blocks;
    options.swap_blocks[0] = n_blocks;
    options.prefix_sharing = sharing;
    cache_ = *KvCache::Create(layout, options, *memory_);
  }

  // Tokens of different sequences differ from the first one on, unless `text` is the same.
  Sequence& Add(int64_t n_prompt, int64_t length, int32_t text = -1) {
    Sequence& sequence = sequences_.emplace_back();
    sequence.id = sequences_.size();
    const int32_t base = 1000 * (text >= 0 ? text : 100 + static_cast<int32_t>(sequence.id));
    for (int64_t i = 0; i < length; ++i) {
      sequence.tokens.push_back(base + static_cast<int32_t>(i));
    }
    sequence.spec.tokens = sequence.tokens;
    sequence.spec.n_prompt = n_prompt;
    sequence.spec.max_length = length + 1000;
    return sequence;
  }
  Sequence& Waiting(int64_t n_prompt, int32_t text = -1) { return Add(n_prompt, n_prompt, text); }
  Sequence& Running(int64_t n_prompt, int64_t length, int64_t n_computed, int32_t text = -1) {
    Sequence& sequence = Add(n_prompt, length, text);
    sequence.status = SequenceStatus::kRunning;
    sequence.kv = cache_->Open();
    EXPECT_TRUE(cache_->Reserve(sequence.kv, n_computed));
    cache_->Commit(sequence.kv, sequence.tokens, n_computed, n_prompt);
    sequence.n_computed = sequence.furthest = n_computed;
    return sequence;
  }
  Sequence& Decoding(int64_t n_prompt) { return Running(n_prompt, n_prompt + 1, n_prompt); }

  StepPlan Plan() {
    std::vector<const Sequence*> view;
    for (const Sequence& sequence : sequences_) view.push_back(&sequence);
    return Decide({.options = options_,
                   .step = step_,
                   .sequences = view,
                   .cache = cache_.get(),
                   .cost = &cost_,
                   .served = &served_});
  }

  // "id:first+count ..." in the order of the plan.
  static std::string Text(const StepPlan& plan) {
    std::string text;
    for (const Chunk& chunk : plan.chunks) {
      text += (text.empty() ? "" : " ") + std::to_string(chunk.id) + ":" +
              std::to_string(chunk.first) + "+" + std::to_string(chunk.count);
    }
    return text;
  }

  std::unique_ptr<NullKvMemory> memory_;
  std::unique_ptr<KvCache> cache_;
  std::deque<Sequence> sequences_;
  SchedulerOptions options_;
  CostModel cost_;
  std::map<std::string, int64_t> served_;
  int64_t step_ = 0;
};

using Ids = std::vector<SequenceId>;

TEST_F(DecideTest, DecodeRowsComeFirst) {
  Running(40, 40, 8);
  Decoding(5);
  Waiting(6);
  Decoding(9);
  const StepPlan plan = Plan();
  EXPECT_EQ(Text(plan), "2:5+1 4:9+1 1:8+32 3:0+6");
  EXPECT_EQ(plan.decode_tokens, 2);
  EXPECT_EQ(plan.prefill_tokens, 38);
  EXPECT_EQ(plan.admit, Ids{3});
  EXPECT_TRUE(plan.preempt.empty());
}

TEST_F(DecideTest, IsPure) {
  Decoding(5);
  Waiting(6);
  EXPECT_EQ(Text(Plan()), Text(Plan()));
  EXPECT_EQ(cache_->stats().sequences, 1);
}

TEST_F(DecideTest, TheStepAndTheChunkAreLimits) {
  Decoding(5);
  Decoding(5);
  Waiting(300);
  options_.max_step_tokens = 100;
  EXPECT_EQ(Text(Plan()), "1:5+1 2:5+1 3:0+98");
  options_.chunk = 64;
  EXPECT_EQ(Text(Plan()), "1:5+1 2:5+1 3:0+64");
  EXPECT_EQ(Plan().chunk_limit, 64);
  sequences_[2].max_chunk = 10;
  Waiting(300);
  EXPECT_EQ(Text(Plan()), "1:5+1 2:5+1 3:0+10 4:0+54");
}

TEST_F(DecideTest, MoreStreamsThanTheStepHoldsTakeTurns) {
  options_.max_step_tokens = 2;
  for (int i = 0; i < 5; ++i) Decoding(5);
  Waiting(7);
  for (step_ = 0; step_ < 20; ++step_) {
    const StepPlan plan = Plan();
    ASSERT_EQ(plan.decode_tokens, 2);
    EXPECT_EQ(plan.prefill_tokens, 0);
    for (const Chunk& chunk : plan.chunks) sequences_[chunk.id - 1].last_step = step_;
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_LE(step_ - sequences_[i].last_step, 3) << "all others come once in between";
    }
  }
}

TEST_F(DecideTest, MaxSequencesRunAtMost) {
  options_.max_sequences = 2;
  Decoding(5);
  Waiting(3);
  Waiting(3);
  EXPECT_EQ(Plan().admit, Ids{2});
}

TEST_F(DecideTest, ForksOverTheLimitGiveWayNewestFirst) {
  options_.max_sequences = 2;
  for (int i = 0; i < 4; ++i) Decoding(5);
  sequences_[3].spec.priority = 9;
  EXPECT_EQ(Plan().preempt, (Ids{4, 3}));
}

// --- Preemption ---

TEST_F(DecideTest, TheLastInOrderGivesItsBlocks) {
  MakeCache(6);
  Decoding(8);  // its next token needs a third block
  Decoding(6);
  Decoding(5);  // all blocks are taken
  const StepPlan plan = Plan();
  EXPECT_EQ(plan.preempt, Ids{3});
  EXPECT_EQ(Text(plan), "1:8+1 2:6+1");
}

TEST_F(DecideTest, TheLastOnePreemptsItself) {
  MakeCache(6);
  Decoding(6);
  Decoding(6);
  Decoding(8);
  const StepPlan plan = Plan();
  EXPECT_EQ(plan.preempt, Ids{3});
  EXPECT_EQ(Text(plan), "1:6+1 2:6+1");
}

TEST_F(DecideTest, PriorityDecidesWhoIsPreempted) {
  MakeCache(6);
  Decoding(8);
  Decoding(6);
  Decoding(5);
  sequences_[2].spec.priority = 1;
  EXPECT_EQ(Plan().preempt, Ids{2});
}

TEST_F(DecideTest, BlockedOnesGoFirst) {
  MakeCache(6);
  Decoding(6).blocked = true;
  Decoding(8);
  Decoding(5);
  const StepPlan plan = Plan();
  EXPECT_EQ(plan.preempt, Ids{1});
  EXPECT_EQ(Text(plan), "2:8+1 3:5+1");
}

TEST_F(DecideTest, BlockedOnesGetNothing) {
  Decoding(6).blocked = true;
  Waiting(3).blocked = true;
  EXPECT_TRUE(Plan().empty());
}

TEST_F(DecideTest, ABlockedOneMakesRoomForTheSiblingItWaitsFor) {
  MakeCache(4);
  Decoding(8).blocked = true;
  Decoding(8).blocked = true;
  Waiting(9);
  const StepPlan plan = Plan();
  EXPECT_EQ(plan.preempt, (Ids{2, 1}));
  EXPECT_EQ(plan.admit, Ids{3});

  options_.max_sequences = 2;
  MakeCache(100);
  sequences_.clear();
  Decoding(8).blocked = true;
  Decoding(8).blocked = true;
  Waiting(9);
  EXPECT_EQ(Plan().preempt, Ids{2});
  EXPECT_EQ(Plan().admit, Ids{3});
}

TEST_F(DecideTest, AChunkBecomesShorterBeforeSomebodyIsPreempted) {
  MakeCache(6);
  Running(40, 40, 8);  // 2 blocks; 2 are left
  Decoding(6);
  const StepPlan plan = Plan();
  EXPECT_TRUE(plan.preempt.empty());
  EXPECT_EQ(Text(plan), "2:6+1 1:8+8");
}

TEST_F(DecideTest, APromptPreemptsAStreamBehindItOnly) {
  MakeCache(4);
  Running(40, 40, 8);
  Decoding(6);
  EXPECT_EQ(Plan().preempt, Ids{2});
  EXPECT_EQ(Text(Plan()), "1:8+8");

  MakeCache(4);
  sequences_.clear();
  Decoding(6);
  Running(40, 40, 8);
  EXPECT_TRUE(Plan().preempt.empty()) << "the prompt waits for the stream ahead of it";
  EXPECT_EQ(Text(Plan()), "1:6+1");
}

// --- Admission ---

TEST_F(DecideTest, NobodyIsAdmittedWithoutRoomForAllKnownTokens) {
  MakeCache(10);
  Decoding(6);
  Waiting(33);  // 9 blocks, 8 are left
  Waiting(3);   // must not overtake for ever
  EXPECT_TRUE(Plan().admit.empty());
  EXPECT_EQ(Text(Plan()), "1:6+1");
}

TEST_F(DecideTest, WhatRunningPromptsStillNeedIsPromised) {
  MakeCache(12);
  options_.chunk = 4;
  Running(40, 40, 4);  // needs 9 more blocks, 11 are left
  Waiting(12);
  options_.max_step_tokens = 512;
  EXPECT_TRUE(Plan().admit.empty());
  options_.chunk = 40;
  sequences_[0].max_chunk = 4;
  EXPECT_TRUE(Plan().admit.empty());
  sequences_[1].tokens.resize(8);
  EXPECT_EQ(Plan().admit, Ids{2});
}

TEST_F(DecideTest, AloneACachedPoolIsNoObstacle) {
  MakeCache(10);
  const Sequence& old = Running(40, 40, 40, 7);
  cache_->Close(old.kv);
  sequences_.clear();
  EXPECT_EQ(cache_->stats().cached[0], 10);
  Waiting(39);
  EXPECT_EQ(Plan().admit, Ids{1});
}

TEST_F(DecideTest, WhatIsCachedIsNotComputed) {
  const Sequence& old = Running(40, 40, 40, 7);
  cache_->Close(old.kv);
  sequences_.clear();
  Waiting(40, 7);
  const StepPlan plan = Plan();
  ASSERT_EQ(plan.chunks.size(), 1u);
  EXPECT_GE(plan.chunks[0].first, 36);
  EXPECT_EQ(plan.chunks[0].first + plan.chunks[0].count, 40);
}

TEST_F(DecideTest, ASharedPrefixIsAwaited) {
  Running(40, 40, 8, 7);
  options_.chunk = 16;
  Waiting(40, 7);
  Waiting(5);
  const StepPlan plan = Plan();
  EXPECT_EQ(Text(plan), "1:8+16") << "the budget is used up";
  options_.chunk = 0;
  EXPECT_EQ(Text(Plan()), "1:8+32 3:0+5") << "others may pass";
}

TEST_F(DecideTest, TheSecondOfTwoEqualPromptsAwaitsTheFirst) {
  Waiting(40, 7);
  Waiting(40, 7);
  EXPECT_EQ(Plan().admit, Ids{1});
  sequences_[1].spec.root = 5;
  EXPECT_EQ(Plan().admit, (Ids{1, 2}));
  sequences_[1].spec.root = 0;
  sequences_[1].spec.share = false;
  EXPECT_EQ(Plan().admit, (Ids{1, 2}));
}

TEST_F(DecideTest, WithoutSharingNobodyAwaitsAnything) {
  MakeCache(1000, /*sharing=*/false);
  Waiting(40, 7);
  Waiting(40, 7);
  EXPECT_EQ(Plan().admit, (Ids{1, 2}));
}

TEST_F(DecideTest, SwappedOnesComeBackFirst) {
  Waiting(4);
  Sequence& swapped = Decoding(9);
  ASSERT_TRUE(cache_->SwapOut(swapped.kv));
  swapped.status = SequenceStatus::kSwapped;
  const StepPlan plan = Plan();
  EXPECT_EQ(plan.swap_in, Ids{2});
  EXPECT_EQ(plan.admit, Ids{1});
  EXPECT_EQ(Text(plan), "2:9+1 1:0+4");
  sequences_[0].spec.priority = 1;
  options_.max_sequences = 1;
  EXPECT_EQ(Plan().admit, Ids{1}) << "not before a higher priority";
}

// --- Order ---

TEST_F(DecideTest, TheClientThatWasServedLeastGoesFirst) {
  options_.max_sequences = 1;
  Waiting(4).spec.client = "a";
  Waiting(5).spec.client = "b";
  Waiting(6).spec.client = "b";
  served_ = {{"a", 100}, {"b", 20}};
  EXPECT_EQ(Plan().admit, Ids{2});
  served_ = {{"a", 20}, {"b", 20}};
  EXPECT_EQ(Plan().admit, Ids{1});
  sequences_[2].spec.priority = 1;
  EXPECT_EQ(Plan().admit, Ids{3});
}

TEST_F(DecideTest, AgeLiftsAPriorityToTheHighestPresent) {
  options_.max_sequences = 1;
  options_.aging_steps = 10;
  Waiting(4).spec.client = "old";
  Waiting(5).spec.client = "new";
  sequences_[1].spec.priority = 2;
  served_ = {{"old", 100}, {"new", 20}};
  const auto at = [&](int64_t step, int64_t since) {
    step_ = step;
    sequences_[1].waiting_since = since;
    return Plan().admit;
  };
  EXPECT_EQ(at(19, 19), Ids{2});
  EXPECT_EQ(at(100, 100), Ids{2}) << "level with the other, and served more";
  served_["new"] = 200;
  EXPECT_EQ(at(100, 100), Ids{1});
  served_["new"] = 20;
  EXPECT_EQ(at(320, 319), Ids{1}) << "very old: before everything";
}

// --- Inter-token latency ---

class ItlTest : public DecideTest {
 protected:
  void SetUp() override {
    DecideTest::SetUp();
    options_.itl_target_seconds = 0.1;
  }
  // 1 ms per prefill token, 5 ms per decode row.
  void Learn(int64_t most_prefill) {
    for (int i = 0; i < 50; ++i) {
      const StepLoad load{i % 5, i % 5 * 100, most_prefill >> (i % 4),
                          (most_prefill >> (i % 4)) * 50};
      cost_.Observe(load, 0.001 * static_cast<double>(load.prefill_tokens) +
                              0.005 * static_cast<double>(load.decode_tokens));
    }
  }
};

TEST_F(ItlTest, TheChunkKeepsTheStepWithinTheTarget) {
  Learn(400);
  Decoding(50);
  Decoding(50);
  Waiting(500);
  const StepPlan plan = Plan();
  EXPECT_EQ(plan.decode_tokens, 2);
  EXPECT_NEAR(static_cast<double>(plan.prefill_tokens), 80, 4);  // 0.9 * 100 ms - 2 * 5 ms
  EXPECT_EQ(plan.chunk_limit, plan.prefill_tokens);
}

TEST_F(ItlTest, SeveralPromptsShareTheTime) {
  Learn(400);
  Decoding(50);
  Decoding(50);
  Waiting(30);
  Waiting(30);
  Waiting(30);
  Waiting(30);
  const StepPlan plan = Plan();
  EXPECT_NEAR(static_cast<double>(plan.prefill_tokens), 80, 4);
  EXPECT_EQ(plan.admit, (Ids{3, 4, 5}));
}

TEST_F(ItlTest, WithoutStreamsPromptsRunAtFullLength) {
  Learn(400);
  Running(500, 500, 20);
  EXPECT_EQ(Plan().prefill_tokens, 480);
}

TEST_F(ItlTest, TheLeastChunkIsGivenHoweverLateTheStep) {
  Learn(400);
  for (int i = 0; i < 15; ++i) Decoding(50);
  options_.itl_target_seconds = 0.001;
  Waiting(500);
  EXPECT_EQ(Plan().prefill_tokens, options_.min_chunk);
}

TEST_F(ItlTest, TheUnknownIsApproachedInSteps) {
  Decoding(50);
  Waiting(500);
  EXPECT_EQ(Plan().prefill_tokens, options_.min_chunk) << "nothing is known";
  options_.itl_target_seconds = 10;
  Learn(40);
  EXPECT_EQ(Plan().prefill_tokens, 80) << "twice what was seen";
}

}  // namespace
}  // namespace lucid
