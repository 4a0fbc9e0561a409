// Random lives of sequences on tiny pools: after every operation the cache's invariants hold and
// every sequence reads what it wrote.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <random>

#include "base/check.h"
#include "kv/kv_test_util.h"

namespace lucid {
namespace {

struct RandomCase {
  const char* name;
  std::vector<KvSpec> layers;
  KvOptions options;
  PoolCounts n_blocks;
  int64_t max_length;
  bool strict;

  friend void PrintTo(const RandomCase& c, std::ostream* out) { *out << c.name; }
};

KvSpec Layer(int64_t window) {
  return {.heads = 1, .k_dim = 32, .v_dim = 32, .window = window};
}

std::vector<RandomCase> Cases() {
  const KvOptions f32{.k_type = KvType::kF32, .v_type = KvType::kF32, .block_size = 4};
  const KvOptions kivi{.k_type = KvType::kKivi2, .v_type = KvType::kKivi2, .block_size = 16};
  const std::vector<KvSpec> full = {Layer(0)};
  const std::vector<KvSpec> mixed = {Layer(0), Layer(6), Layer(6), Layer(11)};
  const std::vector<KvSpec> windows = {Layer(6), Layer(2), Layer(13)};
  return {
      {"Full", full, f32, {24}, 40, false},
      {"FullStrict", full, f32, {24}, 40, true},
      {"Mixed", mixed, f32, {60}, 40, false},
      {"MixedStrict", mixed, f32, {60}, 40, true},
      {"WindowsOnly", windows, f32, {40}, 40, false},
      {"Kivi", {Layer(0), Layer(0)}, kivi, {24, 44}, 260, false},
      {"KiviAndWindow", {Layer(0), Layer(20), Layer(20)}, kivi, {24, 60}, 260, true},
  };
}

class KvCacheRandomTest : public testing::TestWithParam<RandomCase> {
 protected:
  // Prompts are pieces of a few texts, so that prefixes are shared in all ways.
  std::vector<int32_t> Prompt() {
    const int64_t n = Draw(1, GetParam().max_length - 8);
    std::vector<int32_t> tokens;
    const int64_t text = Draw(0, 2);
    for (int64_t i = 0; i < n; ++i) {
      tokens.push_back(static_cast<int32_t>((i * 7 + (i > n / 2 ? text : 0)) % 5));
    }
    if (Draw(0, 2) == 0) tokens[static_cast<size_t>(Draw(0, n - 1))] = 9;
    return tokens;
  }
  int64_t Draw(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  static PoolCounts Minus(const PoolCounts& a, const PoolCounts& b) {
    PoolCounts c{};
    for (size_t p = 0; p < a.size(); ++p) c[p] = a[p] - b[p];
    return c;
  }

  void OpenOne() {
    std::vector<int32_t> tokens = Prompt();
    int64_t n_prompt = std::ssize(tokens);
    // Some take up what another said so far, as a prompt or to compute it again.
    if (!sequences_.empty() && Draw(0, 2) == 0) {
      const FakeSequence& other = Pick();
      tokens = other.tokens();
      n_prompt = Draw(0, 1) == 0 ? std::ssize(tokens) : other.n_prompt();
    }
    const uint64_t root = static_cast<uint64_t>(Draw(0, 9) == 0);
    const bool share = Draw(0, 9) != 0;
    const int64_t most = std::ssize(tokens) - Draw(0, 1);
    const PrefixPeek peek = cache_->Peek(tokens, most, root, n_prompt);
    FakeSequence s(*cache_, *memory_, std::move(tokens), n_prompt, cache_->Open(share, root));
    const PoolCounts before = cache_->available();
    const int64_t copies = cache_->stats().copies;
    const int64_t n = s.Attach(most);
    ASSERT_EQ(n, share ? peek.n_tokens : 0);
    ASSERT_LE(n, most);
    int64_t taken = 0;
    const PoolCounts fallen = Minus(before, cache_->available());
    for (size_t p = 0; p < fallen.size(); ++p) taken += fallen[p] - (share ? peek.idle[p] : 0);
    ASSERT_EQ(taken, cache_->stats().copies - copies);
    if (cache_->options().strict) {
      ASSERT_EQ(cache_->prompt_length(s.handle()), std::min(n, n_prompt));
    }
    hits_ += n > 0;
    sequences_.push_back(std::move(s));
  }

  FakeSequence& Pick() {
    return sequences_[static_cast<size_t>(Draw(0, std::ssize(sequences_) - 1))];
  }

  void StepOne(FakeSequence& s) {
    if (cache_->swapped(s.handle())) {
      const PoolCounts need = cache_->SwapNeed(s.handle());
      const PoolCounts before = cache_->available();
      if (cache_->SwapIn(s.handle())) {
        ASSERT_EQ(Minus(before, cache_->available()), need);
        ++swap_ins_;
      }
      return;
    }
    int64_t n = s.length() + Draw(1, Draw(0, 1) == 0 ? 2 : 12);
    n = std::min(n, GetParam().max_length);
    while (std::ssize(s.tokens()) < n) s.tokens().push_back(static_cast<int32_t>(Draw(0, 2)));
    if (n <= s.length()) return;
    const PoolCounts need = cache_->Need(s.handle(), n);
    const PoolCounts before = cache_->available();
    bool fits = true;
    for (size_t p = 0; p < need.size(); ++p) fits = fits && need[p] <= before[p];
    ASSERT_EQ(cache_->Reserve(s.handle(), n), fits);
    if (!fits) {
      ASSERT_EQ(cache_->available(), before);
      return;
    }
    // Copied blocks may become available once left alone, so the figure is a bound.
    for (size_t p = 0; p < need.size(); ++p) {
      ASSERT_GE(need[p], before[p] - cache_->available()[p]);
    }
    ASSERT_EQ(cache_->Need(s.handle(), n), PoolCounts{});
    // Sometimes fewer tokens are accepted than were computed.
    s.Compute(n);
    const int64_t accepted = Draw(0, 4) == 0 ? Draw(s.length(), n) : n;
    cache_->Commit(s.handle(), s.tokens(), accepted, s.n_prompt());
    if (accepted < n) s.Truncate(accepted);
  }

  void ForkOne(const FakeSequence& s) {
    if (!cache_->swapped(s.handle())) sequences_.push_back(s.Fork());
  }
  void TruncateOne(FakeSequence& s) {
    if (cache_->swapped(s.handle()) || s.length() == 0) return;
    // Windows must still reach what they need.
    const KvLayout& layout = cache_->layout();
    int64_t least = 0;
    for (size_t g = 0; g < layout.groups().size(); ++g) {
      const std::span<const int32_t> table = cache_->Table(s.handle(), g);
      const auto there = std::ranges::find_if(table, [](int32_t block) { return block >= 0; });
      const int64_t first = there - table.begin();
      for (int64_t n = least; n <= s.length(); ++n) {
        if (layout.Needed(g, n, n).first >= first) break;
        least = n + 1;
      }
    }
    if (least <= s.length()) s.Truncate(Draw(least, s.length()));
  }
  void SwapOne(FakeSequence& s) {
    if (!cache_->swapped(s.handle()) && cache_->SwapOut(s.handle())) ++swap_outs_;
  }
  void CloseOne() {
    const size_t i = static_cast<size_t>(Draw(0, std::ssize(sequences_) - 1));
    const SequenceHandle handle = sequences_[i].handle();
    const PoolCounts releases = cache_->Releases(handle);
    const PoolCounts before = cache_->available();
    cache_->Close(handle);
    ASSERT_EQ(Minus(cache_->available(), before), releases);
    sequences_.erase(sequences_.begin() + static_cast<std::ptrdiff_t>(i));
  }

  void Live(int n_operations) {
    for (int i = 0; i < n_operations; ++i) {
      const int64_t what = sequences_.empty() ? 0 : Draw(0, 99);
      if (what < 10) {
        if (sequences_.size() < 6) OpenOne();
      } else if (what < 80) {
        StepOne(Pick());
      } else if (what < 84) {
        if (sequences_.size() < 6) ForkOne(Pick());
      } else if (what < 87) {
        TruncateOne(Pick());
      } else if (what < 92) {
        SwapOne(Pick());
      } else {
        CloseOne();
      }
      ASSERT_FALSE(HasFatalFailure()) << "operation " << i << " of kind " << what;
      const Status status = cache_->CheckInvariants();
      ASSERT_TRUE(status.has_value())
          << status.error().message << ", operation " << i << " of kind " << what;
      for (FakeSequence& s : sequences_) {
        ASSERT_NO_FATAL_FAILURE(s.Check()) << "operation " << i << " of kind " << what;
      }
    }
  }

  std::mt19937_64 random_;
  std::unique_ptr<FakeKvMemory> memory_;
  std::unique_ptr<KvCache> cache_;
  std::vector<FakeSequence> sequences_;
  int64_t hits_ = 0;
  int64_t swap_outs_ = 0;
  int64_t swap_ins_ = 0;
};

TEST_P(KvCacheRandomTest, InvariantsHoldAndNobodyReadsAnothersTokens) {
  const RandomCase& param = GetParam();
  const Result<KvLayout> layout = KvLayout::Make(param.layers, param.options);
  ASSERT_TRUE(layout.has_value());
  int64_t evicted = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    random_.seed(seed);
    memory_ = std::make_unique<FakeKvMemory>(*layout, param.n_blocks);
    PoolCounts swap{};
    for (size_t p = 0; p < swap.size(); ++p) swap[p] = param.n_blocks[p] / 2;
    Result<std::unique_ptr<KvCache>> cache = KvCache::Create(
        *layout, {.n_blocks = param.n_blocks, .swap_blocks = swap, .strict = param.strict},
        *memory_);
    ASSERT_TRUE(cache.has_value());
    cache_ = *std::move(cache);
    sequences_.clear();
    ASSERT_NO_FATAL_FAILURE(Live(400));
    while (!sequences_.empty()) ASSERT_NO_FATAL_FAILURE(CloseOne());
    ASSERT_TRUE(cache_->CheckInvariants().has_value());
    const KvCacheStats stats = cache_->stats();
    EXPECT_EQ(stats.held, PoolCounts{});
    EXPECT_EQ(stats.swapped, PoolCounts{});
    evicted += stats.evicted_blocks;
  }
  // The lives were eventful.
  EXPECT_GT(hits_, 500);
  EXPECT_GT(evicted, 500);
  EXPECT_GT(swap_outs_, 100);
  EXPECT_GT(swap_ins_, 50);
}

INSTANTIATE_TEST_SUITE_P(Layouts, KvCacheRandomTest, testing::ValuesIn(Cases()),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace lucid
