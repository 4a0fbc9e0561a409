#include "kv/prefix_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <optional>

namespace lucid {
namespace {

using testing::ElementsAre;

constexpr int64_t kAll = int64_t{1} << 40;

std::vector<int32_t> Range(int32_t first, int32_t last) {
  std::vector<int32_t> tokens(static_cast<size_t>(last - first));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Blocks of 4 tokens; a full layer and one with a window of 6, each with pages of its own size.
class PrefixTreeTest : public testing::Test {
 protected:
  PrefixTreeTest() {
    const std::vector<KvSpec> layers = {{.heads = 1, .k_dim = 8, .v_dim = 8},
                                        {.heads = 2, .k_dim = 8, .v_dim = 8, .window = 6}};
    Make(layers, {.block_size = 4}, 8);
  }

  void Make(std::span<const KvSpec> layers, const KvOptions& options, int64_t n_blocks) {
    tree_.reset();
    layout_ = *KvLayout::Make(layers, options);
    pools_.clear();
    for (size_t p = 0; p < layout_->pools().size(); ++p) pools_.emplace_back(n_blocks);
    tree_.emplace(*layout_, pools_);
    root_ = tree_->LockRoot(0);
  }

  void TearDown() override {
    const Status status = tree_->CheckInvariants();
    EXPECT_TRUE(status.has_value()) << status.error().message;
    for (const BlockPool& pool : pools_) EXPECT_TRUE(pool.CheckInvariants().has_value());
  }

  // A child with fresh blocks in the given groups, which nobody holds afterwards.
  int32_t Add(int32_t parent, std::span<const int32_t> tokens, int32_t n_prompt,
              std::initializer_list<size_t> groups) {
    const int32_t node = tree_->Insert(parent, tokens, n_prompt);
    for (const size_t g : groups) {
      BlockPool& pool = pools_[PoolOf(g)];
      const int32_t block = pool.Take();
      tree_->SetBlock(node, g, block);
      pool.Release(block);
    }
    return node;
  }
  size_t PoolOf(size_t group) const { return static_cast<size_t>(layout_->groups()[group].pool); }
  int64_t Longest(std::span<const int32_t> tokens, int64_t most = kAll, bool strict = false,
                  int64_t n_prompt = kAll) const {
    return tree_->Longest(0, tokens, most, n_prompt, strict).best.n_tokens;
  }

  std::optional<KvLayout> layout_;
  std::vector<BlockPool> pools_;
  std::optional<PrefixTree> tree_;
  int32_t root_ = 0;
};

TEST_F(PrefixTreeTest, FindsTheLongestPrefixOfWholeBlocks) {
  const int32_t a = Add(root_, Range(0, 4), 4, {0, 1});
  const int32_t b = Add(a, Range(4, 8), 4, {0, 1});
  const int32_t c = Add(a, Range(50, 54), 4, {0, 1});
  EXPECT_EQ(Longest(Range(0, 20)), 8);
  EXPECT_EQ(tree_->Longest(0, Range(0, 20), kAll, kAll, false).best.node, b);
  const std::vector<int32_t> other = {0, 1, 2, 3, 50, 51, 52, 53, 4};
  EXPECT_EQ(Longest(other), 8);
  EXPECT_EQ(tree_->Longest(0, other, kAll, kAll, false).best.node, c);
  EXPECT_EQ(Longest(Range(1, 20)), 0);
  EXPECT_EQ(tree_->Longest(1, Range(0, 20), kAll, kAll, false).best.n_tokens, 0);  // another root
  EXPECT_THAT(tree_->tokens(b), ElementsAre(4, 5, 6, 7));
  EXPECT_EQ(tree_->parent(b), a);
  EXPECT_EQ(tree_->Child(a, Range(4, 8), 4), b);
  EXPECT_EQ(tree_->Child(root_, Range(4, 8), 4), PrefixTree::kNone);
}

TEST_F(PrefixTreeTest, ABlockMayMatchInPart) {
  const int32_t a = Add(root_, Range(0, 4), 4, {0, 1});
  const int32_t b = Add(a, Range(4, 8), 4, {0, 1});
  Add(a, std::vector<int32_t>{4, 9, 9, 9}, 4, {0, 1});
  const PrefixTree::Matches found =
      tree_->Longest(0, std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 0}, kAll, kAll, false);
  EXPECT_EQ(found.best.n_tokens, 7);
  EXPECT_EQ(found.best.node, a);
  EXPECT_EQ(found.best.partial, b);
  EXPECT_EQ(found.whole.n_tokens, 4);
  EXPECT_EQ(found.whole.node, a);
  EXPECT_EQ(Longest(Range(0, 8), 7), 7);  // a limit may end a prefix as well
  EXPECT_EQ(Longest(Range(0, 6)), 6);     // and so may the tokens
  EXPECT_EQ(Longest(Range(0, 3)), 3);
}

TEST_F(PrefixTreeTest, LeavesAreMatchedAndReplacedByWhatSaysMore) {
  const int32_t a = Add(root_, Range(0, 4), 4, {0, 1});
  const int32_t leaf = Add(a, Range(4, 6), 2, {0, 1});
  EXPECT_EQ(Longest(Range(0, 8)), 6);
  EXPECT_EQ(tree_->Longest(0, Range(0, 8), kAll, kAll, false).best.partial, leaf);
  EXPECT_TRUE(tree_->Covered(a, Range(4, 5), 1));
  EXPECT_FALSE(tree_->Covered(a, Range(4, 7), 3));
  EXPECT_EQ(tree_->size(), 3);
  Add(a, Range(4, 8), 4, {0, 1});
  EXPECT_EQ(tree_->size(), 3);  // the leaf is gone, its blocks are free
  EXPECT_EQ(pools_[0].cached(), 2);
  EXPECT_EQ(Longest(Range(0, 8)), 8);
}

TEST_F(PrefixTreeTest, ALeafOfThePromptOutlivesAGeneratedBlock) {
  Add(root_, Range(0, 2), 2, {0, 1});
  Add(root_, Range(0, 4), 0, {0, 1});
  EXPECT_EQ(tree_->size(), 3);
  EXPECT_EQ(Longest(Range(0, 4)), 4);
  EXPECT_EQ(Longest(Range(0, 4), kAll, /*strict=*/true), 2);
  EXPECT_FALSE(tree_->Covered(root_, Range(0, 3), 3));
  EXPECT_TRUE(tree_->Covered(root_, Range(0, 3), 0));
}

TEST_F(PrefixTreeTest, StrictMatchesEndWherePhasesDiffer) {
  const int32_t prompt = Add(root_, Range(0, 4), 4, {0, 1});
  const int32_t border = Add(prompt, Range(4, 8), 1, {0, 1});
  const int32_t reply = Add(border, Range(8, 12), 0, {0, 1});
  EXPECT_EQ(Longest(Range(0, 12)), 12);
  EXPECT_EQ(Longest(Range(0, 12), kAll, /*strict=*/true), 5);
  // For somebody who computes the same reply again all of it is right.
  EXPECT_EQ(Longest(Range(0, 12), kAll, /*strict=*/true, /*n_prompt=*/5), 12);
  EXPECT_EQ(Longest(Range(0, 12), kAll, /*strict=*/true, /*n_prompt=*/6), 5);
  EXPECT_EQ(Longest(Range(0, 12), kAll, /*strict=*/true, /*n_prompt=*/3), 3);
  EXPECT_EQ(tree_->prompt_length(reply), 5);

  // A block of the same tokens in the prompt phase stands beside the generated one.
  const int32_t twin = Add(prompt, Range(4, 8), 4, {0, 1});
  EXPECT_EQ(Longest(Range(0, 12), kAll, /*strict=*/true), 8);
  EXPECT_EQ(tree_->Longest(0, Range(0, 12), 8, kAll, false).best.node, twin);
  EXPECT_EQ(tree_->Longest(0, Range(0, 12), 8, 5, false).best.node, border);
}

TEST_F(PrefixTreeTest, WindowsNeedTheirLastBlocksOnly) {
  int32_t node = root_;
  std::vector<int32_t> nodes;
  for (int32_t b = 0; b < 5; ++b) {
    // The window group has lost block 1.
    node = b == 1 ? Add(node, Range(4, 8), 4, {0}) : Add(node, Range(4 * b, 4 * b + 4), 4, {0, 1});
    nodes.push_back(node);
  }
  EXPECT_EQ(Longest(Range(0, 20)), 20);
  EXPECT_EQ(Longest(Range(0, 20), 13), 13);  // position 13 sees 8 on
  // Position 12 sees 7 on, so that 12, 11, .. 5 tokens need block 1.
  EXPECT_EQ(Longest(Range(0, 20), 12), 4);
  const PrefixTree::Matches found = tree_->Longest(0, Range(0, 20), 12, kAll, false);
  EXPECT_EQ(found.best.node, nodes[0]);
}

TEST_F(PrefixTreeTest, AnEvictedFullBlockTakesItsSubtreeAlong) {
  const int32_t a = Add(root_, Range(0, 4), 4, {0, 1});
  const int32_t b = Add(a, Range(4, 8), 4, {0, 1});
  Add(b, Range(8, 12), 4, {0, 1});
  Add(b, Range(20, 24), 4, {0, 1});
  Add(a, Range(30, 34), 4, {0, 1});
  // b's block becomes the oldest: everything else is used once more.
  for (const int32_t block : {0, 2, 3, 4}) {
    pools_[0].Hold(block);
    pools_[0].Release(block);
  }
  for (int i = 0; i < 3; ++i) EXPECT_GE(pools_[0].Take(), 5);
  EXPECT_EQ(pools_[0].Take(), tree_->block(b, 0));
  EXPECT_EQ(tree_->size(), 3);
  EXPECT_EQ(pools_[0].free(), 2);
  EXPECT_EQ(pools_[1].cached(), 2);
  EXPECT_EQ(Longest(Range(0, 12)), 4);
}

TEST_F(PrefixTreeTest, AnEvictedWindowBlockLeavesTheNode) {
  const int32_t a = Add(root_, Range(0, 4), 4, {0, 1});
  const int32_t b = Add(a, Range(4, 8), 4, {0, 1});
  for (int i = 0; i < 7; ++i) EXPECT_GE(pools_[1].Take(), 0);
  EXPECT_EQ(tree_->block(a, 1), -1);
  EXPECT_EQ(tree_->size(), 3);
  EXPECT_EQ(Longest(Range(0, 8)), 0);
  // Somebody computes it again.
  const int32_t block = 7;
  EXPECT_EQ(pools_[1].holders(block), 1);
  tree_->SetBlock(a, 1, block);
  EXPECT_EQ(Longest(Range(0, 8)), 8);
  EXPECT_TRUE(tree_->Has(b, layout_->rules()[1]));
}

TEST_F(PrefixTreeTest, NodesWithoutBlocksGoUnlessLocked) {
  const std::vector<KvSpec> layers = {{.heads = 1, .k_dim = 8, .v_dim = 8, .window = 6}};
  Make(layers, {.block_size = 4}, 2);
  const int32_t a = Add(root_, Range(0, 4), 4, {0});
  const int32_t b = Add(a, Range(4, 8), 4, {0});
  tree_->Lock(b);
  EXPECT_GE(pools_[0].Take(), 0);
  EXPECT_GE(pools_[0].Take(), 0);
  EXPECT_EQ(tree_->size(), 3);
  EXPECT_EQ(Longest(Range(0, 8)), 0);
  tree_->Unlock(b);
  EXPECT_EQ(tree_->size(), 1);
  tree_->Unlock(root_);
  EXPECT_EQ(tree_->size(), 0);
}

TEST_F(PrefixTreeTest, AllBlocksOfARuleAreEvictedTogether) {
  // Three layers with windows, one full layer: three groups of one rule.
  std::vector<KvSpec> layers(4, {.heads = 1, .k_dim = 8, .v_dim = 8, .window = 6});
  layers[3].window = 0;
  Make(layers, {.block_size = 4}, 8);
  Add(root_, Range(0, 4), 4, {3, 0, 1, 2});
  pools_[0].Hold(0);  // the full group's
  for (int i = 0; i < 4; ++i) EXPECT_GE(pools_[0].Take(), 4);
  EXPECT_EQ(pools_[0].Take(), 1);
  EXPECT_EQ(pools_[0].free(), 2);
  EXPECT_EQ(pools_[0].cached(), 0);
  pools_[0].Release(0);
}

TEST_F(PrefixTreeTest, Kivi2NeedsPackedBlocksAndRecentOnes) {
  const std::vector<KvSpec> layers = {{.heads = 1, .k_dim = 32, .v_dim = 32}};
  Make(layers, {.k_type = KvType::kKivi2, .v_type = KvType::kKivi2, .block_size = 32}, 16);
  // 320 tokens: 10 blocks, of which 6 are packed; the recent pages of the first 3 are lost.
  int32_t node = root_;
  std::vector<int32_t> nodes;
  for (int32_t b = 0; b < 10; ++b) {
    const std::vector<int32_t> tokens = Range(32 * b, 32 * b + 32);
    if (b < 3) {
      node = Add(node, tokens, 32, {0});
    } else if (b < 6) {
      node = Add(node, tokens, 32, {0, 1});
    } else {
      node = Add(node, tokens, 32, {1});
    }
    nodes.push_back(node);
  }
  EXPECT_EQ(Longest(Range(0, 320)), 320);
  EXPECT_EQ(Longest(Range(0, 320), 319), 319);
  EXPECT_EQ(Longest(Range(0, 320), 224), 224);  // query 224 reads block 3 in float16
  EXPECT_EQ(Longest(Range(0, 320), 223), 0);    // 223 would read block 2
  // Without its packed blocks 4 and 5 the sequence can be taken as far as they are still recent:
  // query 287 reads block 4 in float16, query 288 does not.
  Make(layers, {.k_type = KvType::kKivi2, .v_type = KvType::kKivi2, .block_size = 32}, 16);
  node = root_;
  for (int32_t b = 0; b < 10; ++b) {
    const std::vector<int32_t> tokens = Range(32 * b, 32 * b + 32);
    node = b < 4 ? Add(node, tokens, 32, {0, 1}) : Add(node, tokens, 32, {1});
  }
  const PrefixTree::Matches found = tree_->Longest(0, Range(0, 320), kAll, kAll, false);
  EXPECT_EQ(found.best.n_tokens, 287);
  EXPECT_EQ(found.whole.n_tokens, 256);
}

TEST_F(PrefixTreeTest, ManyNodesAreFound) {
  const std::vector<KvSpec> layers = {{.heads = 1, .k_dim = 8, .v_dim = 8}};
  Make(layers, {.block_size = 2}, 3000);
  for (int32_t i = 0; i < 1000; ++i) {
    const int32_t a = Add(root_, std::vector<int32_t>{i, i + 1}, 2, {0});
    Add(a, std::vector<int32_t>{i, 7}, 2, {0});
  }
  for (int32_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(Longest(std::vector<int32_t>{i, i + 1, i, 7, 3}), 4);
    EXPECT_EQ(Longest(std::vector<int32_t>{i, i + 1, i + 1, 7}), 2);
  }
}

TEST(PrefixTreeMixedTest, MixturesOfPhasesAreToldApart) {
  EXPECT_LT(PrefixTree::Mixed(0, 1, 2), 0);
  EXPECT_NE(PrefixTree::Mixed(0, 1, 2), PrefixTree::Mixed(0, 2, 3));
  EXPECT_NE(PrefixTree::Mixed(0, 1, 2), PrefixTree::Mixed(0, 1, 3));
  EXPECT_EQ(PrefixTree::Mixed(0, 1, 2), PrefixTree::Mixed(0, 1, 2));
}

}  // namespace
}  // namespace lucid
