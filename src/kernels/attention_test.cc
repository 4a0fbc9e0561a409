// Attention and KvStore of every instruction set against the reference and the fixtures, over block
// tables in random order, and the promise that a token's bits depend on its own sequence alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "kernels/kernel_test_util.h"

namespace lucid {
namespace {

using namespace testing_util;  // NOLINT: the helpers of these tests

struct CacheShape {
  int32_t n_heads = 4, kv_heads = 2, k_dim = 16, v_dim = 16, block_size = 8;
  DType dtype = DType::kF32;
};

// A cache with room for `capacity` positions of each sequence; its blocks are shuffled, and all
// bytes are NaN at first.
struct Cache {
  CacheShape shape;
  std::vector<std::byte> k, v;
  std::vector<int32_t> tables;
  int32_t stride;
  KvView view;

  Cache(const CacheShape& s, int32_t sequences, int32_t capacity) : shape(s) {
    stride = (capacity + s.block_size - 1) / s.block_size;
    tables.resize(static_cast<size_t>(sequences * stride));
    std::iota(tables.begin(), tables.end(), 0);
    std::shuffle(tables.begin(), tables.end(), std::mt19937(5));
    const int64_t vectors = int64_t{sequences} * stride * s.kv_heads * s.block_size;
    k.assign(static_cast<size_t>(vectors * RowBytes(s.dtype, s.k_dim)), std::byte{0xff});
    v.assign(static_cast<size_t>(vectors * RowBytes(s.dtype, s.v_dim)), std::byte{0xff});
    view = {k.data(), v.data(), s.dtype, s.dtype, s.kv_heads, s.k_dim, s.v_dim, s.block_size};
  }
};

// A step: tokens (sequence, position), in sequence order.
struct Batch {
  std::vector<int32_t> sequence, positions;
  StepView Step(const Cache& cache) const {
    StepView step;
    step.n_tokens = static_cast<int32_t>(positions.size());
    step.positions = positions.data();
    step.sequence = sequence.data();
    step.block_tables = cache.tables.data();
    step.block_table_stride = cache.stride;
    return step;
  }
  void Add(int32_t seq, int32_t begin, int32_t end) {
    for (int32_t p = begin; p < end; ++p) {
      sequence.push_back(seq);
      positions.push_back(p);
    }
  }
};

void FillCache(std::string_view isa, Cache& cache, int32_t sequences, int32_t length) {
  Batch all;
  for (int32_t s = 0; s < sequences; ++s) all.Add(s, 0, length);
  const size_t n = all.positions.size() * static_cast<size_t>(cache.shape.kv_heads);
  const auto k = RandomFloats(n * static_cast<size_t>(cache.shape.k_dim), 11);
  const auto v = RandomFloats(n * static_cast<size_t>(cache.shape.v_dim), 12);
  const KvStoreArgs args{cache.view, k.data(), v.data()};
  RunAs(KernelOf(isa, KernelOp::kKvStore, &args), &args, all.Step(cache), 3);
}

std::vector<float> Attend(std::string_view isa, const Cache& cache, AttentionArgs args,
                          const Batch& batch, const std::vector<float>& q, int threads) {
  std::vector<float> y(
      batch.positions.size() * static_cast<size_t>(args.n_heads * cache.shape.v_dim), NAN);
  args.kv = cache.view;
  args.q = q.data();
  args.y = y.data();
  RunAs(KernelOf(isa, KernelOp::kAttention, &args), &args, batch.Step(cache), threads);
  return y;
}

AttentionArgs ArgsOf(const CacheShape& s, int32_t window, float softcap) {
  AttentionArgs args;
  args.n_heads = s.n_heads;
  args.window = window;
  args.softcap = softcap;
  args.scale = 1.0f / std::sqrt(static_cast<float>(s.k_dim));
  return args;
}

const CacheShape kShapes[] = {
    {4, 4, 16, 16, 8, DType::kF32},      {9, 3, 64, 64, 16, DType::kF16},
    {4, 1, 256, 256, 32, DType::kF16},   {6, 2, 24, 40, 5, DType::kBF16},
    {2, 1, 7, 3, 1, DType::kF32},        {32, 1, 33, 17, 128, DType::kF16},
    {16, 2, 128, 128, 64, DType::kBF16},
};

TEST(KvStore, WritesTheBytesTheReferenceWrites) {
  for (const std::string& isa : CpuIsas()) {
    for (const CacheShape& shape : kShapes) {
      Cache want(shape, 2, 19);
      Cache got(shape, 2, 19);
      FillCache("reference", want, 2, 19);
      FillCache(isa, got, 2, 19);
      EXPECT_EQ(got.k, want.k) << isa << ' ' << Name(shape.dtype);
      EXPECT_EQ(got.v, want.v) << isa << ' ' << Name(shape.dtype);
    }
  }
}

TEST(Attention, MatchesTheReferenceForPromptsDecodeWindowsAndCaps) {
  for (const std::string& isa : CpuIsas()) {
    for (const CacheShape& shape : kShapes) {
      Cache cache(shape, 2, 150);
      FillCache("reference", cache, 2, 150);
      Batch batch;
      batch.Add(0, 0, 9);
      batch.Add(0, 60, 70);
      batch.Add(1, 149, 150);
      const auto q = RandomFloats(
          batch.positions.size() * static_cast<size_t>(shape.n_heads * shape.k_dim), 13, 2.0f);
      for (int32_t window : {0, 1, 7, 64, 100}) {
        for (float softcap : {0.0f, 5.0f}) {
          const AttentionArgs args = ArgsOf(shape, window, softcap);
          const auto want = Attend("reference", cache, args, batch, q, 2);
          ExpectNear(Attend(isa, cache, args, batch, q, 2), want, 1e-5, 2e-6,
                     fmt::format("{} window {} cap {} dim {}", isa, window, softcap, shape.k_dim));
        }
      }
    }
  }
}

TEST(Attention, ATokenHasTheSameBitsAloneAndInAnyBatchForAnyNumberOfThreads) {
  for (const std::string& isa : CpuIsas()) {
    for (const CacheShape& shape : kShapes) {
      Cache cache(shape, 3, 140);
      FillCache(isa, cache, 3, 140);
      Batch all;
      all.Add(0, 0, 140);
      all.Add(1, 139, 140);
      all.Add(2, 30, 80);
      const auto width_q = static_cast<size_t>(shape.n_heads * shape.k_dim);
      const auto width_y = static_cast<size_t>(shape.n_heads * shape.v_dim);
      const auto q = RandomFloats(all.positions.size() * width_q, 14);
      for (int32_t window : {0, 33}) {
        const AttentionArgs args = ArgsOf(shape, window, 0);
        std::vector<float> alone;
        for (size_t i = 0; i < all.positions.size(); ++i) {
          Batch one;
          one.Add(all.sequence[i], all.positions[i], all.positions[i] + 1);
          const std::vector<float> q_one(
              q.begin() + static_cast<std::ptrdiff_t>(i * width_q),
              q.begin() + static_cast<std::ptrdiff_t>((i + 1) * width_q));
          const auto y = Attend(isa, cache, args, one, q_one, 1 + static_cast<int>(i % 3));
          alone.insert(alone.end(), y.begin(), y.end());
        }
        for (int threads = 1; threads <= 5; ++threads) {
          ExpectSameBits(Attend(isa, cache, args, all, q, threads), alone,
                         fmt::format("{} threads {} dim {}", isa, threads, shape.k_dim));
        }
        Batch part;  // another chunk of the same prompt
        part.Add(0, 37, 101);
        const std::vector<float> q_part(q.begin() + static_cast<std::ptrdiff_t>(37 * width_q),
                                        q.begin() + static_cast<std::ptrdiff_t>(101 * width_q));
        const std::vector<float> want(alone.begin() + static_cast<std::ptrdiff_t>(37 * width_y),
                                      alone.begin() + static_cast<std::ptrdiff_t>(101 * width_y));
        ExpectSameBits(Attend(isa, cache, args, part, q_part, 2), want, isa);
      }
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
  std::vector<std::string> isas = CpuIsas();
  isas.emplace_back("reference");
  int used = 0;
  for (const auto& c : fixture.cases) {
    if (c["alibi"] == true || !c["sink"].is_null() || c["causal"] != true) continue;  // other ops
    ++used;
    CacheShape shape{c["heads"], c["kv_heads"], c["d"], c["dv"], 16, DType::kF32};
    const int32_t keys = c["keys"];
    const int32_t queries = c["queries"];
    Cache cache(shape, 1, keys);
    const auto k = TokensFirst(fixture.Floats(c["k"]), shape.kv_heads, keys, shape.k_dim);
    const auto v = TokensFirst(fixture.Floats(c["v"]), shape.kv_heads, keys, shape.v_dim);
    const auto q = TokensFirst(fixture.Floats(c["q"]), shape.n_heads, queries, shape.k_dim);
    const auto want = TokensFirst(fixture.Floats(c["out"]), shape.n_heads, queries, shape.v_dim);
    Batch all;
    all.Add(0, 0, keys);
    const KvStoreArgs store{cache.view, k.data(), v.data()};
    RunAs(KernelOf("reference", KernelOp::kKvStore, &store), &store, all.Step(cache), 1);
    AttentionArgs args = ArgsOf(shape, c["window"].is_null() ? 0 : c["window"].get<int32_t>(),
                                c["softcap"].is_null() ? 0 : c["softcap"].get<float>());
    args.scale = c["scale"];
    Batch last;
    last.Add(0, keys - queries, keys);
    for (const std::string& isa : isas) {
      ExpectNear(Attend(isa, cache, args, last, q, 2), want, 1e-5, 1e-6,
                 isa + " " + c["name"].get<std::string>());
    }
  }
  EXPECT_GE(used, 5);
}

}  // namespace
}  // namespace lucid
