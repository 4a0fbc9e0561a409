// Attention and KvStore of every instruction set and cache type against the reference and the
// fixtures, over block tables in random order, and the promise that a token's bits depend on its
// own sequence alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <span>

#include "kernels/attention_test_util.h"

namespace lucid {
namespace {

using namespace testing_util;  // NOLINT: the helpers of these tests

// Every cache type with dims and blocks of all sorts, kivi2's a multiple of 4.
std::vector<CacheShape> Shapes() {
  std::vector<CacheShape> shapes;
  for (const KvType type : AllKvTypes()) {
    for (CacheShape s : {CacheShape{4, 4, 16, 16, 8, type}, CacheShape{9, 3, 64, 64, 16, type},
                         CacheShape{2, 1, 256, 256, 32, type}, CacheShape{6, 2, 24, 40, 5, type},
                         CacheShape{2, 1, 7, 3, 1, type}, CacheShape{32, 1, 33, 17, 128, type},
                         CacheShape{8, 2, 128, 80, 64, type}}) {
      if (!IsRowType(type)) s.block_size = (s.block_size + 3) / 4 * 4;
      shapes.push_back(s);
    }
  }
  return shapes;
}
// Long enough for kivi2 to have packed something.
int32_t LengthFor(const CacheShape& s) {
  return IsRowType(s.type) ? 150 : 128 + 2 * s.block_size + 40;
}

TEST(KvStore, WritesTheBytesTheReferenceWrites) {
  for (const std::string& isa : CpuIsas()) {
    for (const CacheShape& shape : Shapes()) {
      const int32_t length = LengthFor(shape);
      Cache want(shape, 2, length);
      Cache got(shape, 2, length);
      Fill("reference", want, 0, length);
      Fill(isa, got, 0, length);
      EXPECT_EQ(got.pages, want.pages) << isa << ' ' << Describe(shape);
      EXPECT_EQ(got.recent, want.recent) << isa << ' ' << Describe(shape);
    }
  }
}

TEST(KvStore, TheBytesAreTheSameForAnyChunks) {
  std::vector<std::string> isas = CpuIsas();
  isas.emplace_back("reference");
  for (const std::string& isa : isas) {
    for (const CacheShape& shape : Shapes()) {
      const int32_t length = LengthFor(shape);
      Cache want(shape, 2, length);
      Fill(isa, want, 0, length);
      for (const int32_t chunk : {1, 37}) {
        Cache got(shape, 2, length);
        for (int32_t p = 0; p < length; p += chunk) {
          Fill(isa, got, p, std::min(length, p + chunk));
        }
        EXPECT_EQ(got.pages, want.pages) << isa << ' ' << Describe(shape);
        EXPECT_EQ(got.recent, want.recent) << isa << ' ' << Describe(shape);
      }
    }
  }
}

TEST(KvStore, PlacesAreInFrontOfPositionsByWhatWasDropped) {
  const CacheShape shape{4, 2, 16, 16, 8, KvType::kInt8};
  for (const std::string isa : {"reference", "generic"}) {
    Cache want(shape, 1, 16);
    Cache got(shape, 1, 16);
    const auto k = RandomFloats(static_cast<size_t>(3 * shape.kv_heads * shape.k_dim), 1);
    const auto store = [&](Cache& cache, const Batch& batch) {
      const KvStoreArgs args{cache.View(), k.data(), k.data()};
      RunAs(KernelOf(isa, KernelOp::kKvStore, &args), &args, batch.Step(cache), 2);
    };
    Batch batch;
    batch.Add(0, 6, 9);
    store(want, batch);
    Batch late;
    late.Add(0, 1006, 1009);
    late.dropped = {0, 1000, 0};
    store(got, late);
    EXPECT_EQ(got.pages, want.pages) << isa;
  }
}

TEST(Attention, MatchesTheReferenceForPromptsDecodeWindowsAndCaps) {
  for (const std::string& isa : CpuIsas()) {
    for (const CacheShape& shape : Shapes()) {
      const int32_t length = LengthFor(shape);
      Cache cache(shape, 2, length);
      Fill("reference", cache, 0, length);
      Batch batch;
      batch.Add(0, 0, 3);
      batch.Add(0, 60, 64);
      batch.Add(0, length - 12, length - 8);
      batch.Add(1, length - 1, length);
      const auto q = QueriesOf(batch, shape, 2.0f);
      for (int32_t window : {0, 1, 7, 100}) {
        for (float softcap : {0.0f, 5.0f}) {
          const bool alibi = window == 7 || softcap == 0;
          const AttentionArgs args = ArgsOf(shape, window, softcap, alibi);
          const auto want = Attend("reference", cache, args, batch, q, 2);
          ExpectNear(Attend(isa, cache, args, batch, q, 2), want, 1e-5, 4e-6,
                     fmt::format("{} window {} cap {} {}", isa, window, softcap, Describe(shape)));
        }
      }
    }
  }
}

// Prompts may be computed in bfloat16, whose rounding errors are independent of each other.
TEST(Attention, PromptsAreCloseToTheReference) {
  for (const CacheShape& shape : Shapes()) {
    const int32_t length = LengthFor(shape);
    Cache cache(shape, 2, length);
    Fill("reference", cache, 0, length);
    Batch batch;
    batch.phase = Phase::kPrompt;
    batch.Add(0, 0, 30);
    batch.Add(1, length - 60, length);
    const auto q = QueriesOf(batch, shape);
    for (const auto& [window, softcap] : {std::pair(0, 0.0f), {41, 0.0f}, {0, 5.0f}}) {
      const AttentionArgs args = ArgsOf(shape, window, softcap, /*alibi=*/window > 0);
      const auto want = Attend("reference", cache, args, batch, q, 2);
      for (const std::string& isa : CpuIsas()) {
        const auto got = Attend(isa, cache, args, batch, q, 2);
        const std::string what =
            fmt::format("{} window {} cap {} {}", isa, window, softcap, Describe(shape));
        ExpectNear(got, want, 1e-5, shape.type == KvType::kF32 ? 4e-6 : 4e-2, what);
        double squares = 0;
        double error = 0;
        for (size_t i = 0; i < want.size(); ++i) {
          squares += want[i] * want[i];
          error += (got[i] - want[i]) * (got[i] - want[i]);
        }
        EXPECT_LT(std::sqrt(error / squares), 4e-3) << what;
      }
    }
  }
}

TEST(Attention, ATokenHasTheSameBitsAloneAndInAnyBatchForAnyNumberOfThreads) {
  for (const std::string& isa : CpuIsas()) {
    for (const CacheShape& shape : Shapes()) {
      const int32_t length = LengthFor(shape);
      Cache cache(shape, 3, length);
      Fill(isa, cache, 0, length);
      Batch all;
      all.phase = Phase::kPrompt;
      all.Add(0, length - 70, length - 31);
      all.phase = Phase::kGenerated;
      all.Add(0, length - 31, length);
      all.Add(1, length - 1, length);
      all.phase = Phase::kPrompt;
      all.Add(2, 30, 45);
      const auto q = QueriesOf(all, shape);
      const size_t width_q = QueryWidth(shape);
      const auto width_y = static_cast<std::ptrdiff_t>(shape.n_heads * shape.v_dim);
      for (int32_t window : {0, 33}) {
        const AttentionArgs args = ArgsOf(shape, window, 0, /*alibi=*/window == 0);
        const std::vector<float> alone = AttendAlone(isa, cache, args, all, q);
        for (const int threads : {1, 2, 5}) {
          ExpectSameBits(Attend(isa, cache, args, all, q, threads), alone,
                         fmt::format("{} threads {} {}", isa, threads, Describe(shape)));
        }
        Batch part;  // another chunk of the same sequence
        part.phase = Phase::kPrompt;
        part.Add(0, length - 70 + 7, length - 31);
        part.phase = Phase::kGenerated;
        part.Add(0, length - 31, length - 20);
        const auto q_part = std::span(q).subspan(7 * width_q, 43 * width_q);
        const std::vector<float> want(alone.begin() + 7 * width_y, alone.begin() + 50 * width_y);
        ExpectSameBits(Attend(isa, cache, args, part, q_part, 2), want, isa);
      }
    }
  }
}

// Long enough for several pieces, which are dealt to the threads one by one.
TEST(Attention, LongContextsHaveTheSameBitsForAnyNumberOfThreads) {
  for (const std::string& isa : CpuIsas()) {
    for (const CacheShape& shape :
         {CacheShape{6, 2, 32, 32, 16, KvType::kF16}, CacheShape{7, 1, 20, 48, 64, KvType::kInt8},
          CacheShape{40, 1, 16, 16, 32, KvType::kBF16}}) {
      const int32_t length = 1600;
      Cache cache(shape, 3, length);
      Fill(isa, cache, 0, length);
      for (const Phase phase : {Phase::kPrompt, Phase::kGenerated}) {
        Batch all;
        all.phase = phase;
        all.Add(0, length - 1, length);
        all.Add(1, 700, 703);
        all.Add(2, 1535, 1538);
        const auto q = QueriesOf(all, shape, 2.0f);
        for (int32_t window : {0, 1100}) {
          const AttentionArgs args = ArgsOf(shape, window);
          const std::vector<float> alone = AttendAlone(isa, cache, args, all, q);
          ExpectNear(alone, Attend("reference", cache, args, all, q, 1), 1e-5,
                     phase == Phase::kPrompt ? 4e-2 : 4e-6, isa);
          for (const int threads : {2, 3, 64}) {
            ExpectSameBits(Attend(isa, cache, args, all, q, threads), alone,
                           fmt::format("{} threads {} {}", isa, threads, Describe(shape)));
          }
        }
      }
    }
  }
}

// Sequences 1 and up read the first `blocks` blocks of sequence 0.
void SharePrefix(Cache& cache, int32_t blocks) {
  for (const int32_t table : {Cache::kPages, Cache::kRecent}) {
    for (int32_t s = 1; s < cache.sequences; ++s) {
      for (int32_t b = 0; b < blocks; ++b) cache.Entry(table, s, b) = cache.Entry(table, 0, b);
    }
  }
}

TEST(Attention, SequencesThatShareAPrefixHaveTheBitsOfEachAlone) {
  for (const std::string& isa : CpuIsas()) {
    for (const KvType type : AllKvTypes()) {
      for (const int32_t block_size : {16, 24, 64}) {
        const CacheShape shape{6, 2, 40, 33, block_size, type};
        const int32_t length = 230;
        Cache cache(shape, 7, length);
        SharePrefix(cache, 160 / block_size);
        Fill(isa, cache, 0, length);
        Batch all;  // decoding at different places, one that shares nothing, and prompts
        for (int32_t s = 0; s < 7; ++s) {
          all.phase = s >= 5 ? Phase::kPrompt : Phase::kGenerated;
          if (s == 3) cache.Entry(Cache::kPages, s, 0) = cache.Entry(Cache::kPages, s, 1);
          all.Add(s, length - 1 - 2 * s, s == 5 ? length : length - 2 * s);
        }
        const auto q = QueriesOf(all, shape);
        for (int32_t window : {0, 150}) {
          const AttentionArgs args = ArgsOf(shape, window);
          const std::vector<float> alone = AttendAlone(isa, cache, args, all, q);
          for (const int threads : {1, 2, 3}) {
            ExpectSameBits(Attend(isa, cache, args, all, q, threads), alone,
                           fmt::format("{} threads {} {}", isa, threads, Describe(shape)));
          }
        }
      }
    }
  }
}

TEST(Attention, ReadsPlacesNotPositions) {
  std::vector<std::string> isas = CpuIsas();
  isas.emplace_back("reference");
  for (const std::string& isa : isas) {
    const CacheShape shape{4, 2, 32, 32, 16, KvType::kF16};
    Cache cache(shape, 2, 100);
    Fill(isa, cache, 0, 100);
    Batch plain, late;
    plain.Add(0, 60, 90);
    plain.Add(1, 95, 96);
    late.Add(0, 560, 590);
    late.Add(1, 95, 96);
    late.dropped = {-7, -7, 500, 0, -7, -7};  // [table][sequence]
    const auto q = QueriesOf(plain, shape);
    for (const int32_t window : {0, 20}) {
      const AttentionArgs args = ArgsOf(shape, window);
      ExpectSameBits(Attend(isa, cache, args, late, q, 2), Attend(isa, cache, args, plain, q, 2),
                     isa);
    }
  }
}

TEST(Kivi2, AQueryReadsOldBlocksPackedAndTheResidualInFullPrecision) {
  std::vector<std::string> isas = CpuIsas();
  isas.emplace_back("reference");
  for (const std::string& isa : isas) {
    const CacheShape shape{4, 2, 32, 32, 16, KvType::kKivi2};
    const int32_t length = 220;
    Cache cache(shape, 1, length);
    Fill(isa, cache, 0, length);
    Batch batch;
    batch.Add(0, 200, 201);  // packed: blocks that end at 201 - 128 = 73 or before
    const auto q = QueriesOf(batch, shape);
    const AttentionArgs args = ArgsOf(shape);
    const auto want = Attend(isa, cache, args, batch, q, 1);
    const auto spoil = [&](Cache& c, int32_t first_recent) {
      for (int32_t b = 0; b * 16 < length; ++b) {
        const bool packed = b < first_recent;
        std::vector<std::byte>& bytes = packed ? c.recent : c.pages;
        const KvType type = packed ? KvType::kF16 : KvType::kKivi2;
        std::byte* page =
            c.Page(bytes, type, c.Entry(packed ? Cache::kRecent : Cache::kPages, 0, b));
        std::fill_n(page, c.PageBytes(type), std::byte{0xff});
      }
    };
    Cache spoilt = cache;
    spoil(spoilt, 4);
    ExpectSameBits(Attend(isa, spoilt, args, batch, q, 1), want, isa);
    spoilt = cache;
    spoil(spoilt, 5);
    EXPECT_TRUE(std::isnan(Attend(isa, spoilt, args, batch, q, 1)[0])) << isa;
    spoilt = cache;
    spoil(spoilt, 3);  // block 3 packed, and spoilt
    EXPECT_TRUE(std::isnan(Attend(isa, spoilt, args, batch, q, 1)[0])) << isa;
  }
}

// Sums of the attention that the keys of sequence 0 receive, after steps of `chunk` tokens.
struct Summed {
  std::vector<float> sums, y;
};
Summed SumInChunks(const std::string& isa, Cache& cache, const AttentionArgs& args,
                   std::span<const float> q, int32_t length, int32_t chunk, int32_t first,
                   int threads, int32_t prompt) {
  const CacheShape& s = cache.shape;
  const int64_t capacity = length;
  Summed out;
  out.sums.assign(static_cast<size_t>(2 * s.kv_heads * capacity), 0.0f);  // layers 0 and 1
  for (int32_t p = 0; p < length; p += chunk) {
    const int32_t end = std::min(length, p + chunk);
    Batch batch;
    batch.phase = Phase::kPrompt;
    batch.Add(0, p, std::max(p, std::min(end, prompt)));
    batch.phase = Phase::kGenerated;
    batch.Add(0, std::max(p, prompt), end);
    batch.Add(1, length - 3, length - 1);  // a neighbour without sums
    batch.scores = {{out.sums.data(), s.kv_heads * capacity, capacity, first}, {}};
    std::vector<float> queries(
        q.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(p) * QueryWidth(s)),
        q.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(end) * QueryWidth(s)));
    queries.resize(batch.positions.size() * QueryWidth(s), 0.5f);
    const auto y = Attend(isa, cache, args, batch, queries, threads);
    out.y.insert(out.y.end(), y.begin(), y.begin() + (end - p) * s.n_heads * s.v_dim);
  }
  return out;
}

void ExpectKeyScores(const std::string& isa, const CacheShape& shape, int32_t prompt) {
  const int32_t length = 90;
  const int32_t first = 21;
  Cache cache(shape, 2, length);
  Fill(isa, cache, 0, length);
  const auto q = RandomFloats(static_cast<size_t>(length) * QueryWidth(shape), 17, 2.0f);
  const AttentionArgs args = ArgsOf(shape, 0, 8.0f);
  const auto sum = [&](const std::string& on, int32_t chunk, int threads) {
    return SumInChunks(on, cache, args, q, length, chunk, first, threads, prompt);
  };
  const Summed want = sum("reference", length, 1);
  const Summed whole = sum(isa, length, 1);
  if (prompt == 0) {
    ExpectNear(whole.sums, want.sums, 1e-4, 1e-6, isa + " " + Describe(shape));
    ExpectNear(whole.y, want.y, 1e-5, 4e-6, isa + " " + Describe(shape));
  } else {
    ExpectNear(whole.sums, want.sums, 2e-2, 1e-3, isa + " " + Describe(shape));
  }
  double mass = 0;
  for (const float x : whole.sums) mass += x;
  EXPECT_NEAR(mass, shape.n_heads * (length - first), 1e-2);
  // Layer 0 is another layer's.
  const int64_t layer = int64_t{shape.kv_heads} * length;
  EXPECT_TRUE(std::all_of(whole.sums.begin(), whole.sums.begin() + layer,
                          [](float x) { return x == 0.0f; }));
  for (const int32_t chunk : {1, 7, 64}) {
    for (const int threads : {1, 3}) {
      const Summed again = sum(isa, chunk, threads);
      ExpectSameBits(again.sums, whole.sums, fmt::format("{} chunk {}", isa, chunk));
      ExpectSameBits(again.y, whole.y, fmt::format("{} chunk {}", isa, chunk));
    }
  }
  Batch plain;  // the outputs are those of attention that sums nothing
  plain.phase = Phase::kPrompt;
  plain.Add(0, 0, prompt);
  plain.phase = Phase::kGenerated;
  plain.Add(0, prompt, length);
  ExpectSameBits(whole.y, Attend(isa, cache, args, plain, q, 2), isa);
}

TEST(KeyScores, AreTheSoftmaxWeightsInTheSameBitsForAnyChunks) {
  for (const std::string& isa : CpuIsas()) {
    for (const CacheShape& shape :
         {CacheShape{6, 2, 32, 32, 16, KvType::kF16}, CacheShape{30, 1, 20, 20, 8, KvType::kInt8},
          CacheShape{2, 2, 16, 16, 64, KvType::kF32}}) {
      for (const int32_t prompt : {0, 75}) ExpectKeyScores(isa, shape, prompt);
    }
  }
}

// [heads, n, dim] to [n, heads, dim].
std::vector<float> TokensFirst(const std::vector<float>& in, int64_t heads, int64_t n,
                               int64_t dim) {
  std::vector<float> out(in.size());
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t t = 0; t < n; ++t) {
      std::copy_n(in.begin() + (h * n + t) * dim, dim, out.begin() + (t * heads + h) * dim);
    }
  }
  return out;
}

TEST(Attention, EqualsTheFixtures) {
  LUCID_NEEDS_FIXTURES();
  const Fixture fixture("attention");
  for (const auto& c : fixture.cases) {
    if (c["causal"] != true) continue;  // no model here looks ahead
    CacheShape shape{c["heads"], c["kv_heads"], c["d"], c["dv"], 16, KvType::kF32};
    const int32_t keys = c["keys"];
    const int32_t queries = c["queries"];
    Cache cache(shape, 1, keys);
    const auto k = TokensFirst(fixture.Floats(c["k"]), shape.kv_heads, keys, shape.k_dim);
    const auto v = TokensFirst(fixture.Floats(c["v"]), shape.kv_heads, keys, shape.v_dim);
    const auto q = TokensFirst(fixture.Floats(c["q"]), shape.n_heads, queries, shape.k_dim);
    const auto want = TokensFirst(fixture.Floats(c["out"]), shape.n_heads, queries, shape.v_dim);
    Batch all;
    all.Add(0, 0, keys);
    const KvStoreArgs store{cache.View(), k.data(), v.data()};
    RunAs(KernelOf("reference", KernelOp::kKvStore, &store), &store, all.Step(cache), 1);
    AttentionArgs args = ArgsOf(shape, c["window"].is_null() ? 0 : c["window"].get<int32_t>(),
                                c["softcap"].is_null() ? 0 : c["softcap"].get<float>());
    args.scale = c["scale"];
    std::vector<float> slopes;
    if (c["alibi"] == true) {
      slopes = Fixture("alibi").Floats("slopes." + std::to_string(shape.n_heads));
      args.slopes = slopes.data();
    }
    std::vector<float> sinks;
    if (!c["sink"].is_null()) {
      sinks = fixture.Floats(c["sink"]);
      args.sinks = sinks.data();
    }
    Batch last;
    last.Add(0, keys - queries, keys);
    for (const std::string& isa : AllIsas()) {
      ExpectNear(Attend(isa, cache, args, last, q, 2), want, 1e-5, 1e-6,
                 isa + " " + c["name"].get<std::string>());
    }
  }
  fixture.ExpectAllRead(
      [](const std::string& array) { return array.starts_with("bidirectional."); });
}

}  // namespace
}  // namespace lucid
