// What the tests of attention share: a paged cache with blocks in random order, and steps over it.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/kernel_test_util.h"

namespace lucid::testing_util {

struct CacheShape {
  int32_t n_heads = 4, kv_heads = 2, k_dim = 16, v_dim = 16, block_size = 8;
  KvType type = KvType::kF32;
  bool v_in_k = false;
};

inline std::string Describe(const CacheShape& s) {
  return fmt::format("{} heads {}/{} dims {}/{} blocks {}", Name(s.type), s.n_heads, s.kv_heads,
                     s.k_dim, s.v_dim, s.block_size);
}

// A cache with room for `capacity` positions of each sequence. Its blocks are shuffled, table by
// table; all bytes are NaN at first. Nothing reads the first block table: its entries lead nowhere.
struct Cache {
  static constexpr int32_t kPages = 1, kRecent = 2, kTables = 3;  // block tables
  CacheShape shape;
  std::vector<std::byte> pages, recent;
  std::vector<int32_t> tables;  // [kTables][sequences][stride]
  int32_t sequences;
  int32_t stride;

  Cache(const CacheShape& s, int32_t n, int32_t capacity) : shape(s), sequences(n) {
    stride = (capacity + s.block_size - 1) / s.block_size;
    const int64_t blocks = int64_t{n} * stride;
    tables.assign(static_cast<size_t>(kTables * blocks), INT32_MIN);
    for (const int32_t table : {kPages, kRecent}) {
      const auto begin = tables.begin() + table * blocks;
      std::iota(begin, begin + blocks, 0);
      std::shuffle(begin, begin + blocks, std::mt19937(5u + static_cast<uint32_t>(table)));
    }
    pages.assign(static_cast<size_t>(blocks * PageBytes(s.type)), std::byte{0xff});
    if (s.type == KvType::kKivi2) {
      recent.assign(static_cast<size_t>(blocks * PageBytes(KvType::kF16)), std::byte{0xff});
    }
  }
  int64_t HeadBytes(KvType type, bool keys) const {
    return KvHeadBytes(type, keys, keys ? shape.k_dim : shape.v_dim, shape.block_size);
  }
  int64_t PageBytes(KvType type) const {
    return shape.kv_heads * (HeadBytes(type, true) + HeadBytes(type, false));
  }
  KvPages PagesOf(std::vector<std::byte>& bytes, KvType type, int32_t table) {
    return {bytes.data(), PageBytes(type), shape.kv_heads * HeadBytes(type, true), type, type,
            table};
  }
  KvView View() {
    KvView view;
    view.pages = PagesOf(pages, shape.type, kPages);
    if (shape.type == KvType::kKivi2) view.recent = PagesOf(recent, KvType::kF16, kRecent);
    view.n_heads = shape.kv_heads;
    view.k_dim = shape.k_dim;
    view.v_dim = shape.v_dim;
    view.v_in_k = shape.v_in_k;
    view.block_size = shape.block_size;
    view.layer = 1;
    return view;
  }
  int32_t& Entry(int32_t table, int32_t sequence, int32_t block) {
    return tables[static_cast<size_t>((table * sequences + sequence) * stride + block)];
  }
  std::byte* Page(std::vector<std::byte>& bytes, KvType type, int32_t block) {
    return bytes.data() + block * PageBytes(type);
  }
};

// A step: tokens (sequence, position), in sequence order.
struct Batch {
  std::vector<int32_t> sequence, positions, dropped;
  std::vector<KeyScores> scores;
  Phase phase = Phase::kGenerated;  // of all tokens, if not set one by one
  std::vector<Phase> phases = {};
  StepView Step(const Cache& cache) const {
    StepView step;
    step.n_tokens = static_cast<int32_t>(positions.size());
    step.n_sequences = cache.sequences;
    step.positions = positions.data();
    step.sequence = sequence.data();
    step.block_tables = cache.tables.data();
    step.block_table_stride = cache.stride;
    step.dropped = dropped.empty() ? nullptr : dropped.data();
    step.scores = scores.empty() ? nullptr : scores.data();
    step.phases = phases.data();
    return step;
  }
  void Add(int32_t seq, int32_t begin, int32_t end) {
    for (int32_t p = begin; p < end; ++p) {
      sequence.push_back(seq);
      positions.push_back(p);
      phases.push_back(phase);
    }
  }
};

// Keys and values of positions [begin, end) of every sequence, each a function of sequence and
// position alone.
inline void Fill(std::string_view isa, Cache& cache, int32_t begin, int32_t end) {
  const CacheShape& s = cache.shape;
  Batch batch;
  std::vector<float> k, v;
  for (int32_t sequence = 0; sequence < cache.sequences; ++sequence) {
    batch.Add(sequence, begin, end);
    for (int32_t p = begin; p < end; ++p) {
      const auto seed = static_cast<uint32_t>(1000 * sequence + p);
      const auto k_row = RandomFloats(static_cast<size_t>(s.kv_heads * s.k_dim), 2 * seed);
      const auto v_row = RandomFloats(static_cast<size_t>(s.kv_heads * s.v_dim), 2 * seed + 1);
      k.insert(k.end(), k_row.begin(), k_row.end());
      v.insert(v.end(), v_row.begin(), v_row.end());
    }
  }
  const KvStoreArgs args{cache.View(), k.data(), v.data()};
  RunAs(KernelOf(isa, KernelOp::kKvStore, &args), &args, batch.Step(cache), 3);
}

inline std::vector<float> Attend(std::string_view isa, Cache& cache, AttentionArgs args,
                                 const Batch& batch, std::span<const float> q, int threads) {
  std::vector<float> y(
      batch.positions.size() * static_cast<size_t>(args.n_heads * cache.shape.v_dim), NAN);
  args.kv = cache.View();
  args.q = q.data();
  args.y = y.data();
  RunAs(KernelOf(isa, KernelOp::kAttention, &args), &args, batch.Step(cache), threads);
  return y;
}

inline AttentionArgs ArgsOf(const CacheShape& s, int32_t window = 0, float softcap = 0,
                            bool alibi = false) {
  static const std::vector<float> slopes = RandomFloats(64, 17, 0.1f);
  AttentionArgs args;
  args.slopes = alibi ? slopes.data() : nullptr;
  args.n_heads = s.n_heads;
  args.window = window;
  args.softcap = softcap;
  args.scale = 1.0f / std::sqrt(static_cast<float>(s.k_dim));
  return args;
}

inline size_t QueryWidth(const CacheShape& s) {
  return static_cast<size_t>(s.n_heads * s.k_dim);
}
inline std::vector<float> QueriesOf(const Batch& batch, const CacheShape& s, float scale = 1.0f) {
  return RandomFloats(batch.positions.size() * QueryWidth(s), 13, scale);
}

// Each token of a batch in a step of its own.
inline std::vector<float> AttendAlone(std::string_view isa, Cache& cache, const AttentionArgs& args,
                                      const Batch& batch, std::span<const float> q) {
  const size_t width = QueryWidth(cache.shape);
  std::vector<float> all;
  for (size_t i = 0; i < batch.positions.size(); ++i) {
    Batch one;
    one.dropped = batch.dropped;
    one.phase = batch.phases[i];
    one.Add(batch.sequence[i], batch.positions[i], batch.positions[i] + 1);
    const auto y =
        Attend(isa, cache, args, one, q.subspan(i * width, width), 1 + static_cast<int>(i % 3));
    all.insert(all.end(), y.begin(), y.end());
  }
  return all;
}

}  // namespace lucid::testing_util
