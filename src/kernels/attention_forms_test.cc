// Sinks, values that lie in the keys, and numbers that are not finite, against the reference on
// every instruction set.
#include <gtest/gtest.h>

#include "kernels/attention_test_util.h"

namespace lucid {
namespace {

using namespace testing_util;  // NOLINT: the helpers of these tests

TEST(Attention, SinksTakeTheirShareOfEveryHead) {
  for (const CacheShape& shape :
       {CacheShape{9, 3, 64, 64, 16, KvType::kF16}, CacheShape{32, 1, 33, 17, 128, KvType::kF32}}) {
    Cache cache(shape, 1, 700);
    Fill("reference", cache, 0, 700);
    Batch batch;
    batch.Add(0, 0, 3);
    batch.Add(0, 600, 604);
    const auto q = QueriesOf(batch, shape, 2.0f);
    // From none to nearly all of the weight.
    std::vector<float> sinks;
    for (int32_t h = 0; h < shape.n_heads; ++h)
      sinks.push_back(static_cast<float>(h) * 4.0f - 12.0f);
    for (int32_t window : {0, 7}) {
      AttentionArgs args = ArgsOf(shape, window);
      const auto without = Attend("reference", cache, args, batch, q, 2);
      args.sinks = sinks.data();
      const auto want = Attend("reference", cache, args, batch, q, 2);
      EXPECT_NE(want, without);
      for (const std::string& isa : CpuIsas()) {
        ExpectNear(Attend(isa, cache, args, batch, q, 2), want, 1e-5, 4e-6,
                   fmt::format("{} window {} {}", isa, window, Describe(shape)));
        EXPECT_EQ(Attend(isa, cache, args, batch, q, 3), AttendAlone(isa, cache, args, batch, q));
      }
    }
  }
}

TEST(Attention, ValuesMayBeTheFirstNumbersOfKeys) {
  for (const KvType type : AllKvTypes()) {
    if (!IsRowType(type)) continue;
    for (CacheShape shape :
         {CacheShape{16, 1, 48, 32, 8, type}, CacheShape{5, 1, 75, 40, 16, type}}) {
      shape.v_in_k = true;
      Cache cache(shape, 1, 150);
      Fill("reference", cache, 0, 150);
      Batch batch;
      batch.phase = Phase::kPrompt;
      batch.Add(0, 90, 95);
      batch.phase = Phase::kGenerated;
      batch.Add(0, 95, 99);
      const auto q = QueriesOf(batch, shape, 2.0f);
      AttentionArgs args = ArgsOf(shape);
      args.generated_only = true;
      const auto want = Attend("reference", cache, args, batch, q, 2);
      const size_t given = 5 * static_cast<size_t>(shape.n_heads * shape.v_dim);
      const auto after = [given](const std::vector<float>& y) {
        return std::vector<float>(y.begin() + static_cast<std::ptrdiff_t>(given), y.end());
      };
      EXPECT_TRUE(std::isnan(want[given - 1]) && !std::isnan(want[given]));
      for (const std::string& isa : CpuIsas()) {
        const auto got = Attend(isa, cache, args, batch, q, 2);
        EXPECT_TRUE(std::isnan(got[0]) && std::isnan(got[given - 1])) << "a given token's row";
        ExpectNear(after(got), after(want), 1e-5, 4e-6, fmt::format("{} {}", isa, Describe(shape)));
      }
    }
  }
}

// A key or value of one position, that of Fill with number `index` of it replaced.
void Spoil(Cache& cache, int32_t sequence, int32_t position, bool key, size_t index, float bad) {
  const CacheShape& s = cache.shape;
  const auto seed = static_cast<uint32_t>(1000 * sequence + position);
  auto k = RandomFloats(static_cast<size_t>(s.kv_heads * s.k_dim), 2 * seed);
  auto v = RandomFloats(static_cast<size_t>(s.kv_heads * s.v_dim), 2 * seed + 1);
  (key ? k : v)[index] = bad;
  Batch batch;
  batch.Add(sequence, position, position + 1);
  const KvStoreArgs args{cache.View(), k.data(), v.data()};
  RunAs(KernelOf("reference", KernelOp::kKvStore, &args), &args, batch.Step(cache), 1);
}

// Tokens [kBegin, kEnd) of two sequences, and what a number that is not finite at position kBad of
// the first does to the outputs.
class NotFinite : public testing::Test {
 protected:
  static constexpr int32_t kBegin = 40, kBad = 50, kEnd = 60, kHeads = 8, kDim = 32;
  static constexpr int32_t kBadDim = 21;

  template <typename Body>  // body(isa, clean cache, label)
  void ForAll(Body&& body) {
    std::vector<std::string> isas = CpuIsas();
    isas.emplace_back("reference");
    for (const std::string& isa : isas) {
      for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16}) {
        for (const Phase phase : {Phase::kPrompt, Phase::kGenerated}) {
          shape_ = {kHeads, 2, kDim, kDim, 16, type};
          Cache cache(shape_, 2, kEnd);
          Fill("reference", cache, 0, kEnd);
          batch_ = {};
          batch_.phase = phase;
          batch_.Add(0, kBegin, kEnd);
          batch_.Add(1, kBegin, kEnd);
          q_ = QueriesOf(batch_, shape_, 2.0f);
          const AttentionArgs args = ArgsOf(shape_);
          want_ = Attend(isa, cache, args, batch_, q_, 2);
          for (const float bad : {NAN, INFINITY}) {
            body(isa, cache,
                 fmt::format("{} {} {} {}", isa, Name(type),
                             phase == Phase::kPrompt ? "prompt" : "reply", bad),
                 bad);
          }
        }
      }
    }
  }

  // Each number of `got` is finite and as without the bad one, or not finite, as `spoilt` says of a
  // sequence, position, head and dim: 1, 0, or -1 for either.
  template <typename Spoilt>
  void Expect(const std::vector<float>& got, const std::string& label, Spoilt&& spoilt) {
    for (size_t i = 0; i < got.size(); ++i) {
      const size_t token = i / (kHeads * kDim);
      const int expected =
          spoilt(batch_.sequence[token], batch_.positions[token],
                 static_cast<int32_t>(i / kDim % kHeads), static_cast<int32_t>(i % kDim));
      if (expected == 1) {
        ASSERT_FALSE(std::isfinite(got[i])) << label << " token " << token << " at " << i;
      } else if (expected == 0 || std::isfinite(got[i])) {
        ASSERT_EQ(got[i], want_[i]) << label << " token " << token << " at " << i;
      }
    }
  }

  CacheShape shape_;
  Batch batch_;
  std::vector<float> q_, want_;
};

TEST_F(NotFinite, AQuerySpoilsItsOwnHead) {
  ForAll([&](const std::string& isa, Cache& cache, const std::string& label, float bad) {
    std::vector<float> q = q_;
    q[((kBad - kBegin) * kHeads + 3) * kDim + kBadDim] = bad;
    Expect(Attend(isa, cache, ArgsOf(shape_), batch_, q, 2), label,
           [](int32_t sequence, int32_t position, int32_t head, int32_t) {
             return sequence == 0 && position == kBad && head == 3 ? 1 : 0;
           });
  });
}

TEST_F(NotFinite, AKeySpoilsWhoSeesIt) {
  ForAll([&](const std::string& isa, const Cache& clean, const std::string& label, float bad) {
    if (!std::isnan(bad)) return;  // an infinite score may as well have no weight
    Cache cache = clean;
    Spoil(cache, 0, kBad, true, kDim + kBadDim, bad);  // of the second head of keys
    Expect(Attend(isa, cache, ArgsOf(shape_), batch_, q_, 2), label,
           [](int32_t sequence, int32_t position, int32_t head, int32_t) {
             return sequence == 0 && position >= kBad && head >= kHeads / 2 ? 1 : 0;
           });
  });
}

TEST_F(NotFinite, AValueSpoilsWhoSeesItAndAtMostEarlierTokensOfItsOwnStep) {
  ForAll([&](const std::string& isa, const Cache& clean, const std::string& label, float bad) {
    Cache cache = clean;
    Spoil(cache, 0, kBad, false, kDim + kBadDim, bad);
    Expect(Attend(isa, cache, ArgsOf(shape_), batch_, q_, 2), label,
           [](int32_t sequence, int32_t position, int32_t head, int32_t dim) {
             if (sequence == 1 || head < kHeads / 2 || dim != kBadDim) return 0;
             return position >= kBad ? 1 : -1;  // the weight 0 times infinity
           });
    Batch before;
    before.phase = batch_.phases[0];
    before.Add(0, kBegin, kBad);
    auto got = Attend(isa, cache, ArgsOf(shape_), before, q_, 2);
    got.insert(got.end(), want_.begin() + std::ssize(got), want_.end());
    Expect(got, label, [](int32_t, int32_t, int32_t, int32_t) { return 0; });
  });
}

}  // namespace
}  // namespace lucid
