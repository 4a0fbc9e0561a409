#include "kv/kv_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lucid {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

KvLayout MakeLayout(std::span<const KvSpec> layers, const KvOptions& options) {
  Result<KvLayout> layout = KvLayout::Make(layers, options);
  EXPECT_TRUE(layout.has_value()) << layout.error().message;
  return *std::move(layout);
}

KvOptions OfType(KvType type, int64_t block_size = 32) {
  return {.k_type = type, .v_type = type, .block_size = block_size};
}

std::vector<KvSpec> Same(size_t n, const KvSpec& spec) {
  return std::vector<KvSpec>(n, spec);
}

// Gemma 3 270M: every sixth layer sees everything, the others 512 tokens.
std::vector<KvSpec> Gemma270M() {
  std::vector<KvSpec> layers;
  for (int i = 0; i < 18; ++i) {
    layers.push_back({.heads = 1, .k_dim = 256, .v_dim = 256, .window = i % 6 == 5 ? 0 : 512});
  }
  return layers;
}

TEST(KvLayoutTest, BytesOfQwen25) {
  const KvLayout layout = MakeLayout(Same(28, {.heads = 4, .k_dim = 128, .v_dim = 128}), {});
  EXPECT_EQ(layout.BytesFor(2048), 117440512);
  EXPECT_EQ(layout.BytesPerToken(), 57344);
  EXPECT_EQ(layout.groups().size(), 1u);
  EXPECT_EQ(layout.pools()[0].block_bytes, 32 * 57344);
}

TEST(KvLayoutTest, BytesOfLlama3) {
  const KvLayout layout = MakeLayout(Same(32, {.heads = 8, .k_dim = 128, .v_dim = 128}), {});
  EXPECT_EQ(layout.BytesPerToken(), 131072);
  EXPECT_EQ(layout.BytesFor(32), 32 * 131072);
  EXPECT_EQ(layout.BytesFor(33), 64 * 131072);
}

// A latent cache: one vector of 512 + 64 values per token and no separate values.
TEST(KvLayoutTest, BytesOfALatentCache) {
  const std::vector<KvSpec> layers = Same(27, {.heads = 1, .k_dim = 576, .v_dim = 0});
  EXPECT_EQ(MakeLayout(layers, OfType(KvType::kBF16)).BytesPerToken(), 27 * 1152);
  EXPECT_EQ(MakeLayout(layers, OfType(KvType::kInt8)).BytesPerToken(), 27 * (576 + 18 * 2));
  const Result<KvLayout> kivi = KvLayout::Make(layers, OfType(KvType::kKivi2));
  ASSERT_FALSE(kivi.has_value());
  EXPECT_THAT(kivi.error().message, HasSubstr("latent"));
}

TEST(KvLayoutTest, KeysAndValuesMayHaveDifferentTypes) {
  const KvLayout layout =
      MakeLayout(Same(2, {.heads = 3, .k_dim = 64, .v_dim = 32}),
                 {.k_type = KvType::kInt8, .v_type = KvType::kF32, .block_size = 16});
  EXPECT_EQ(layout.BytesPerToken(), 2 * 3 * (64 + 2 * 2 + 32 * 4));
  const KvPages pages = layout.Pages(1, false);
  EXPECT_EQ(pages.page_bytes, 16 * 3 * (64 + 2 * 2 + 32 * 4));
  EXPECT_EQ(pages.v_offset, 16 * 3 * (64 + 2 * 2));
  EXPECT_EQ(pages.k_type, KvType::kInt8);
  EXPECT_EQ(pages.v_type, KvType::kF32);
}

TEST(KvLayoutTest, KindsOfOnePageSizeShareAPool) {
  const KvLayout layout = MakeLayout(Gemma270M(), {});
  ASSERT_EQ(layout.pools().size(), 1u);
  EXPECT_EQ(layout.pools()[0].page_bytes, std::vector<int64_t>(3, 32 * 2 * 256 * 2));
  ASSERT_EQ(layout.groups().size(), 6u);  // 3 full and 15 window layers, 3 in a group
  ASSERT_EQ(layout.rules().size(), 2u);
  EXPECT_THAT(layout.groups()[0].layers, ElementsAre(0, 1, 2));
  EXPECT_EQ(layout.groups()[0].window, 512);
  EXPECT_THAT(layout.groups()[5].layers, ElementsAre(5, 11, 17));
  EXPECT_EQ(layout.groups()[5].kind, KvGroupKind::kFull);
  EXPECT_EQ(layout.place(11).group, 5);
  EXPECT_EQ(layout.place(11).slot, 1);
  EXPECT_EQ(layout.place(4).group, 1);
  EXPECT_EQ(layout.place(4).slot, 1);
  // 8,192 tokens: 256 blocks for full layers; for windows what position 8,192 sees, 7,681 on.
  EXPECT_THAT(layout.BlocksFor(8192, 8192), ElementsAre(256 + 5 * (256 - 240), 0, 0, 0));
}

TEST(KvLayoutTest, OtherPageSizesGetTheirOwnPools) {
  std::vector<KvSpec> layers = Same(4, {.heads = 2, .k_dim = 64, .v_dim = 64});
  layers[1].heads = 8;
  layers[3].window = 100;
  const KvLayout layout = MakeLayout(layers, {});
  ASSERT_EQ(layout.pools().size(), 2u);
  EXPECT_EQ(layout.pools()[0].page_bytes.size(), 1u);
  EXPECT_EQ(layout.pools()[1].block_bytes, 4 * layout.pools()[0].block_bytes);
  ASSERT_EQ(layout.groups().size(), 4u);
  // Full groups of both pools keep the same blocks.
  EXPECT_EQ(layout.rules().size(), 2u);
  EXPECT_THAT(layout.BlocksFor(64, 64), ElementsAre(6, 2, 0, 0));
}

TEST(KvLayoutTest, TooManyPageSizesAreRefused) {
  std::vector<KvSpec> layers;
  for (int64_t heads = 1; heads <= 5; ++heads) {
    layers.push_back({.heads = heads, .k_dim = 8, .v_dim = 8});
  }
  const Result<KvLayout> layout = KvLayout::Make(layers, {});
  ASSERT_FALSE(layout.has_value());
  EXPECT_EQ(layout.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(layout.error().message, HasSubstr("5 sizes"));
  layers.assign(9, {.heads = 1, .k_dim = 8, .v_dim = 8});
  for (size_t i = 0; i < layers.size(); ++i) layers[i].window = static_cast<int64_t>(i);
  EXPECT_EQ(KvLayout::Make(layers, {}).error().code, ErrorCode::kUnsupported);
}

TEST(KvLayoutTest, OptionsThatMakeNoSenseAreRefused) {
  const std::vector<KvSpec> layers = Same(2, {.heads = 1, .k_dim = 32, .v_dim = 32});
  for (const int64_t size : {0, -1, 1025}) {
    EXPECT_EQ(KvLayout::Make(layers, {.block_size = size}).error().code,
              ErrorCode::kInvalidArgument);
  }
  const auto half = KvLayout::Make(layers, {.k_type = KvType::kKivi2, .v_type = KvType::kF16});
  EXPECT_THAT(half.error().message, HasSubstr("keys are kivi2 and values f16"));
  EXPECT_THAT(KvLayout::Make(layers, OfType(KvType::kKivi2, 30)).error().message,
              HasSubstr("multiple of 4"));
  std::vector<KvSpec> windows = layers;
  for (KvSpec& spec : windows) spec.window = 64;
  EXPECT_THAT(KvLayout::Make(windows, OfType(KvType::kKivi2)).error().message,
              HasSubstr("every layer"));
}

TEST(KvLayoutTest, Kivi2HasPackedAndRecentGroups) {
  const KvLayout layout = MakeLayout(Gemma270M(), OfType(KvType::kKivi2));
  // Packed pages of 3 full layers; float16 pages: their recent ones and those of 15 window layers.
  ASSERT_EQ(layout.pools().size(), 2u);
  ASSERT_EQ(layout.rules().size(), 3u);
  const KvPlace& full = layout.place(5);
  EXPECT_EQ(layout.groups()[static_cast<size_t>(full.group)].kind, KvGroupKind::kPacked);
  const KvGroup& recent = layout.groups()[static_cast<size_t>(full.recent_group)];
  EXPECT_EQ(recent.kind, KvGroupKind::kWindow);
  EXPECT_EQ(recent.window, kKiviResidual + 1);
  EXPECT_THAT(recent.layers, ElementsAre(5, 11, 17));
  EXPECT_EQ(layout.place(0).recent_group, -1);
  EXPECT_EQ(layout.groups()[static_cast<size_t>(layout.place(0).group)].pool, recent.pool);
  EXPECT_EQ(layout.Pages(0, false).k_type, KvType::kF16);
  EXPECT_EQ(layout.Pages(5, false).k_type, KvType::kKivi2);
  EXPECT_EQ(layout.Pages(5, true).v_type, KvType::kF16);
}

// A layer whose window is as long as kivi2's recent part falls under the same rule.
TEST(KvLayoutTest, AWindowOfTheResidualSharesItsRule) {
  const std::vector<KvSpec> layers = {{.heads = 1, .k_dim = 32, .v_dim = 32},
                                      {.heads = 1, .k_dim = 32, .v_dim = 32, .window = 129}};
  const KvLayout layout = MakeLayout(layers, OfType(KvType::kKivi2));
  EXPECT_EQ(layout.rules().size(), 2u);
  EXPECT_EQ(layout.groups().size(), 2u);
  EXPECT_EQ(layout.place(0).recent_group, layout.place(1).group);
  EXPECT_NE(layout.place(0).recent_slot, layout.place(1).slot);
  EXPECT_EQ(layout.place(1).recent_group, -1);
}

void ExpectRange(const BlockRange& range, int64_t first, int64_t last) {
  EXPECT_EQ(range.first, first);
  EXPECT_EQ(range.last, last);
}

TEST(KvLayoutTest, NeededBlocks) {
  const std::vector<KvSpec> layers = {{.heads = 1, .k_dim = 32, .v_dim = 32},
                                      {.heads = 1, .k_dim = 32, .v_dim = 32, .window = 6}};
  const KvLayout layout = MakeLayout(layers, OfType(KvType::kF32, 4));
  ExpectRange(layout.Needed(0, 0, 0), 0, 0);
  ExpectRange(layout.Needed(0, 8, 9), 0, 3);
  ExpectRange(layout.Needed(1, 0, 9), 0, 3);   // position 0 sees itself
  ExpectRange(layout.Needed(1, 8, 9), 0, 3);   // position 8 sees 3 .. 8
  ExpectRange(layout.Needed(1, 9, 10), 1, 3);  // position 9 sees 4 .. 9
  ExpectRange(layout.Needed(1, 12, 12), 1, 3);
  ExpectRange(layout.Needed(1, 13, 13), 2, 4);
}

TEST(KvLayoutTest, NeededBlocksOfKivi2) {
  const KvLayout layout =
      MakeLayout(Same(1, {.heads = 1, .k_dim = 32, .v_dim = 32}), OfType(KvType::kKivi2, 32));
  // 159 tokens: the last query, 158, still reads block 0 in float16; query 159 has it packed.
  ExpectRange(layout.Needed(0, 159, 159), 0, 0);
  ExpectRange(layout.Needed(0, 159, 160), 0, 1);
  ExpectRange(layout.Needed(1, 159, 160), 0, 5);  // and packs it from its float16 pages
  ExpectRange(layout.Needed(1, 160, 160), 1, 5);
}

TEST(KvLayoutTest, AllMemoryGoesToOnePool) {
  const KvLayout layout = MakeLayout(Gemma270M(), {});
  const int64_t block = layout.pools()[0].block_bytes;
  EXPECT_THAT(*layout.Fit(100 * block + 5, 16, 512), ElementsAre(100, 0, 0, 0));
  EXPECT_THAT(*layout.Fit(6 * block, 16, 512), ElementsAre(6, 0, 0, 0));
  const Result<PoolCounts> none = layout.Fit(6 * block - 1, 16, 512);
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code, ErrorCode::kCapacity);
  EXPECT_THAT(none.error().message, HasSubstr(std::to_string(6 * block)));
  EXPECT_THAT(none.error().message, HasSubstr(std::to_string(6 * block - 1)));
}

TEST(KvLayoutTest, WindowPoolsGetWhatTheyCanUseAndAtMostHalf) {
  const KvLayout layout =
      MakeLayout(Same(24, {.heads = 2, .k_dim = 64, .v_dim = 64}), OfType(KvType::kKivi2));
  const int64_t gib = int64_t{1} << 30;
  const PoolCounts large = *layout.Fit(gib, 4, 512);
  // 129 positions and the ends of two blocks per sequence, and the step's 16 blocks.
  EXPECT_EQ(large[1], (4 * (129 + 64) + 512 + 31) / 32);
  EXPECT_LE(layout.Bytes(large), gib);
  EXPECT_GT(layout.Bytes(large), gib - layout.pools()[0].block_bytes);
  const PoolCounts small = *layout.Fit(8 << 20, 64, 512);
  EXPECT_LE(small[1] * layout.pools()[1].block_bytes, (4 << 20) + layout.pools()[1].block_bytes);
  EXPECT_GT(small[1] * layout.pools()[1].block_bytes, 3 << 20);
  EXPECT_LE(layout.Bytes(small), 8 << 20);
}

TEST(KvLayoutTest, PoolsOfFullLayersGrowTogether) {
  std::vector<KvSpec> layers = Same(6, {.heads = 2, .k_dim = 64, .v_dim = 64});
  layers[5].heads = 8;
  const KvLayout layout = MakeLayout(layers, {});
  const PoolCounts blocks = *layout.Fit(64 << 20, 4, 512);
  EXPECT_NEAR(static_cast<double>(blocks[0]), static_cast<double>(blocks[1]), 1.0);
  EXPECT_LE(layout.Bytes(blocks), 64 << 20);
  EXPECT_GT(layout.Bytes(blocks), (64 << 20) - layout.Bytes({1, 1, 0, 0}));
}

TEST(KvLayoutTest, LayersThatAllHaveWindowsShareAllMemory) {
  std::vector<KvSpec> layers = Same(4, {.heads = 2, .k_dim = 64, .v_dim = 64, .window = 64});
  layers[3].heads = 4;
  const KvLayout layout = MakeLayout(layers, {});
  for (const int64_t bytes : {1 << 20, 64 << 20}) {
    const PoolCounts blocks = *layout.Fit(bytes, 4, 512);
    EXPECT_LE(layout.Bytes(blocks), bytes);
    EXPECT_GT(layout.Bytes(blocks), bytes - 2 * layout.Bytes({1, 1, 0, 0}));
  }
}

// No sequence of the promised number, at any place of its life, with a step's tokens spread over
// them in any way, needs more than BlocksForAll says.
TEST(KvLayoutTest, BlocksForAllIsEnough) {
  std::vector<KvSpec> layers = Same(3, {.heads = 1, .k_dim = 32, .v_dim = 32});
  layers[1].window = 20;
  for (const KvType type : {KvType::kF16, KvType::kKivi2}) {
    const KvLayout layout = MakeLayout(layers, OfType(type, 8));
    for (const int64_t step : {1, 7, 30}) {
      const PoolCounts room = layout.BlocksForAll(2, 200, step);
      for (int64_t a = 0; a < 200; ++a) {
        for (int64_t tokens = 0; tokens <= std::min(step, 200 - a); ++tokens) {
          const int64_t b = 200 - std::max<int64_t>(1, step - tokens);
          const PoolCounts first = layout.BlocksFor(a, a + tokens);
          const PoolCounts second = layout.BlocksFor(b, 200);
          for (size_t p = 0; p < layout.pools().size(); ++p) {
            ASSERT_LE(first[p] + second[p], room[p]) << Name(type) << ' ' << step << ' ' << a;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace lucid
