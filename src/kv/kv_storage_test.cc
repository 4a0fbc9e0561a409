#include "kv/kv_storage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace lucid {
namespace {

using testing::HasSubstr;

std::vector<KvSpec> Layers() {
  return {{.heads = 2, .k_dim = 16, .v_dim = 8},
          {.heads = 1, .k_dim = 4, .v_dim = 4, .window = 32},
          {.heads = 2, .k_dim = 16, .v_dim = 8}};
}

KvLayout MakeLayout(std::span<const KvSpec> layers, const KvOptions& options) {
  Result<KvLayout> layout = KvLayout::Make(layers, options);
  EXPECT_TRUE(layout.has_value());
  return *std::move(layout);
}

TEST(KvStorageTest, ViewsSayWhereALayerLies) {
  const KvLayout layout =
      MakeLayout(Layers(), {.k_type = KvType::kF32, .v_type = KvType::kF16, .block_size = 16});
  const Result<KvStorage> storage = KvStorage::Create(layout, {3, 5});
  ASSERT_TRUE(storage.has_value());
  const KvView view = storage->Layer(0);
  EXPECT_EQ(view.n_heads, 2);
  EXPECT_EQ(view.k_dim, 16);
  EXPECT_EQ(view.v_dim, 8);
  EXPECT_EQ(view.block_size, 16);
  EXPECT_EQ(view.layer, 0);
  EXPECT_EQ(view.pages.v_offset, 16 * 2 * 16 * 4);
  EXPECT_EQ(view.pages.page_bytes, 16 * 2 * (16 * 4 + 8 * 2));
  EXPECT_EQ(view.pages.table, 0);
  EXPECT_EQ(view.recent.data, nullptr);
  EXPECT_EQ(storage->Layer(1).pages.table, 1);
  EXPECT_EQ(storage->Layer(2).pages.table, 0);  // layers of one shape share a table
  EXPECT_EQ(storage->Layer(2).layer, 2);
  EXPECT_EQ(storage->bytes(), 3 * 2 * 16 * 2 * 80 + 5 * 16 * 24);
  EXPECT_NE(storage->Layer(0).pages.data, storage->Layer(2).pages.data);
}

TEST(KvStorageTest, Kivi2ViewsHaveRecentPages) {
  const std::vector<KvSpec> layers = {{.heads = 2, .k_dim = 32, .v_dim = 32},
                                      {.heads = 2, .k_dim = 32, .v_dim = 32, .window = 48}};
  const KvLayout layout =
      MakeLayout(layers, {.k_type = KvType::kKivi2, .v_type = KvType::kKivi2, .block_size = 16});
  const Result<KvStorage> storage = KvStorage::Create(layout, {4, 6});
  ASSERT_TRUE(storage.has_value());
  const KvView full = storage->Layer(0);
  ASSERT_NE(full.recent.data, nullptr);
  EXPECT_EQ(full.pages.k_type, KvType::kKivi2);
  EXPECT_EQ(full.recent.k_type, KvType::kF16);
  EXPECT_EQ(full.recent.table, layout.place(0).recent_group);
  EXPECT_EQ(full.recent.page_bytes, 16 * 2 * 64 * 2);
  EXPECT_EQ(full.recent.v_offset, 16 * 2 * 32 * 2);
  const KvView window = storage->Layer(1);
  EXPECT_EQ(window.recent.data, nullptr);
  EXPECT_EQ(window.pages.k_type, KvType::kF16);
  // One pool, two groups: the same slot, found through different tables.
  EXPECT_EQ(window.pages.data, full.recent.data);
  EXPECT_NE(window.pages.table, full.recent.table);
}

TEST(KvStorageTest, BlocksAreCopiedReadAndWrittenWithAllTheirPages) {
  const KvLayout layout = MakeLayout(Layers(), {.block_size = 4});
  Result<KvStorage> storage = KvStorage::Create(layout, {3, 2});
  ASSERT_TRUE(storage.has_value());
  // Every byte of every block of pool 0 gets a number of its own, more or less.
  for (const size_t layer : {0, 2}) {
    const KvPages pages = storage->Layer(layer).pages;
    for (int64_t i = 0; i < 3 * pages.page_bytes; ++i) {
      pages.data[i] = static_cast<std::byte>(i * 7 + static_cast<int64_t>(layer) * 31);
    }
  }
  const auto block_bytes = static_cast<size_t>(layout.pools()[0].block_bytes);
  std::vector<std::byte> first(block_bytes);
  std::vector<std::byte> other(block_bytes);
  storage->ReadBlock(0, 1, first.data());
  storage->ReadBlock(0, 2, other.data());
  EXPECT_NE(first, other);
  const int64_t page = storage->Layer(0).pages.page_bytes;
  EXPECT_EQ(std::memcmp(first.data(), storage->Layer(0).pages.data + page, 64), 0);

  storage->CopyBlock(0, 1, 2);
  storage->ReadBlock(0, 2, other.data());
  EXPECT_EQ(first, other);
  storage->ReadBlock(0, 0, other.data());
  EXPECT_NE(first, other);
  storage->WriteBlock(0, 0, first.data());
  storage->ReadBlock(0, 0, other.data());
  EXPECT_EQ(first, other);
}

TEST(KvStorageTest, MemoryThatTheMachineRefusesIsAnError) {
  const KvLayout layout = MakeLayout(Layers(), {});
  const Result<KvStorage> storage = KvStorage::Create(layout, {int64_t{1} << 40, 1});
  ASSERT_FALSE(storage.has_value());
  EXPECT_EQ(storage.error().code, ErrorCode::kCapacity);
  EXPECT_THAT(storage.error().message, HasSubstr("--kv-memory"));
}

TEST(KvStorageTest, APoolMayBeEmpty) {
  const KvLayout layout = MakeLayout(Layers(), {});
  const Result<KvStorage> storage = KvStorage::Create(layout, {1, 0});
  ASSERT_TRUE(storage.has_value());
  // Its layers have an address, so that it takes a block too.
  EXPECT_EQ(storage->bytes(), layout.pools()[0].block_bytes + layout.pools()[1].block_bytes);
}

}  // namespace
}  // namespace lucid
