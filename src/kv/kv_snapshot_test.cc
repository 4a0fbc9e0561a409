// Snapshots of real caches, with and without windows, by memory and by file; and what damaged files
// say.
#include "kv/kv_snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>

namespace lucid {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kFingerprint = 0x1234567890abcdef;

struct Case {
  std::string name;
  std::vector<KvSpec> layers;
  KvOptions options;
};

std::vector<Case> Cases() {
  const KvSpec full{.heads = 2, .k_dim = 16, .v_dim = 16};
  const KvSpec window{.heads = 2, .k_dim = 16, .v_dim = 16, .window = 40};
  return {
      {"full", {full, full}, {.block_size = 16}},
      {"windows", {window, full, window, window}, {.block_size = 16}},
      {"int8", {full, window}, {KvType::kInt8, KvType::kInt8, 32}},
      {"kivi2", {full, full}, {KvType::kKivi2, KvType::kKivi2, 32}},
  };
}

// A cache with room for `context` tokens of a few sequences.
struct Cache {
  explicit Cache(const Case& c, int64_t context = 512) {
    const KvLayout layout = KvLayout::Make(c.layers, c.options).value();
    const PoolCounts n_blocks = layout.BlocksForAll(2, context, context);
    storage = std::make_unique<KvStorage>(KvStorage::Create(layout, n_blocks).value());
    cache = KvCache::Create(layout, {.n_blocks = n_blocks}, *storage).value();
  }
  // A sequence with `tokens`, computed in steps of `step`, whose blocks hold bytes drawn from
  // `seed`.
  SequenceHandle Fill(const std::vector<int32_t>& tokens, int64_t n_prompt, int64_t step,
                      unsigned seed) {
    std::mt19937 rng(seed);
    const SequenceHandle sequence = cache->Open();
    const KvLayout& layout = cache->layout();
    const int64_t n_tokens = std::ssize(tokens);
    for (int64_t done = 0; done < n_tokens;) {
      const int64_t end = std::min(done + step, n_tokens);
      EXPECT_TRUE(cache->Reserve(sequence, end));
      for (size_t g = 0; g < layout.groups().size(); ++g) {
        const BlockRange blocks = layout.Needed(g, done, end);
        const int32_t pool = layout.groups()[g].pool;
        std::vector<std::byte> bytes(
            static_cast<size_t>(layout.pools()[static_cast<size_t>(pool)].block_bytes));
        // Blocks that this step writes to.
        for (int64_t b = done / layout.block_size(); b < blocks.last; ++b) {
          for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng());
          const int32_t physical = cache->Table(sequence, g)[static_cast<size_t>(b)];
          if (physical >= 0) cache->memory().WriteBlock(pool, physical, bytes.data());
        }
      }
      cache->Commit(sequence, tokens, end, n_prompt);
      done = end;
    }
    return sequence;
  }
  // How many blocks nobody holds.
  int64_t available() const {
    int64_t sum = 0;
    for (const int64_t n : cache->available()) sum += n;
    return sum;
  }

  std::unique_ptr<KvStorage> storage;
  std::unique_ptr<KvCache> cache;
};

std::vector<int32_t> SomeTokens(int64_t n, int32_t first = 100) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < n; ++i) tokens.push_back(first + static_cast<int32_t>(i % 37));
  return tokens;
}

void ExpectSame(const KvSnapshot& a, const KvSnapshot& b) {
  EXPECT_EQ(a.fingerprint, b.fingerprint);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.n_prompt, b.n_prompt);
  ASSERT_EQ(a.groups.size(), b.groups.size());
  for (size_t g = 0; g < a.groups.size(); ++g) {
    EXPECT_EQ(a.groups[g].first_block, b.groups[g].first_block);
    EXPECT_EQ(a.groups[g].n_blocks, b.groups[g].n_blocks);
  }
  EXPECT_EQ(a.blocks, b.blocks);
}

class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "lucid_kv.XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() { std::filesystem::remove_all(path_); }
  std::string File(const std::string& name) const { return path_ + "/" + name; }
  std::string Put(const std::string& name, const std::string& content) const {
    std::ofstream(File(name), std::ios::binary) << content;
    return File(name);
  }

 private:
  std::string path_;
};

std::string Content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(KvSnapshotTest, AnotherCacheGoesOnWithTheSameBytes) {
  for (const Case& c : Cases()) {
    for (const int64_t n : {0, 1, 15, 16, 64, 100, 256, 300}) {
      SCOPED_TRACE(c.name + " " + std::to_string(n));
      Cache from(c);
      const std::vector<int32_t> tokens = SomeTokens(n);
      const SequenceHandle sequence = from.Fill(tokens, n, 33, 1);
      const KvSnapshot snapshot = TakeSnapshot(*from.cache, sequence, tokens, kFingerprint);
      EXPECT_EQ(snapshot.n_prompt, n);

      Cache to(c);
      const SequenceHandle restored = to.cache->Open();
      const Status status = RestoreSnapshot(*to.cache, restored, snapshot, kFingerprint);
      ASSERT_TRUE(status) << status.error().message;
      EXPECT_EQ(to.cache->length(restored), n);
      ExpectSame(TakeSnapshot(*to.cache, restored, tokens, kFingerprint), snapshot);
      EXPECT_TRUE(to.cache->CheckInvariants());
      // It can grow.
      EXPECT_TRUE(to.cache->Reserve(restored, n + 20));
      to.cache->Close(restored);
      EXPECT_TRUE(to.cache->CheckInvariants());
    }
  }
}

TEST(KvSnapshotTest, NothingOfABlocksEarlierOwnersIsInIt) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    Cache cache(c);
    const std::vector<int32_t> tokens = SomeTokens(3);
    // Fill writes whole blocks of random bytes.
    const KvSnapshot snapshot =
        TakeSnapshot(*cache.cache, cache.Fill(tokens, 3, 3, 7), tokens, kFingerprint);
    int64_t row_bytes = 0;  // of one token
    for (const KvSpec& spec : c.layers) {
      const bool kivi = c.options.k_type == KvType::kKivi2;  // recent tokens are float16
      row_bytes += spec.heads * KvRowBytes(kivi ? KvType::kF16 : c.options.k_type, spec.k_dim);
      row_bytes += spec.heads * KvRowBytes(kivi ? KvType::kF16 : c.options.v_type, spec.v_dim);
    }
    const auto set =
        std::ranges::count_if(snapshot.blocks, [](std::byte byte) { return byte != std::byte{0}; });
    EXPECT_LE(set, 3 * row_bytes);
    EXPECT_GT(set, 2 * row_bytes);
  }
}

TEST(KvSnapshotTest, WhatWasRestoredIsFoundAsAPrefix) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    Cache from(c);
    std::vector<int32_t> tokens = SomeTokens(150);
    const SequenceHandle sequence = from.Fill(tokens, 150, 64, 2);
    const KvSnapshot snapshot = TakeSnapshot(*from.cache, sequence, tokens, kFingerprint);
    // What the cache finds of its own sequence, once that is closed.
    from.cache->Close(sequence);
    const SequenceHandle own = from.cache->Open();
    const int64_t found_there = from.cache->Attach(own, tokens, 150);

    Cache to(c);
    const SequenceHandle restored = to.cache->Open();
    ASSERT_TRUE(RestoreSnapshot(*to.cache, restored, snapshot, kFingerprint));
    to.cache->Close(restored);
    tokens.push_back(7);  // the next turn
    const SequenceHandle next = to.cache->Open();
    EXPECT_EQ(to.cache->Attach(next, tokens, 150), found_there);
    EXPECT_GE(found_there, 128);
    tokens.resize(static_cast<size_t>(found_there));
    KvSnapshot again = TakeSnapshot(*to.cache, next, tokens, kFingerprint);
    if (found_there == 150) ExpectSame(again, snapshot);
    EXPECT_TRUE(to.cache->CheckInvariants());
  }
}

TEST(KvSnapshotTest, AShorterPrefixIsNeverFoundWithoutItsWindow) {
  // The snapshot holds the window's newest blocks only: a prefix that needs older ones must be
  // computed.
  Case c = Cases()[1];
  Cache from(c);
  const std::vector<int32_t> tokens = SomeTokens(200);
  const SequenceHandle sequence = from.Fill(tokens, 200, 64, 3);
  const KvSnapshot snapshot = TakeSnapshot(*from.cache, sequence, tokens, kFingerprint);
  from.cache->Close(sequence);
  Cache to(c);
  const SequenceHandle restored = to.cache->Open();
  ASSERT_TRUE(RestoreSnapshot(*to.cache, restored, snapshot, kFingerprint));
  to.cache->Close(restored);
  for (const int64_t n : {32, 64, 100, 128}) {
    std::vector<int32_t> other(tokens.begin(), tokens.begin() + n);
    other.push_back(5);
    EXPECT_EQ(to.cache->Peek(other, n).n_tokens, 0) << n;
  }
  EXPECT_EQ(to.cache->Peek(tokens, 200).n_tokens, from.cache->Peek(tokens, 200).n_tokens);
}

TEST(KvSnapshotTest, GeneratedTokensStayGenerated) {
  const Case c = Cases()[0];
  Cache from(c);
  const std::vector<int32_t> tokens = SomeTokens(90);
  const SequenceHandle sequence = from.Fill(tokens, 60, 30, 4);
  const KvSnapshot snapshot = TakeSnapshot(*from.cache, sequence, tokens, kFingerprint);
  EXPECT_EQ(snapshot.n_prompt, 60);
  Cache to(c);
  const SequenceHandle restored = to.cache->Open();
  ASSERT_TRUE(RestoreSnapshot(*to.cache, restored, snapshot, kFingerprint));
  EXPECT_EQ(to.cache->prompt_length(restored), 60);
}

TEST(KvSnapshotTest, RefusesWhatBelongsElsewhere) {
  const Case c = Cases()[0];
  Cache from(c);
  const std::vector<int32_t> tokens = SomeTokens(50);
  const SequenceHandle sequence = from.Fill(tokens, 50, 50, 5);
  const KvSnapshot good = TakeSnapshot(*from.cache, sequence, tokens, kFingerprint);

  Cache to(c);
  const SequenceHandle empty = to.cache->Open();
  const auto refused = [&](const KvSnapshot& snapshot, uint64_t fingerprint) {
    const Status status = RestoreSnapshot(*to.cache, empty, snapshot, fingerprint);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(status.error().message,
              "the saved cache belongs to another model or another cache type");
    EXPECT_EQ(to.cache->length(empty), 0);
  };
  refused(good, kFingerprint + 1);
  KvSnapshot bad = good;
  bad.groups.pop_back();
  refused(bad, kFingerprint);
  bad = good;
  bad.groups[0].first_block = 1;
  refused(bad, kFingerprint);
  bad = good;
  bad.groups[0].n_blocks = int64_t{1} << 60;
  refused(bad, kFingerprint);
  bad = good;
  bad.blocks.pop_back();
  refused(bad, kFingerprint);
  bad = good;
  bad.n_prompt = 51;
  refused(bad, kFingerprint);
  bad = good;
  bad.tokens.resize(500);
  refused(bad, kFingerprint);
  EXPECT_TRUE(RestoreSnapshot(*to.cache, empty, good, kFingerprint));
}

TEST(KvSnapshotTest, SaysWhenThereIsNoRoom) {
  const Case c = Cases()[0];
  Cache from(c);
  const std::vector<int32_t> tokens = SomeTokens(400);
  const KvSnapshot snapshot =
      TakeSnapshot(*from.cache, from.Fill(tokens, 400, 100, 6), tokens, kFingerprint);
  Cache to(c, 100);
  const int64_t before = to.available();
  const SequenceHandle sequence = to.cache->Open();
  const Status status = RestoreSnapshot(*to.cache, sequence, snapshot, kFingerprint);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kCapacity);
  EXPECT_THAT(status.error().message, HasSubstr("25 cache blocks"));
  EXPECT_THAT(status.error().message, HasSubstr(std::to_string(before) + " are available"));
  EXPECT_EQ(to.cache->length(sequence), 0);
  EXPECT_EQ(to.available(), before);
  EXPECT_TRUE(to.cache->CheckInvariants());
}

KvSnapshot SmallSnapshot() {
  KvSnapshot snapshot{.fingerprint = kFingerprint, .tokens = {5, 6, 7}, .n_prompt = 2};
  snapshot.groups = {{0, 1}, {3, 2}};
  for (int i = 0; i < 500; ++i) snapshot.blocks.push_back(static_cast<std::byte>(i * 7));
  return snapshot;
}

TEST(KvSnapshotFileTest, ReadsWhatItWrote) {
  const TempFolder folder;
  const std::string path = folder.File("session.kv");
  ASSERT_TRUE(WriteSnapshotFile(path, SmallSnapshot()));
  const Result<KvSnapshot> read = ReadSnapshotFile(path);
  ASSERT_TRUE(read) << read.error().message;
  ExpectSame(*read, SmallSnapshot());

  ASSERT_TRUE(WriteSnapshotFile(path, KvSnapshot{}));  // replaces it
  const Result<KvSnapshot> empty = ReadSnapshotFile(path);
  ASSERT_TRUE(empty) << empty.error().message;
  ExpectSame(*empty, KvSnapshot{});
  // No temporary file is left.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.File("")), {}), 1);
}

TEST(KvSnapshotFileTest, AFlippedBitInAnyByteIsFound) {
  const TempFolder folder;
  const std::string path = folder.File("session.kv");
  ASSERT_TRUE(WriteSnapshotFile(path, SmallSnapshot()));
  const std::string good = Content(path);
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
    const Result<KvSnapshot> read = ReadSnapshotFile(folder.Put("bad.kv", bad));
    ASSERT_FALSE(read) << "byte " << i;
    ASSERT_EQ(read.error().code, ErrorCode::kInvalidFile) << read.error().message;
    ASSERT_THAT(read.error().message, HasSubstr("bad.kv"));
  }
}

TEST(KvSnapshotFileTest, EveryOtherLengthIsFound) {
  const TempFolder folder;
  const std::string path = folder.File("session.kv");
  ASSERT_TRUE(WriteSnapshotFile(path, SmallSnapshot()));
  const std::string good = Content(path);
  for (size_t size = 0; size < good.size(); ++size) {
    const Result<KvSnapshot> read = ReadSnapshotFile(folder.Put("cut.kv", good.substr(0, size)));
    ASSERT_FALSE(read) << size;
    ASSERT_EQ(read.error().code, ErrorCode::kInvalidFile) << read.error().message;
  }
  const Result<KvSnapshot> longer = ReadSnapshotFile(folder.Put("long.kv", good + "x"));
  ASSERT_FALSE(longer);
  EXPECT_EQ(longer.error().code, ErrorCode::kInvalidFile);
}

TEST(KvSnapshotFileTest, SizesThatTheFileHasNotAreNotAllocated) {
  const TempFolder folder;
  const std::string path = folder.File("session.kv");
  ASSERT_TRUE(WriteSnapshotFile(path, SmallSnapshot()));
  const std::string good = Content(path);
  // n_groups, n_tokens, block_bytes: where the header has them, and how many bytes each takes.
  for (const auto& [offset, bytes] : {std::pair{12u, 4u}, {24u, 8u}, {40u, 8u}}) {
    for (const uint64_t size : {~uint64_t{0}, uint64_t{1} << 62, uint64_t{1} << 40,
                                ~uint64_t{0} / 4, ~uint64_t{0} - 600}) {
      std::string bad = good;
      std::memcpy(bad.data() + offset, &size, bytes);
      if (bad == good) continue;
      const Result<KvSnapshot> read = ReadSnapshotFile(folder.Put("bad.kv", bad));
      ASSERT_FALSE(read);
      EXPECT_EQ(read.error().code, ErrorCode::kInvalidFile) << read.error().message;
    }
  }
}

TEST(KvSnapshotFileTest, WhatIsNoSuchFile) {
  const TempFolder folder;
  const auto code = [](const std::string& path) {
    const Result<KvSnapshot> read = ReadSnapshotFile(path);
    EXPECT_FALSE(read);
    return read ? ErrorCode::kCancelled : read.error().code;
  };
  EXPECT_EQ(code(folder.File("missing")), ErrorCode::kNotFound);
  EXPECT_EQ(code(folder.File("")), ErrorCode::kInvalidFile);  // a folder
  EXPECT_EQ(code(folder.Put("empty", "")), ErrorCode::kInvalidFile);
  EXPECT_EQ(code(folder.Put("text", std::string(200, 'x'))), ErrorCode::kInvalidFile);
  ASSERT_EQ(::mkfifo(folder.File("pipe").c_str(), 0600), 0);
  EXPECT_EQ(code(folder.File("pipe")), ErrorCode::kInvalidFile);
  const Status written = WriteSnapshotFile(folder.File("no/such/folder"), SmallSnapshot());
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace lucid
