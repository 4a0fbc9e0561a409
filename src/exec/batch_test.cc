// The arrays that a batch makes of sequences with several block tables.
#include "exec/batch.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace lucid {
namespace {

KvPages PagesOfGroup(int32_t group) {
  KvPages pages;
  pages.table = group;
  return pages;
}

TEST(Batch, LaysOutTablesByGroup) {
  Batch batch(2);
  const std::vector<int32_t> a0 = {5, 6}, a1 = {7}, b0 = {8}, b1 = {-1, 9, 10};
  const std::array<std::span<const int32_t>, 2> a = {a0, a1}, b = {b0, b1};
  std::vector<float> sums(4);
  const KeyScores scores = {.sums = sums.data(), .layer_stride = 4, .capacity = 2};
  batch.AddSequence(a, {});
  batch.AddToken(1, 0, Phase::kPrompt, false);
  batch.AddToken(2, 1, Phase::kPrompt, true);
  batch.AddSequence(b, std::array<int32_t, 2>{0, 32}, scores);
  batch.AddToken(3, 70, Phase::kGenerated, true);

  const StepView view = batch.View();
  EXPECT_EQ(view.n_tokens, 3);
  EXPECT_EQ(view.n_sequences, 2);
  EXPECT_EQ(view.n_outputs, 2);
  EXPECT_EQ(view.output_rows[0], 1);
  EXPECT_EQ(view.output_rows[1], 2);
  EXPECT_EQ(view.sequence[2], 1);
  EXPECT_EQ(view.positions[2], 70);
  EXPECT_EQ(view.phases[1], Phase::kPrompt);
  EXPECT_EQ(view.phases[2], Phase::kGenerated);
  const auto table = [&](int32_t group, int32_t sequence) {
    const int32_t* entries = view.Table(PagesOfGroup(group), sequence);
    return std::vector<int32_t>(entries, entries + view.block_table_stride);
  };
  EXPECT_EQ(table(0, 0), (std::vector<int32_t>{5, 6, -1}));
  EXPECT_EQ(table(1, 0), (std::vector<int32_t>{7, -1, -1}));
  EXPECT_EQ(table(0, 1), (std::vector<int32_t>{8, -1, -1}));
  EXPECT_EQ(table(1, 1), (std::vector<int32_t>{-1, 9, 10}));
  EXPECT_EQ(view.Dropped(PagesOfGroup(1), 1), 32);
  EXPECT_EQ(view.Dropped(PagesOfGroup(0), 1), 0);
  EXPECT_EQ(view.Dropped(PagesOfGroup(1), 0), 0);
  EXPECT_EQ(view.scores[0].sums, nullptr);
  EXPECT_EQ(view.scores[1].sums, sums.data());
}

TEST(Batch, IsEmptyAgainAfterClear) {
  Batch batch;
  const std::vector<int32_t> blocks = {1, 2, 3};
  KeyScores scores;
  float sum = 0;
  scores.sums = &sum;
  const std::span<const int32_t> table = blocks;
  batch.AddSequence(std::span(&table, 1), std::array<int32_t, 1>{16}, scores);
  batch.AddToken(1, 20, Phase::kPrompt, true);
  batch.View();
  batch.Clear();
  EXPECT_EQ(batch.n_tokens(), 0);
  EXPECT_EQ(batch.n_outputs(), 0);
  batch.AddSequence(std::span(blocks).first(1));
  batch.AddToken(1, 0, Phase::kPrompt, false);
  const StepView view = batch.View();
  EXPECT_EQ(view.n_sequences, 1);
  EXPECT_EQ(view.block_table_stride, 1);
  EXPECT_EQ(view.dropped, nullptr) << "nothing was dropped";
  EXPECT_EQ(view.scores, nullptr) << "nobody asks";
}

TEST(BatchDeathTest, EverySequenceBringsATableForEachGroup) {
  Batch batch(2);
  const std::vector<int32_t> blocks = {1};
  EXPECT_DEATH(batch.AddSequence(blocks), "1 tables");
}

}  // namespace
}  // namespace lucid
