#include "kv/kv_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "kv/kv_storage.h"
#include "kv/kv_test_util.h"

namespace lucid {
namespace {

using testing::ElementsAre;

std::vector<int32_t> Range(int32_t first, int32_t last) {
  std::vector<int32_t> tokens(static_cast<size_t>(last - first));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Large enough for FakeKv.
KvSpec Layer(int64_t window) {
  return {.heads = 1, .k_dim = 32, .v_dim = 32, .window = window};
}

class KvCacheTest : public testing::Test {
 protected:
  KvCacheTest() { Make({Layer(0)}, {.n_blocks = {8}, .swap_blocks = {4}}); }

  void Make(const std::vector<KvSpec>& layers, const KvCacheOptions& options,
            KvOptions kv = {.block_size = 4}) {
    const Result<KvLayout> layout = KvLayout::Make(layers, kv);
    ASSERT_TRUE(layout.has_value());
    memory_ = std::make_unique<FakeKvMemory>(*layout, options.n_blocks);
    Result<std::unique_ptr<KvCache>> cache = KvCache::Create(*layout, options, *memory_);
    ASSERT_TRUE(cache.has_value());
    cache_ = *std::move(cache);
  }

  void TearDown() override { CheckInvariants(); }
  void CheckInvariants() {
    const Status status = cache_->CheckInvariants();
    EXPECT_TRUE(status.has_value()) << status.error().message;
  }

  FakeSequence Open(std::vector<int32_t> tokens, int64_t n_prompt = -1, bool share = true) {
    if (n_prompt < 0) n_prompt = std::ssize(tokens);
    return FakeSequence(*cache_, *memory_, std::move(tokens), n_prompt, cache_->Open(share));
  }
  // Computes a sequence and closes it, for its blocks to stay.
  void Leave(const std::vector<int32_t>& tokens, int64_t n_prompt = -1) {
    FakeSequence s = Open(tokens, n_prompt);
    ASSERT_TRUE(s.Step(std::ssize(tokens)));
    cache_->Close(s.handle());
    CheckInvariants();
  }
  int64_t available(size_t pool = 0) const { return cache_->available()[pool]; }

  std::unique_ptr<FakeKvMemory> memory_;
  std::unique_ptr<KvCache> cache_;
};

TEST_F(KvCacheTest, ReserveTakesBlocksAndCloseGivesThemBack) {
  FakeSequence s = Open(Range(0, 20));
  EXPECT_THAT(cache_->Need(s.handle(), 9), ElementsAre(3, 0, 0, 0));
  ASSERT_TRUE(s.Step(9));
  EXPECT_EQ(available(), 5);
  EXPECT_EQ(cache_->Table(s.handle(), 0).size(), 3u);
  EXPECT_THAT(cache_->Need(s.handle(), 12), ElementsAre(0, 0, 0, 0));
  ASSERT_TRUE(s.Step(13));
  EXPECT_EQ(available(), 4);
  EXPECT_THAT(cache_->Releases(s.handle()), ElementsAre(4, 0, 0, 0));
  EXPECT_EQ(cache_->bytes(s.handle()), 4 * 4 * 128);
  s.Check();
  cache_->Close(s.handle());
  EXPECT_EQ(available(), 8);
  EXPECT_EQ(cache_->stats().cached[0], 4);
  EXPECT_EQ(cache_->stats().sequences, 0);
}

TEST_F(KvCacheTest, AReserveThatDoesNotFitChangesNothing) {
  FakeSequence s = Open(Range(0, 40));
  ASSERT_TRUE(s.Step(5));
  EXPECT_FALSE(cache_->Reserve(s.handle(), 33));
  EXPECT_EQ(available(), 6);
  EXPECT_EQ(cache_->Table(s.handle(), 0).size(), 2u);
  EXPECT_TRUE(cache_->Reserve(s.handle(), 32));
}

TEST_F(KvCacheTest, ALaterSequenceFindsThePrefixAndComputesTheRest) {
  Leave(Range(0, 12));
  std::vector<int32_t> tokens = Range(0, 8);
  tokens.push_back(50);
  const PrefixPeek peek = cache_->Peek(tokens, 8);
  EXPECT_EQ(peek.n_tokens, 8);
  EXPECT_THAT(peek.idle, ElementsAre(2, 0, 0, 0));
  FakeSequence s = Open(tokens);
  EXPECT_EQ(s.Attach(8), 8);
  EXPECT_EQ(available(), 6);
  EXPECT_EQ(cache_->length(s.handle()), 8);
  EXPECT_EQ(cache_->prompt_length(s.handle()), 8);
  ASSERT_TRUE(s.Step(9));
  s.Check();
  const KvCacheStats stats = cache_->stats();
  EXPECT_EQ(stats.prefix_lookups, 1);
  EXPECT_EQ(stats.prefix_hits, 1);
  EXPECT_EQ(stats.prefix_hit_tokens, 8);
  EXPECT_EQ(stats.copies, 0);
  // Blocks that are held already are not idle.
  EXPECT_THAT(cache_->Peek(tokens, 8).idle, ElementsAre(0, 0, 0, 0));
}

TEST_F(KvCacheTest, APartialBlockIsCopiedForItsNewWriter) {
  Leave(Range(0, 10));
  FakeSequence s = Open(Range(0, 20));
  EXPECT_EQ(s.Attach(19), 10);
  EXPECT_EQ(cache_->stats().copies, 1);
  ASSERT_TRUE(s.Step(16));
  s.Check();
  // The same in the middle of a whole block: here the tokens differ.
  FakeSequence t = Open({0, 1, 2, 3, 4, 5, 60, 61, 62});
  EXPECT_EQ(t.Attach(8), 6);
  ASSERT_TRUE(t.Step(9));
  t.Check();
  s.Check();
}

TEST_F(KvCacheTest, APartialBlockIsNotTakenWhereNoCopyFits) {
  Leave(Range(0, 12));
  FakeSequence other = Open(Range(100, 120), -1, /*share=*/false);
  ASSERT_TRUE(other.Step(20));
  // 8 blocks: 3 cached, 5 held. Those that are needed themselves make no room for a copy.
  EXPECT_EQ(cache_->Peek(Range(0, 12), 11).n_tokens, 8);
  FakeSequence s = Open(Range(0, 12));
  EXPECT_EQ(s.Attach(11), 8);
  EXPECT_EQ(cache_->stats().copies, 0);
  s.Check();
}

TEST_F(KvCacheTest, TheSameTokensComputedTwiceBecomeOneBlock) {
  FakeSequence a = Open(Range(0, 9));
  FakeSequence b = Open(Range(0, 9));
  ASSERT_TRUE(a.Step(9));
  ASSERT_TRUE(b.Step(9));
  EXPECT_EQ(available(), 8 - 4);  // two blocks in common, one each
  EXPECT_EQ(cache_->Table(a.handle(), 0)[1], cache_->Table(b.handle(), 0)[1]);
  EXPECT_THAT(cache_->Releases(a.handle()), ElementsAre(1, 0, 0, 0));
  a.Check();
  b.Check();
}

TEST_F(KvCacheTest, BlocksOfOtherPhasesOrRootsAreNotExchanged) {
  FakeSequence a = Open(Range(0, 9), 9);
  FakeSequence b = Open(Range(0, 9), 3);
  ASSERT_TRUE(a.Step(9));
  ASSERT_TRUE(b.Step(9));
  EXPECT_NE(cache_->Table(a.handle(), 0)[0], cache_->Table(b.handle(), 0)[0]);
  EXPECT_EQ(cache_->prompt_length(a.handle()), 9);
  EXPECT_EQ(cache_->prompt_length(b.handle()), 3);
  a.Check();
  b.Check();
  EXPECT_EQ(cache_->Peek(Range(0, 9), 8, /*root=*/1).n_tokens, 0);
  EXPECT_EQ(cache_->Peek(Range(0, 9), 8).n_tokens, 8);
}

TEST_F(KvCacheTest, RepliesServeLaterPromptsUnlessStrict) {
  for (const bool strict : {false, true}) {
    Make({Layer(0)}, {.n_blocks = {16}, .strict = strict});
    Leave(Range(0, 16), /*n_prompt=*/6);
    FakeSequence s = Open(Range(0, 20));
    EXPECT_EQ(s.Attach(19), strict ? 6 : 16);
    EXPECT_EQ(cache_->prompt_length(s.handle()), 6);
    ASSERT_TRUE(s.Step(20));
    EXPECT_EQ(cache_->prompt_length(s.handle()), strict ? 20 : 6);
    s.Check();
    // A sequence that lost its blocks and is computed again finds what it computed.
    FakeSequence again = Open(Range(0, 16), 6);
    EXPECT_EQ(again.Attach(15), 15);
    again.Check();
    CheckInvariants();
  }
}

TEST_F(KvCacheTest, NothingIsKeptWithoutSharing) {
  Make({Layer(0)}, {.n_blocks = {8}, .prefix_sharing = false});
  Leave(Range(0, 10));
  EXPECT_EQ(cache_->Peek(Range(0, 10), 9).n_tokens, 0);
  EXPECT_EQ(cache_->stats().free[0], 8);
  Make({Layer(0)}, {.n_blocks = {8}});
  FakeSequence s = Open(Range(0, 10), -1, /*share=*/false);
  ASSERT_TRUE(s.Step(10));
  cache_->Close(s.handle());
  EXPECT_EQ(cache_->stats().free[0], 8);
}

TEST_F(KvCacheTest, OldPrefixesGoFromTheirEnds) {
  Leave(Range(0, 16));
  Leave(Range(100, 116));
  FakeSequence s = Open(Range(200, 208));
  ASSERT_TRUE(s.Step(8));  // evicts two blocks of the first
  EXPECT_EQ(cache_->stats().evicted_blocks, 2);
  EXPECT_EQ(cache_->Peek(Range(0, 16), 16).n_tokens, 8);
  EXPECT_EQ(cache_->Peek(Range(100, 116), 16).n_tokens, 16);
}

TEST_F(KvCacheTest, TwinsShareUntilTheyWrite) {
  FakeSequence a = Open(Range(0, 12), 6);
  ASSERT_TRUE(a.Step(6));
  ASSERT_TRUE(cache_->Reserve(a.handle(), 9));  // what is reserved stays the parent's
  FakeSequence b = a.Fork();
  b.tokens()[7] = 77;
  EXPECT_EQ(cache_->Table(b.handle(), 0).size(), 2u);
  EXPECT_EQ(available(), 5);
  EXPECT_THAT(cache_->Releases(b.handle()), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(cache_->Need(b.handle(), 7), ElementsAre(1, 0, 0, 0));
  ASSERT_TRUE(b.Step(9));
  EXPECT_EQ(cache_->stats().copies, 1);
  EXPECT_THAT(cache_->Need(a.handle(), 7), ElementsAre(0, 0, 0, 0));
  ASSERT_TRUE(a.Step(12));
  a.Check();
  b.Check();
  EXPECT_EQ(cache_->stats().copies, 1);
  cache_->Close(a.handle());
  b.Check();
  EXPECT_EQ(cache_->Peek(Range(0, 12), 12).n_tokens, 12);
}

TEST_F(KvCacheTest, AClosedTwinLeavesNoLeafThatTheOtherWouldHaveToCopy) {
  FakeSequence a = Open(Range(0, 12), 6);
  ASSERT_TRUE(a.Step(6));
  FakeSequence b = a.Fork();
  cache_->Close(a.handle());
  EXPECT_THAT(cache_->Need(b.handle(), 8), ElementsAre(0, 0, 0, 0));
  ASSERT_TRUE(b.Step(8));
  EXPECT_EQ(cache_->stats().copies, 0);
}

TEST_F(KvCacheTest, RejectedTokensAreForgotten) {
  FakeSequence s = Open(Range(0, 14), 6);
  ASSERT_TRUE(s.Step(6));
  ASSERT_TRUE(cache_->Reserve(s.handle(), 14));
  s.Compute(14);
  cache_->Commit(s.handle(), s.tokens(), 7, 6);
  s.Truncate(7);
  EXPECT_EQ(available(), 6);
  EXPECT_EQ(cache_->length(s.handle()), 7);
  s.tokens().resize(7);
  for (const int32_t token : {70, 71, 72}) s.tokens().push_back(token);
  ASSERT_TRUE(s.Step(10));
  s.Check();
  // Back into a block that the tree knows: it is copied before it is written.
  s.Truncate(6);
  EXPECT_THAT(cache_->Need(s.handle(), 7), ElementsAre(1, 0, 0, 0));
  s.tokens().resize(6);
  for (const int32_t token : {80, 81, 82}) s.tokens().push_back(token);
  ASSERT_TRUE(s.Step(9));
  s.Check();
  EXPECT_EQ(cache_->Peek({{0, 1, 2, 3, 4, 5, 6, 70}}, 8).n_tokens, 8);
  EXPECT_EQ(cache_->Peek({{0, 1, 2, 3, 4, 5, 80, 81}}, 8).n_tokens, 8);
}

TEST_F(KvCacheTest, SequencesMoveToTheSwapSpaceAndBack) {
  FakeSequence s = Open(Range(0, 20), 10);
  ASSERT_TRUE(s.Step(14));
  FakeSequence large = Open(Range(100, 120), -1, /*share=*/false);
  ASSERT_TRUE(cache_->SwapOut(s.handle()));
  EXPECT_TRUE(cache_->swapped(s.handle()));
  EXPECT_THAT(cache_->stats().swapped, ElementsAre(4, 0, 0, 0));
  EXPECT_EQ(available(), 8);
  ASSERT_TRUE(large.Step(20));
  EXPECT_FALSE(cache_->SwapOut(large.handle()));  // five blocks, no slot left
  EXPECT_THAT(cache_->SwapNeed(s.handle()), ElementsAre(4, 0, 0, 0));
  EXPECT_FALSE(cache_->SwapIn(s.handle()));
  cache_->Close(large.handle());
  ASSERT_TRUE(cache_->SwapIn(s.handle()));
  EXPECT_EQ(cache_->stats().swapped_in_blocks, 4);
  s.Check();
  ASSERT_TRUE(s.Step(15));
  s.Check();
  // It is back on its way through the tree.
  EXPECT_EQ(cache_->Peek(Range(0, 12), 12).n_tokens, 12);
  EXPECT_THAT(cache_->Peek(Range(0, 12), 12).idle, ElementsAre(0, 0, 0, 0));
}

TEST_F(KvCacheTest, ASwappedInSequenceFindsItsBlocksAgain) {
  FakeSequence s = Open(Range(0, 20), 10);
  ASSERT_TRUE(s.Step(14));
  ASSERT_TRUE(cache_->SwapOut(s.handle()));
  ASSERT_TRUE(cache_->SwapIn(s.handle()));
  EXPECT_EQ(available(), 4);
  EXPECT_EQ(cache_->stats().cached[0], 3);  // of its former life
  ASSERT_TRUE(s.Step(15));
  EXPECT_EQ(cache_->stats().cached[0], 0);
  EXPECT_EQ(cache_->stats().held[0], 4);
  s.Check();
}

TEST_F(KvCacheTest, ASwappedSequenceCanEnd) {
  FakeSequence s = Open(Range(0, 14));
  ASSERT_TRUE(s.Step(14));
  ASSERT_TRUE(cache_->SwapOut(s.handle()));
  cache_->Close(s.handle());
  EXPECT_THAT(cache_->stats().swapped, ElementsAre(0, 0, 0, 0));
}

TEST_F(KvCacheTest, WindowsGiveTheirBlocksBack) {
  Make({Layer(0), Layer(6)}, {.n_blocks = {30}});
  FakeSequence s = Open(Range(0, 40));
  ASSERT_TRUE(s.Step(21));
  // Position 21 sees 16 on.
  const std::span<const int32_t> window = cache_->Table(s.handle(), 1);
  ASSERT_EQ(window.size(), 6u);
  EXPECT_EQ(window[3], -1);
  EXPECT_GE(window[4], 0);
  EXPECT_EQ(cache_->stats().held[0], 6 + 2);
  EXPECT_EQ(cache_->stats().cached[0], 4);
  s.Check();
  // Nobody lost anything: another can begin anywhere in it.
  for (const int64_t n : {3, 8, 11, 20}) EXPECT_EQ(cache_->Peek(Range(0, 21), n).n_tokens, n);
}

TEST_F(KvCacheTest, DroppedPlacesAreUsedAgain) {
  Make({Layer(0), Layer(6)}, {.n_blocks = {30}});
  FakeSequence s = Open(Range(0, 60), 16, /*share=*/false);
  ASSERT_TRUE(s.Step(16));
  cache_->DropPlaces(s.handle(), 9);
  EXPECT_EQ(cache_->dropped(s.handle()), 7);
  EXPECT_EQ(cache_->length(s.handle()), 16);
  EXPECT_EQ(cache_->Table(s.handle(), 0).size(), 3u);
  EXPECT_EQ(cache_->Table(s.handle(), 1).size(), 4u);  // windows go on by position
  EXPECT_THAT(cache_->Need(s.handle(), 19), ElementsAre(0 + 1, 0, 0, 0));
  EXPECT_THAT(cache_->Need(s.handle(), 20), ElementsAre(1 + 1, 0, 0, 0));
  ASSERT_TRUE(cache_->Reserve(s.handle(), 20));
  cache_->Commit(s.handle(), s.tokens(), 20, 16);
  EXPECT_EQ(cache_->Table(s.handle(), 0).size(), 4u);
  EXPECT_EQ(cache_->stats().used_positions, 13 + (20 - 12));
  CheckInvariants();
  cache_->Close(s.handle());
  EXPECT_EQ(available(), 30);
}

TEST_F(KvCacheTest, RowsOfTwinsAreNotMoved) {
  FakeSequence a = Open(Range(0, 8), -1, /*share=*/false);
  ASSERT_TRUE(a.Step(8));
  const FakeSequence b = a.Fork();
  EXPECT_DEATH(cache_->DropPlaces(b.handle(), 4), "which others hold");
}

TEST_F(KvCacheTest, RestoredSequencesTakeOnlyWhatTheyHold) {
  Make({Layer(0), Layer(6)}, {.n_blocks = {8}});
  FakeSequence s = Open(Range(0, 16));
  EXPECT_FALSE(cache_->Reserve(s.handle(), 20));
  ASSERT_TRUE(cache_->ReserveRestored(s.handle(), 16));
  EXPECT_EQ(available(), 8 - 4 - 2);
  CheckInvariants();
  cache_->Commit(s.handle(), s.tokens(), 16, 16);
  CheckInvariants();
  EXPECT_EQ(cache_->Table(s.handle(), 1)[1], -1);
  // The tree knows of its windows only what it has.
  EXPECT_EQ(cache_->Peek(Range(0, 16), 16).n_tokens, 16);
  EXPECT_EQ(cache_->Peek(Range(0, 16), 12).n_tokens, 0);
  cache_->Close(s.handle());
}

TEST_F(KvCacheTest, WasteIsUnderABlockPerSequenceAndGroup) {
  Make({Layer(0), Layer(6), Layer(6)}, {.n_blocks = {200}});
  std::vector<FakeSequence> sequences;
  for (int32_t i = 0; i < 6; ++i) {
    sequences.push_back(Open(Range(100 * i, 100 * i + 40)));
    for (int64_t n = 1 + i; n <= 30 + i; n += 1 + i % 3) {
      ASSERT_TRUE(sequences.back().Step(n));
      const KvCacheStats stats = cache_->stats();
      ASSERT_LT(stats.worst_waste, 4);
      ASSERT_LT(stats.reserved_positions - stats.used_positions, 4 * 3 * (i + 1));
    }
  }
  EXPECT_EQ(cache_->stats().sequences, 6);
}

// The bytes of the formula are those of the held blocks: for every type of cache and every kind of
// layer, at every length, however it was reached.
TEST_F(KvCacheTest, BytesByFormulaAreThePoolsBytes) {
  std::vector<KvSpec> gemma;
  for (int i = 0; i < 12; ++i) {
    gemma.push_back({.heads = 1, .k_dim = 256, .v_dim = 256, .window = i % 6 == 5 ? 0 : 100});
  }
  const std::vector<KvSpec> qwen(28, {.heads = 4, .k_dim = 128, .v_dim = 128});
  const std::vector<KvSpec> latent(27, {.heads = 1, .k_dim = 576, .v_dim = 0});
  for (const std::vector<KvSpec>& layers : {gemma, qwen, latent}) {
    for (const KvType type : AllKvTypes()) {
      if (type == KvType::kKivi2 && layers[0].v_dim == 0) continue;
      SCOPED_TRACE(Name(type));
      const Result<KvLayout> layout =
          KvLayout::Make(layers, {.k_type = type, .v_type = type, .block_size = 16});
      ASSERT_TRUE(layout.has_value());
      const PoolCounts room = layout->BlocksForAll(1, 700, 97);
      FakeKvMemory memory(*layout, room);
      const auto cache = *KvCache::Create(*layout, {.n_blocks = room}, memory);
      const std::vector<int32_t> tokens = Range(0, 700);
      int64_t chunk = 1;
      const SequenceHandle s = cache->Open();
      for (int64_t n = 0; n < 700;) {
        n = std::min<int64_t>(700, n + chunk);
        chunk = chunk * 5 % 97;
        ASSERT_TRUE(cache->Reserve(s, n));
        cache->Commit(s, tokens, n, 300);
        ASSERT_EQ(cache->stats().held_bytes, layout->BytesFor(n)) << n << " tokens";
        ASSERT_EQ(cache->bytes(s), layout->BytesFor(n));
        ASSERT_TRUE(cache->CheckInvariants().has_value());
      }
    }
  }
}

TEST_F(KvCacheTest, TheWholeOfQwen25At2048Tokens) {
  const std::vector<KvSpec> layers(28, {.heads = 4, .k_dim = 128, .v_dim = 128});
  const Result<KvLayout> layout = KvLayout::Make(layers, {});
  const PoolCounts room = layout->BlocksForAll(1, 2048, 512);
  Result<KvStorage> storage = KvStorage::Create(*layout, room);
  ASSERT_TRUE(storage.has_value());
  const auto cache = *KvCache::Create(*layout, {.n_blocks = room}, *storage);
  const std::vector<int32_t> tokens = Range(0, 2048);
  const SequenceHandle s = cache->Open();
  ASSERT_TRUE(cache->Reserve(s, 2048));
  cache->Commit(s, tokens, 2048, 2048);
  EXPECT_EQ(cache->stats().held_bytes, 117440512);
  EXPECT_EQ(storage->bytes(), 117440512);
}

TEST_F(KvCacheTest, Kivi2PacksWhatTheResidualHasLeft) {
  Make({Layer(0)}, {.n_blocks = {20, 20}},
       {.k_type = KvType::kKivi2, .v_type = KvType::kKivi2, .block_size = 16});
  FakeSequence s = Open(Range(0, 300), 200);
  for (int64_t n = 20; n <= 300; n += 20) {
    ASSERT_TRUE(s.Step(n));
    s.Check();
    CheckInvariants();
  }
  EXPECT_EQ(cache_->Table(s.handle(), 0).size(), 10u);  // 172 positions
  EXPECT_EQ(cache_->Table(s.handle(), 1).size(), 19u);
  EXPECT_EQ(cache_->Table(s.handle(), 1)[9], -1);
  cache_->Close(s.handle());
  FakeSequence t = Open(Range(0, 320), 320);
  EXPECT_EQ(t.Attach(319), 300);
  t.Check();
  ASSERT_TRUE(t.Step(320));
  t.Check();
}

TEST_F(KvCacheTest, SwapSpaceThatTheMachineRefusesIsAnError) {
  const KvLayout layout = *KvLayout::Make(std::vector<KvSpec>{Layer(0)}, {});
  const Result<std::unique_ptr<KvCache>> cache =
      KvCache::Create(layout, {.n_blocks = {1}, .swap_blocks = {int64_t{1} << 36}}, *memory_);
  ASSERT_FALSE(cache.has_value());
  EXPECT_EQ(cache.error().code, ErrorCode::kCapacity);
}

TEST_F(KvCacheTest, MisuseStopsTheProgram) {
  FakeSequence s = Open(Range(0, 8));
  EXPECT_DEATH(cache_->Commit(s.handle(), s.tokens(), 4, 4), "4 tokens are committed");
  EXPECT_DEATH(cache_->Close(5), "sequence 5 is not open");
  ASSERT_TRUE(s.Step(8));
  ASSERT_TRUE(cache_->SwapOut(s.handle()));
  EXPECT_DEATH(cache_->Table(s.handle(), 0), "swapped out");
}

}  // namespace
}  // namespace lucid
