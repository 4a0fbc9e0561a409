// The policies on hand-made attention, and evictors on a real cache whose rows say which token they
// belong to. A second, plain simulation of every head (a list of positions with their sums) says
// what must be where.
#include "kv/eviction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace lucid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<int32_t> Range(int32_t first, int32_t last) {
  std::vector<int32_t> places(static_cast<size_t>(last - first));
  std::iota(places.begin(), places.end(), first);
  return places;
}

TEST(KvPolicyTest, NamesGoBothWays) {
  for (const KvPolicy policy : AllKvPolicies()) EXPECT_EQ(KvPolicyFromName(Name(policy)), policy);
  EXPECT_EQ(AllKvPolicies().size(), 4u);
  EXPECT_FALSE(KvPolicyFromName("streaming"));
}

TEST(PlacesToKeepTest, EveryPolicyKeepsAllThatFits) {
  const std::vector<float> scores(10, 1.0f);
  for (const KvPolicy policy : AllKvPolicies()) {
    EXPECT_EQ(PlacesToKeep(policy, scores, 10, 10), Range(0, 10)) << Name(policy);
    EXPECT_EQ(PlacesToKeep(policy, scores, 10, 12), Range(0, 10)) << Name(policy);
  }
  EXPECT_EQ(PlacesToKeep(KvPolicy::kFull, {}, 10, 3), Range(0, 10));
}

TEST(PlacesToKeepTest, WindowSinkKeepsTheFirstFourAndTheNewest) {
  EXPECT_THAT(PlacesToKeep(KvPolicy::kWindowSink, {}, 20, 7), ElementsAre(0, 1, 2, 3, 17, 18, 19));
}

TEST(PlacesToKeepTest, H2oKeepsTheLargestSumsAndTheNewest) {
  //                                 0  1  2  3  4  5  6  7  8  9
  const std::vector<float> scores = {1, 9, 2, 8, 3, 7, 4, 6, 5, 0};
  // Half of 6 are the newest (7, 8, 9); of the others 1, 3 and 5 have the largest sums.
  EXPECT_THAT(PlacesToKeep(KvPolicy::kH2o, scores, 10, 6), ElementsAre(1, 3, 5, 7, 8, 9));
  // The odd one is a newest place.
  EXPECT_THAT(PlacesToKeep(KvPolicy::kH2o, scores, 10, 5), ElementsAre(1, 3, 7, 8, 9));
}

TEST(PlacesToKeepTest, OfEqualSumsTheLowerPlaceIsKept) {
  const std::vector<float> scores = {2, 5, 5, 5, 2, 2, 0, 0};
  EXPECT_THAT(PlacesToKeep(KvPolicy::kH2o, scores, 8, 4), ElementsAre(1, 2, 6, 7));
  EXPECT_THAT(PlacesToKeep(KvPolicy::kH2o, std::vector<float>(8, 0.0f), 8, 6),
              ElementsAre(0, 1, 2, 5, 6, 7));
}

TEST(PlacesToKeepTest, SumsThatAreNoNumbersComeLast) {
  const std::vector<float> scores = {kNan, 1, kNan, 2, kNan, 3, kNan, 0};
  EXPECT_THAT(PlacesToKeep(KvPolicy::kH2o, scores, 8, 4), ElementsAre(3, 5, 6, 7));
  EXPECT_THAT(PlacesToKeep(KvPolicy::kH2o, std::vector<float>(8, kNan), 8, 4),
              ElementsAre(0, 1, 6, 7));
  EXPECT_EQ(PlacesToKeep(KvPolicy::kSnapKv, std::vector<float>(80, kNan), 80, 40).size(), 40u);
}

TEST(PlacesToKeepTest, SnapKvKeepsItsWindowAndWhatIsAroundThePeaks) {
  std::vector<float> votes(100, 0.0f);
  votes[20] = 5;                                   // pooled over 7: places 17 .. 23
  votes[50] = 4;                                   // 47 .. 53
  for (size_t i = 68; i < 100; ++i) votes[i] = 9;  // the window's own do not count
  std::vector<int32_t> expected = Range(17, 24);
  for (const int32_t place : Range(47, 52)) expected.push_back(place);  // ties: lower ones first
  for (const int32_t place : Range(68, 100)) expected.push_back(place);
  EXPECT_EQ(PlacesToKeep(KvPolicy::kSnapKv, votes, 100, 32 + 7 + 5), expected);
}

TEST(PlacesToKeepTest, PoolingEndsAtTheWindowAndAtTheFirstPlace) {
  std::vector<float> votes(60, 0.0f);
  votes[0] = 3;
  votes[27] = 2;  // the last place before the window
  std::vector<int32_t> expected = {0, 1, 2, 3, 24, 25, 26, 27};
  for (const int32_t place : Range(28, 60)) expected.push_back(place);
  EXPECT_EQ(PlacesToKeep(KvPolicy::kSnapKv, votes, 60, 40), expected);
}

TEST(PlacesToKeepTest, KeepsExactlyAsManyAsAskedInOrder) {
  std::mt19937 rng(5);
  for (int round = 0; round < 500; ++round) {
    const int64_t n = 1 + static_cast<int64_t>(rng() % 200);
    std::vector<float> scores(static_cast<size_t>(n));
    for (float& score : scores) score = rng() % 9 == 0 ? kNan : static_cast<float>(rng() % 10);
    for (const KvPolicy policy : {KvPolicy::kWindowSink, KvPolicy::kH2o, KvPolicy::kSnapKv}) {
      const int64_t n_keep = static_cast<int64_t>(rng()) % (n + 1);
      const std::vector<int32_t> keep = PlacesToKeep(policy, scores, n, n_keep);
      ASSERT_EQ(std::ssize(keep), n_keep) << Name(policy);
      ASSERT_EQ(std::ranges::adjacent_find(keep, std::ranges::greater_equal{}), keep.end());
      if (n_keep > kAttentionSinks) {
        ASSERT_GE(keep.front(), 0);
        ASSERT_EQ(keep.back(), n - 1);
      }
    }
  }
}

// Three layers: two that keep everything, of different shapes, and one with a window between them.
const std::vector<KvSpec> kLayers = {{.heads = 2, .k_dim = 16, .v_dim = 12},
                                     {.heads = 1, .k_dim = 8, .v_dim = 8, .window = 24},
                                     {.heads = 3, .k_dim = 40, .v_dim = 8}};
constexpr int64_t kScoreUnit = 256;  // all weights are multiples of 1 / 256: sums are exact

struct Setting {
  KvPolicy policy = KvPolicy::kH2o;
  int64_t budget = 0;
  int64_t block_size = 16;
  KvType k_type = KvType::kF16;
  KvType v_type = KvType::kF16;
  RopeStyle style = RopeStyle::kHalfSplit;
  int64_t n_prompt = 100;
};

uint32_t Mix(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  std::seed_seq seq{a, b, c, d};
  uint32_t out = 0;
  seq.generate(&out, &out + 1);
  return out;
}

// In [-1, 1), by what it belongs to.
float Value(size_t layer, int64_t head, int64_t position, int64_t i, bool key) {
  const uint32_t bits =
      Mix(static_cast<uint32_t>(layer * 8 + static_cast<size_t>(head) * 2 + (key ? 1 : 0)),
          static_cast<uint32_t>(position), static_cast<uint32_t>(i), 7);
  return static_cast<float>(bits >> 8) / 8388608.0f - 1.0f;
}

// What a query gives to a key, in units.
int64_t Weight(size_t layer, int64_t head, int64_t query, int64_t key) {
  return Mix(static_cast<uint32_t>(layer), static_cast<uint32_t>(head),
             static_cast<uint32_t>(query), static_cast<uint32_t>(key)) %
         100;
}

void Rope(const KeyRotation& rotation, int64_t position, std::span<float> x) {
  const size_t n = rotation.inv_freq.size();
  for (size_t i = 0; i < n; ++i) {
    const double angle = static_cast<double>(position) * double{rotation.inv_freq[i]};
    float& a = rotation.style == RopeStyle::kHalfSplit ? x[i] : x[2 * i];
    float& b = rotation.style == RopeStyle::kHalfSplit ? x[i + n] : x[2 * i + 1];
    const double old = a;
    a = static_cast<float>(old * std::cos(angle) - b * std::sin(angle));
    b = static_cast<float>(old * std::sin(angle) + b * std::cos(angle));
  }
}

// One sequence in a cache of its own, and the plain simulation of what must be in it.
class Bounded {
 public:
  explicit Bounded(const Setting& setting, int64_t most_tokens = 600) : setting_(setting) {
    for (const KvSpec& spec : kLayers) {
      KeyRotation rotation{.inv_freq = {}, .style = setting.style};
      const int64_t n_pairs = spec.k_dim == 40 ? 12 : spec.k_dim / 2;  // the third: not all of it
      for (int64_t i = 0; i < n_pairs; ++i)
        rotation.inv_freq.push_back(
            static_cast<float>(std::pow(100.0, -double(i) / double(n_pairs))));
      rotations_.push_back(rotation);
    }
    const KvLayout layout = KvLayout::Make(kLayers, {.k_type = setting.k_type,
                                                     .v_type = setting.v_type,
                                                     .block_size = setting.block_size})
                                .value();
    const PoolCounts n_blocks = layout.BlocksForAll(1, most_tokens, most_tokens);
    storage_ = std::make_unique<KvStorage>(KvStorage::Create(layout, n_blocks).value());
    cache_ = KvCache::Create(layout, {.n_blocks = n_blocks}, *storage_).value();
    for (int64_t t = 0; t < most_tokens; ++t) tokens_.push_back(static_cast<int32_t>(t));
    if (setting.policy != KvPolicy::kFull) {
      evictor_ =
          Evictor::Create({setting.policy, setting.budget}, *storage_, rotations_, setting.n_prompt)
              .value();
    }
    Start();
  }

  // Computes `n` more tokens in one step.
  void Step(int64_t n) {
    ASSERT_TRUE(cache_->Reserve(sequence_, n_computed_ + n));
    const KeyScores scores = evictor_ ? evictor_->scores() : KeyScores{};
    for (int64_t position = n_computed_; position < n_computed_ + n; ++position) {
      for (size_t layer = 0; layer < kLayers.size(); ++layer) {
        for (int64_t head = 0; head < kLayers[layer].heads; ++head) {
          WriteToken(layer, head, position);
          if (kLayers[layer].window == 0) Attend(scores, layer, head, position);
        }
      }
    }
    n_computed_ += n;
    cache_->Commit(sequence_, tokens_, n_computed_, setting_.n_prompt);
    if (evictor_ != nullptr) evictor_->AfterStep(*cache_, sequence_, n_computed_);
    SimulateEviction();
    ASSERT_TRUE(cache_->CheckInvariants());
  }

  // Up to `n_tokens`, in steps of at most `most` tokens (random ones with a seed).
  void RunTo(int64_t n_tokens, int64_t most, unsigned seed = 0) {
    std::mt19937 rng(seed);
    while (n_computed_ < n_tokens) {
      int64_t n = seed == 0 ? most : 1 + static_cast<int64_t>(rng() % static_cast<unsigned>(most));
      n = std::min(n, n_tokens - n_computed_);
      if (evictor_ != nullptr) n = std::min(n, evictor_->Room(n_computed_));
      ASSERT_GE(n, 1);
      ASSERT_NO_FATAL_FAILURE(Step(n));
    }
  }

  // The sequence is given up and computed anew.
  void Restart() {
    cache_->Close(sequence_);
    evictor_->Reset();
    Start();
  }

  // Every row of every full layer as bytes: [layer][head][place] key, value.
  std::vector<std::byte> Rows() const {
    std::vector<std::byte> rows;
    for (size_t layer = 0; layer < kLayers.size(); ++layer) {
      if (kLayers[layer].window > 0) continue;
      for (int64_t head = 0; head < kLayers[layer].heads; ++head) {
        for (int64_t place = 0; place < places(); ++place) {
          for (const bool key : {true, false}) {
            const std::span<std::byte> row = Row(layer, head, place, key);
            rows.insert(rows.end(), row.begin(), row.end());
          }
        }
      }
    }
    return rows;
  }

  // All rows are where the simulation has them; sinks that were rotated are looked at apart.
  void CheckRows() const {
    EXPECT_EQ(cache_->dropped(sequence_), n_computed_ - places());
    for (size_t layer = 0; layer < kLayers.size(); ++layer) {
      if (kLayers[layer].window > 0) continue;
      for (int64_t head = 0; head < kLayers[layer].heads; ++head) {
        const std::vector<Key>& kept = simulated_[layer][static_cast<size_t>(head)];
        ASSERT_EQ(std::ssize(kept), places());
        for (int64_t place = 0; place < places(); ++place) {
          const int64_t position = kept[static_cast<size_t>(place)].position;
          for (const bool key : {true, false}) {
            if (key && setting_.policy == KvPolicy::kWindowSink && place < kAttentionSinks &&
                places() < n_computed_) {
              CheckSink(layer, head, place);
              continue;
            }
            const std::span<std::byte> row = Row(layer, head, place, key);
            ASSERT_TRUE(std::ranges::equal(row, Encoded(layer, head, position, key)))
                << "layer " << layer << " head " << head << " place " << place << " position "
                << position << (key ? " key" : " value");
          }
        }
      }
    }
  }

  void CheckBill() const {
    const EvictionBill bill = evictor_->bill();
    EXPECT_EQ(bill.evicted_tokens, n_computed_ - places());
    EXPECT_EQ(bill.evictions, evictions_);
    EXPECT_EQ(bill.attention_seen, static_cast<double>(seen_) / kScoreUnit);
    EXPECT_EQ(bill.attention_dropped, static_cast<double>(dropped_) / kScoreUnit);
  }

  int64_t places() const { return std::ssize(simulated_[0][0]); }
  int64_t evictions() const { return evictions_; }
  const Evictor& evictor() const { return *evictor_; }
  int64_t n_computed() const { return n_computed_; }

 private:
  struct Key {
    int64_t position = 0;
    int64_t sum = 0;  // in units
  };

  void Start() {
    sequence_ = cache_->Open(/*share=*/false);
    n_computed_ = seen_ = dropped_ = evictions_ = 0;
    simulated_.clear();
    for (const KvSpec& spec : kLayers) simulated_.emplace_back(static_cast<size_t>(spec.heads));
  }

  std::vector<float> Floats(size_t layer, int64_t head, int64_t position, bool key) const {
    const KvSpec& spec = kLayers[layer];
    std::vector<float> x(static_cast<size_t>(key ? spec.k_dim : spec.v_dim));
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = Value(layer, head, position, static_cast<int64_t>(i), key);
    if (key) Rope(rotations_[layer], position, x);
    return x;
  }
  std::vector<std::byte> Encoded(size_t layer, int64_t head, int64_t position, bool key) const {
    const std::vector<float> x = Floats(layer, head, position, key);
    const KvType type = key ? setting_.k_type : setting_.v_type;
    std::vector<std::byte> row(static_cast<size_t>(KvRowBytes(type, std::ssize(x))));
    EncodeKvRow(type, x.data(), row.data(), std::ssize(x));
    return row;
  }
  std::span<std::byte> Row(size_t layer, int64_t head, int64_t place, bool key) const {
    const KvView view = storage_->Layer(layer);
    const KvType type = key ? view.pages.k_type : view.pages.v_type;
    const int64_t dim = key ? view.k_dim : view.v_dim;
    const auto group = static_cast<size_t>(storage_->layout().place(layer).group);
    const int32_t block =
        cache_->Table(sequence_, group)[static_cast<size_t>(place / setting_.block_size)];
    return {view.pages.data + block * view.pages.page_bytes + (key ? 0 : view.pages.v_offset) +
                head * KvHeadBytes(type, key, dim, setting_.block_size) +
                place % setting_.block_size * KvRowBytes(type, dim),
            static_cast<size_t>(KvRowBytes(type, dim))};
  }

  void WriteToken(size_t layer, int64_t head, int64_t position) {
    const bool full = kLayers[layer].window == 0;
    const int64_t place = full ? position - cache_->dropped(sequence_) : position;
    for (const bool key : {true, false})
      std::ranges::copy(Encoded(layer, head, position, key), Row(layer, head, place, key).begin());
    if (full) simulated_[layer][static_cast<size_t>(head)].push_back({position, 0});
  }

  void Attend(const KeyScores& scores, size_t layer, int64_t head, int64_t position) {
    if (scores.sums == nullptr || position < scores.first_position) return;
    std::vector<Key>& keys = simulated_[layer][static_cast<size_t>(head)];
    ASSERT_LE(std::ssize(keys), scores.capacity);
    for (size_t place = 0; place < keys.size(); ++place) {
      const int64_t weight = Weight(layer, head, position, keys[place].position);
      scores.sums[static_cast<int64_t>(layer) * scores.layer_stride + head * scores.capacity +
                  static_cast<int64_t>(place)] += static_cast<float>(weight) / kScoreUnit;
      keys[place].sum += weight;
      seen_ += weight;
    }
  }

  // How many places are kept if it is time to evict, else -1.
  int64_t KeptNow() const {
    const int64_t n = std::ssize(simulated_[0][0]);
    if (setting_.policy == KvPolicy::kFull) return -1;
    if (setting_.policy == KvPolicy::kSnapKv)
      return n_computed_ == setting_.n_prompt && n > setting_.budget ? setting_.budget : -1;
    return n == setting_.budget ? n - setting_.block_size : -1;
  }

  void SimulateEviction() {
    const int64_t n_keep = KeptNow();
    if (n_keep < 0) return;
    ++evictions_;
    for (std::vector<std::vector<Key>>& layer : simulated_) {
      for (std::vector<Key>& keys : layer) {
        if (keys.empty()) continue;  // a layer with a window
        std::vector<float> sums;
        for (const Key& key : keys) sums.push_back(static_cast<float>(key.sum) / kScoreUnit);
        std::vector<Key> kept;
        for (const int32_t place : PlacesToKeep(setting_.policy, sums, std::ssize(keys), n_keep))
          kept.push_back(keys[static_cast<size_t>(place)]);
        for (const Key& key : keys) dropped_ += key.sum;
        for (const Key& key : kept) dropped_ -= key.sum;
        keys = std::move(kept);
      }
    }
  }

  // The sink's key is the original one, as if it stood right before the window.
  void CheckSink(size_t layer, int64_t head, int64_t place) const {
    std::vector<float> expected(static_cast<size_t>(kLayers[layer].k_dim));
    for (size_t i = 0; i < expected.size(); ++i)
      expected[i] = Value(layer, head, place, static_cast<int64_t>(i), true);
    Rope(rotations_[layer], place + n_computed_ - places(), expected);
    std::vector<float> actual(expected.size());
    DecodeKvRow(setting_.k_type, Row(layer, head, place, true).data(), actual.data(),
                std::ssize(actual));
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_NEAR(actual[i], expected[i], Tolerance())
          << "layer " << layer << " head " << head << " sink " << place << " value " << i;
    }
  }

  // Of a value up to sqrt(2) that was stored twice.
  float Tolerance() const {
    switch (setting_.k_type) {
      case KvType::kF32:
        return 1e-6f;
      case KvType::kF16:
        return 2e-3f;
      case KvType::kBF16:
      case KvType::kInt8:
        return 1.6e-2f;
      case KvType::kFp8:
        return 0.15f;
      case KvType::kInt4:
        return 0.25f;  // steps of 2.8 / 15
      default:
        return 1.0f;  // 2 bits: steps of 2.8 / 3
    }
  }

  Setting setting_;
  std::vector<KeyRotation> rotations_;
  std::unique_ptr<KvStorage> storage_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<Evictor> evictor_;
  std::vector<int32_t> tokens_;
  SequenceHandle sequence_ = -1;
  int64_t n_computed_ = 0;
  std::vector<std::vector<std::vector<Key>>> simulated_;  // [layer][head][place]
  int64_t seen_ = 0;                                      // in units
  int64_t dropped_ = 0;
  int64_t evictions_ = 0;
};

TEST(EvictorTest, RowsEndWhereThePolicyHasThem) {
  for (const KvPolicy policy : {KvPolicy::kWindowSink, KvPolicy::kH2o, KvPolicy::kSnapKv}) {
    for (const int64_t block_size : {4, 16, 32}) {
      SCOPED_TRACE(fmt::format("{}, blocks of {}", Name(policy), block_size));
      // Not a multiple of the block size.
      const int64_t budget = LeastBudget(policy, block_size) + 3;
      Bounded bounded(
          {.policy = policy, .budget = budget, .block_size = block_size, .n_prompt = 170});
      ASSERT_NO_FATAL_FAILURE(bounded.RunTo(300, 7));
      EXPECT_GE(bounded.evictions(), 1);
      ASSERT_NO_FATAL_FAILURE(bounded.CheckRows());
      bounded.CheckBill();
      EXPECT_GT(bounded.evictor().bill().attention_dropped, 0);
      EXPECT_LT(bounded.evictor().bill().dropped_share(), 1);
    }
  }
}

TEST(EvictorTest, EveryRowType) {
  for (const KvType type : AllKvTypes()) {
    if (!IsRowType(type)) continue;
    for (const RopeStyle style : {RopeStyle::kHalfSplit, RopeStyle::kInterleaved}) {
      for (const KvPolicy policy : {KvPolicy::kWindowSink, KvPolicy::kH2o}) {
        SCOPED_TRACE(fmt::format("{} {} {}", Name(type), Name(style), Name(policy)));
        Bounded bounded({.policy = policy,
                         .budget = 64,
                         .k_type = type,
                         .v_type = KvType::kInt8,
                         .style = style});
        ASSERT_NO_FATAL_FAILURE(bounded.RunTo(200, 16));
        ASSERT_NO_FATAL_FAILURE(bounded.CheckRows());
      }
    }
  }
}

TEST(EvictorTest, SinksDoNotDriftWithManyEvictions) {
  Bounded bounded({.policy = KvPolicy::kWindowSink, .budget = 64, .k_type = KvType::kInt8}, 2000);
  ASSERT_NO_FATAL_FAILURE(bounded.RunTo(2000, 64));
  EXPECT_EQ(bounded.evictions(), 1 + (2000 - 64) / 16);
  ASSERT_NO_FATAL_FAILURE(bounded.CheckRows());
}

TEST(EvictorTest, TheSameBitsInAnyChunks) {
  for (const KvPolicy policy : {KvPolicy::kWindowSink, KvPolicy::kH2o, KvPolicy::kSnapKv}) {
    SCOPED_TRACE(Name(policy));
    const Setting setting{.policy = policy, .budget = 70, .n_prompt = 130};
    Bounded one_by_one(setting);
    ASSERT_NO_FATAL_FAILURE(one_by_one.RunTo(260, 1));
    for (const unsigned seed : {1u, 2u, 3u}) {
      Bounded chunked(setting);
      ASSERT_NO_FATAL_FAILURE(chunked.RunTo(260, 90, seed));
      EXPECT_EQ(chunked.Rows(), one_by_one.Rows());
      EXPECT_EQ(chunked.evictor().bill().attention_dropped,
                one_by_one.evictor().bill().attention_dropped);
      EXPECT_EQ(chunked.evictor().bill().attention_seen,
                one_by_one.evictor().bill().attention_seen);
    }
  }
}

TEST(EvictorTest, ABudgetBeyondTheLengthChangesNothing) {
  Bounded full({.policy = KvPolicy::kFull});
  ASSERT_NO_FATAL_FAILURE(full.RunTo(200, 50));
  for (const KvPolicy policy : {KvPolicy::kWindowSink, KvPolicy::kH2o, KvPolicy::kSnapKv}) {
    for (const int64_t budget : {int64_t{201}, std::numeric_limits<int64_t>::max() / 8}) {
      Bounded bounded({.policy = policy, .budget = budget});
      ASSERT_NO_FATAL_FAILURE(bounded.RunTo(200, 50));
      EXPECT_EQ(bounded.Rows(), full.Rows());
      bounded.CheckBill();
      EXPECT_EQ(bounded.evictor().bill().evicted_tokens, 0);
      EXPECT_EQ(bounded.evictor().bill().dropped_share(), 0);
    }
  }
}

TEST(EvictorTest, StartsOverAfterPreemption) {
  for (const KvPolicy policy : {KvPolicy::kWindowSink, KvPolicy::kH2o, KvPolicy::kSnapKv}) {
    SCOPED_TRACE(Name(policy));
    Bounded bounded({.policy = policy, .budget = 64, .n_prompt = 120});
    ASSERT_NO_FATAL_FAILURE(bounded.RunTo(190, 20));
    const std::vector<std::byte> rows = bounded.Rows();
    ASSERT_NO_FATAL_FAILURE(bounded.RunTo(230, 20));
    bounded.Restart();
    EXPECT_EQ(bounded.evictor().bill().attention_seen, 0);
    EXPECT_EQ(bounded.evictor().bill().evicted_tokens, 0);
    ASSERT_NO_FATAL_FAILURE(bounded.RunTo(190, 33));
    EXPECT_EQ(bounded.Rows(), rows);
    ASSERT_NO_FATAL_FAILURE(bounded.CheckRows());
    bounded.CheckBill();
  }
}

TEST(EvictorTest, NeverMorePlacesThanItSaid) {
  for (const KvPolicy policy : {KvPolicy::kWindowSink, KvPolicy::kH2o, KvPolicy::kSnapKv}) {
    Bounded bounded({.policy = policy, .budget = 64, .n_prompt = 90});
    int64_t most = 0;
    while (bounded.n_computed() < 150) {
      most = std::max(most, bounded.places() + 1);  // before the eviction that may follow
      ASSERT_NO_FATAL_FAILURE(bounded.Step(1));
      EXPECT_EQ(most, bounded.evictor().MostPlaces(bounded.n_computed())) << Name(policy);
    }
  }
}

TEST(EvictorTest, RoomAndMostPlaces) {
  Bounded h2o({.policy = KvPolicy::kH2o, .budget = 64, .n_prompt = 90});
  EXPECT_EQ(h2o.evictor().Room(0), 64);
  EXPECT_EQ(h2o.evictor().MostPlaces(50), 50);
  EXPECT_EQ(h2o.evictor().MostPlaces(5000), 64);
  ASSERT_NO_FATAL_FAILURE(h2o.Step(64));
  EXPECT_EQ(h2o.places(), 48);
  EXPECT_EQ(h2o.evictor().Room(64), 16);

  Bounded snap({.policy = KvPolicy::kSnapKv, .budget = 64, .n_prompt = 90});
  EXPECT_EQ(snap.evictor().Room(10), 80);
  EXPECT_EQ(snap.evictor().scores().first_position, 58);
  EXPECT_EQ(snap.evictor().MostPlaces(80), 80);
  EXPECT_EQ(snap.evictor().MostPlaces(100), 90);   // the prompt, before the eviction
  EXPECT_EQ(snap.evictor().MostPlaces(200), 174);  // 64 of the prompt and 110 more
  ASSERT_NO_FATAL_FAILURE(snap.Step(90));
  EXPECT_EQ(snap.places(), 64);
  EXPECT_GT(snap.evictor().Room(90), int64_t{1} << 40);
  EXPECT_EQ(snap.evictor().scores().sums, nullptr);  // they have served their purpose
}

TEST(EvictorTest, SaysWhyItCannotHelp) {
  const KvLayout layout = KvLayout::Make(kLayers, {.block_size = 16}).value();
  const auto refusal = [](const EvictionOptions& options, const KvLayout& of) {
    const Status status = CheckEviction(options, of);
    EXPECT_FALSE(status);
    return status ? "" : status.error().message;
  };
  EXPECT_THAT(refusal({KvPolicy::kH2o, 63}, layout), HasSubstr("at least 64 tokens"));
  EXPECT_TRUE(CheckEviction({KvPolicy::kH2o, 64}, layout));
  EXPECT_TRUE(CheckEviction({KvPolicy::kFull, 0}, layout));
  EXPECT_EQ(LeastBudget(KvPolicy::kWindowSink, 1), 16);
  EXPECT_EQ(LeastBudget(KvPolicy::kSnapKv, 8), 64);
  EXPECT_EQ(LeastBudget(KvPolicy::kH2o, 8), 32);

  const KvLayout kivi =
      KvLayout::Make(std::span(kLayers).first(1),
                     {.k_type = KvType::kKivi2, .v_type = KvType::kKivi2, .block_size = 16})
          .value();
  EXPECT_THAT(refusal({KvPolicy::kSnapKv, 100}, kivi), HasSubstr("kivi2"));
  const KvLayout windows =
      KvLayout::Make(std::span(kLayers).subspan(1, 1), {.block_size = 16}).value();
  EXPECT_THAT(refusal({KvPolicy::kWindowSink, 100}, windows), HasSubstr("sliding"));
  const KvSpec latent = {.heads = 1, .k_dim = 48, .v_dim = 0};
  EXPECT_THAT(refusal({KvPolicy::kH2o, 100},
                      KvLayout::Make(std::span(&latent, 1), {.block_size = 16}).value()),
              HasSubstr("latent"));
}

}  // namespace
}  // namespace lucid
