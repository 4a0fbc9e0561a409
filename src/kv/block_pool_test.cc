#include "kv/block_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lucid {
namespace {

using testing::ElementsAre;

void ExpectCounts(const BlockPool& pool, int64_t free, int64_t cached, int64_t held) {
  EXPECT_EQ(pool.free(), free);
  EXPECT_EQ(pool.cached(), cached);
  EXPECT_EQ(pool.held(), held);
  EXPECT_EQ(pool.available(), free + cached);
  const Status status = pool.CheckInvariants();
  EXPECT_TRUE(status.has_value()) << status.error().message;
}

TEST(BlockPoolTest, BlocksAreFreeHeldOrCached) {
  BlockPool pool(3);
  ExpectCounts(pool, 3, 0, 0);
  const int32_t a = pool.Take();
  const int32_t b = pool.Take();
  ExpectCounts(pool, 1, 0, 2);
  pool.Remember(a);
  EXPECT_TRUE(pool.remembered(a));
  pool.Release(a);
  pool.Release(b);
  ExpectCounts(pool, 2, 1, 0);
  pool.Hold(a);  // found again
  ExpectCounts(pool, 2, 0, 1);
  pool.Forget(a);
  ExpectCounts(pool, 2, 0, 1);
  pool.Release(a);
  ExpectCounts(pool, 3, 0, 0);
}

TEST(BlockPoolTest, ABlockStaysHeldUntilItsLastHolderGoes) {
  BlockPool pool(1);
  const int32_t a = pool.Take();
  pool.Hold(a);
  EXPECT_EQ(pool.holders(a), 2);
  pool.Release(a);
  ExpectCounts(pool, 0, 0, 1);
  EXPECT_EQ(pool.Take(), -1);
  pool.Release(a);
  ExpectCounts(pool, 1, 0, 0);
}

TEST(BlockPoolTest, CachedBlocksAreTakenByTheTimeOfTheirRelease) {
  BlockPool pool(3);
  std::vector<int32_t> evicted;
  pool.OnEvict([&](int32_t block) { evicted.push_back(block); });
  for (int i = 0; i < 3; ++i) pool.Remember(pool.Take());
  for (const int32_t block : {1, 0, 2}) pool.Release(block);
  pool.Hold(1);  // used again: now the newest
  pool.Release(1);
  EXPECT_EQ(pool.Take(), 0);
  EXPECT_EQ(pool.Take(), 2);
  EXPECT_EQ(pool.Take(), 1);
  EXPECT_EQ(pool.Take(), -1);
  EXPECT_THAT(evicted, ElementsAre(0, 2, 1));
  EXPECT_EQ(pool.evictions(), 3);
  EXPECT_FALSE(pool.remembered(0));
  ExpectCounts(pool, 0, 0, 3);
}

TEST(BlockPoolTest, FreeBlocksAreTakenBeforeCachedOnes) {
  BlockPool pool(2);
  pool.OnEvict([](int32_t block) { ADD_FAILURE() << "block " << block << " was evicted"; });
  const int32_t a = pool.Take();
  pool.Remember(a);
  pool.Release(a);
  EXPECT_NE(pool.Take(), a);
  ExpectCounts(pool, 0, 1, 1);
}

TEST(BlockPoolTest, WhoIsToldOfAnEvictionMayForgetMore) {
  BlockPool pool(4);
  pool.OnEvict([&](int32_t) {
    for (int32_t block = 0; block < 4; ++block) pool.Forget(block);
  });
  for (int i = 0; i < 4; ++i) pool.Remember(pool.Take());
  for (const int32_t block : {3, 2, 1}) pool.Release(block);
  EXPECT_EQ(pool.Take(), 3);
  // 1 and 2 are free without having been evicted; 0 is held and will be free.
  ExpectCounts(pool, 2, 0, 2);
  EXPECT_EQ(pool.evictions(), 1);
  pool.Release(0);
  ExpectCounts(pool, 3, 0, 1);
}

TEST(BlockPoolTest, APoolOfNoBlocksGivesNone) {
  BlockPool pool(0);
  EXPECT_EQ(pool.Take(), -1);
  ExpectCounts(pool, 0, 0, 0);
}

TEST(BlockPoolDeathTest, MisuseStopsTheProgram) {
  BlockPool pool(1);
  EXPECT_DEATH(pool.Hold(0), "block 0 is free");
  EXPECT_DEATH(pool.Release(0), "released by nobody");
  EXPECT_DEATH(pool.Remember(0), "cannot be remembered");
}

}  // namespace
}  // namespace lucid
