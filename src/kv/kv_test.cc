// Cache memory in blocks, and the simple owner of blocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kv/kv_manager.h"
#include "kv/kv_storage.h"

namespace lucid {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(KvStorageTest, EachLayerHasItsOwnMemoryOfItsOwnShape) {
  const std::vector<KvSpec> layers = {{.heads = 2, .k_dim = 16, .v_dim = 8, .window = 0},
                                      {.heads = 1, .k_dim = 4, .v_dim = 4, .window = 32}};
  const auto storage = KvStorage::Create(
      layers, {.n_blocks = 3, .block_size = 16, .k_dtype = DType::kF32, .v_dtype = DType::kF16});
  ASSERT_TRUE(storage.has_value());
  // Per block: layer 0 has 16 positions x 2 heads x (16 x 4 + 8 x 2) bytes, layer 1 16 x 1 x (4 x 4
  // + 4 x 2).
  EXPECT_EQ(storage->bytes_per_block(), 16 * 2 * 80 + 16 * 24);
  EXPECT_EQ(storage->Layer(0).k_dim, 16);
  EXPECT_EQ(storage->Layer(1).n_heads, 1);
  EXPECT_NE(storage->Layer(0).k, storage->Layer(1).k);
  EXPECT_NE(storage->Layer(0).k, storage->Layer(0).v);
}

// Qwen2.5-7B at 2048 tokens: 28 layers x (keys and values) x 4 heads x 2048 tokens x 128 x 2 bytes.
TEST(KvStorageTest, BytesOfQwen25) {
  const std::vector<KvSpec> layers(28, KvSpec{.heads = 4, .k_dim = 128, .v_dim = 128, .window = 0});
  const auto storage = KvStorage::Create(
      layers, {.n_blocks = 64, .block_size = 32, .k_dtype = DType::kF16, .v_dtype = DType::kF16});
  ASSERT_TRUE(storage.has_value());
  EXPECT_EQ(64 * storage->bytes_per_block(), 117440512);
}

TEST(KvStorageTest, RefusesTypesThatKernelsCannotStore) {
  const std::vector<KvSpec> layers = {{.heads = 1, .k_dim = 32, .v_dim = 32, .window = 0}};
  const auto storage = KvStorage::Create(
      layers, {.n_blocks = 1, .block_size = 16, .k_dtype = DType::kQ4_0, .v_dtype = DType::kF16});
  ASSERT_FALSE(storage.has_value());
  EXPECT_THAT(storage.error().message, HasSubstr("Q4_0"));
}

TEST(KvStorageTest, ACacheBeyondTheAddressSpaceIsAnError) {
  const std::vector<KvSpec> layers = {{.heads = 4096, .k_dim = 65536, .v_dim = 65536, .window = 0}};
  const auto storage = KvStorage::Create(layers, {.n_blocks = int64_t{1} << 25,
                                                  .block_size = 32,
                                                  .k_dtype = DType::kF32,
                                                  .v_dtype = DType::kF32});
  ASSERT_FALSE(storage.has_value());
  EXPECT_EQ(storage.error().code, ErrorCode::kCapacity);
}

TEST(ContiguousKvTest, BlocksComeAsTheyAreNeededAndNeverTwice) {
  ContiguousKv kv(2, /*context=*/100, /*block_size=*/32);
  EXPECT_EQ(ContiguousKv::BlockCount(2, 100, 32), 8);
  const SequenceHandle a = *kv.Open(), b = *kv.Open();
  ASSERT_TRUE(kv.Reserve(a, 33).has_value());
  ASSERT_TRUE(kv.Reserve(b, 100).has_value());
  EXPECT_THAT(kv.Blocks(a), ElementsAre(0, 1));
  EXPECT_THAT(kv.Blocks(b), ElementsAre(4, 5, 6, 7));
}

TEST(ContiguousKvTest, SaysWhatDoesNotFit) {
  ContiguousKv kv(1, 100, 32);
  const SequenceHandle a = *kv.Open();
  const Status status = kv.Reserve(a, 101);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().message, "101 tokens do not fit a cache of 100 positions");
  EXPECT_FALSE(kv.Open().has_value());
  kv.Close(a);
  EXPECT_TRUE(kv.Open().has_value());
}

}  // namespace
}  // namespace lucid
