// Softmax attention over the paged cache.
//
//   attention_keys-inl.h     query tiles: which rows go through the cache together, what they read
//   attention_scratch-inl.h  a thread's scratch, rows of the cache
//   attention_exact-inl.h    arithmetic in float32
//   attention_pairs-inl.h    arithmetic on bfloat16 pairs
//   attention_tile-inl.h     a tile through its keys
//   here                     who does what, and the sums of weights that eviction wants
//
// For one query head the result is a function of its own query, its keys and its token's phase:
// keys are taken in chunks of kChunk places, the softmax of each piece of kPiece places is summed
// by itself (Dao et al. 2023, "Flash-Decoding for long-context inference"), and pieces are merged
// upwards. Neither the tile a row is in nor the thread that computes a piece matters.
#pragma once

#include <cstdint>

#include "kernels/args.h"
#include "kernels/cpu/attention_tile-inl.h"

namespace lucid::LUCID_ISA {
namespace {

// Calls body(arithmetic) with what the tile's rows, which are all of one phase, are computed in.
template <typename Body>
[[gnu::always_inline]] inline void WithMath([[maybe_unused]] const AttentionArgs& a,
                                            [[maybe_unused]] const StepView& step,
                                            [[maybe_unused]] const QueryTile& t, Body&& body) {
#if defined(LUCID_HAS_PAIRS)
  const bool prompt = step.phases != nullptr && step.phases[t.token] == Phase::kPrompt;
  if (prompt && !a.exact && a.kv.pages.k_type != KvType::kF32 &&
      a.kv.pages.v_type != KvType::kF32) {
    return body(PairsMath());
  }
#endif
  body(ExactMath());
}

// A tile's pieces [begin, end); all of them if out is nullptr, and then the result goes to a.y.
inline void AttendTile(const AttentionArgs& a, const StepView& step, const CacheArrays& c,
                       const QueryTile& t, const TileKeys& keys, int64_t begin, int64_t end,
                       const AttentionScratchView& s, float* out) {
  WithMath(a, step, t,
           [&](auto math) { AttendPieces<decltype(math)>(a, c, t, keys, begin, end, s, out); });
  if (out != nullptr) return;
  for (int64_t r = 0; r < RowsOf(t); ++r) PutOutput(a, HeadIndex(a, t, r), AllOf(s, r));
}

inline int64_t FirstPiece(const TileKeys& keys) {
  return AllPlaces(keys).from / kPiece;
}
inline int64_t EndPieceOf(const TileKeys& keys) {
  return (AllPlaces(keys).to + kPiece - 1) / kPiece;
}

// ---- Sums of weights

// After AttendTile of a tile of one sequence: a second pass over the keys adds the final weights of
// each row to the sums of KeyScores, row by row.
template <typename Math>
void SumWeights(const AttentionArgs& a, const StepView& step, const CacheArrays& c,
                const QueryTile& t, const TileKeys& keys, const AttentionScratchView& s) {
  const KeyScores& wanted = step.scores[step.sequence[t.token]];
  float* sums = wanted.sums + a.kv.layer * wanted.layer_stride + t.kv_head * wanted.capacity;
  const auto add_row = [&](int64_t row, int64_t in_tile, int64_t base, Places seen) {
    const F max = Set(s.all_max[row]);
    const F total = Set(TotalOf(a, HeadIndex(a, t, row), s.all_max[row], s.all_total[row]));
    const float* scores = s.weights + in_tile * kChunk;
    ForVectors(
        seen.from, seen.to, [&](int64_t j, int64_t count) __attribute__((always_inline)) {
          const F score = Biased(a, s, row, Capped(a, LoadUpTo(scores + j, count)),
                                 keys.seen[row].to - 1 - base - j);
          const F weight = Math::Power(score - max);
          float* sum = sums + base + j;
          StoreUpTo(sum, LoadUpTo(sum, count) + weight / total, count);
        });
  };
  for (int64_t i = 0; i < keys.n; ++i) {
    const Span& span = keys.spans[i];
    int64_t first = span.row;
    while (first < span.end && step.positions[TokenOf(t, first)] < wanted.first_position) ++first;
    if (first == span.end) continue;
    for (int64_t base = span.first / kChunk * kChunk; base <= span.last; base += kChunk) {
      const Places part = PartOf(span, base);
      Ahead ahead;
      LoadChunk<Math>(c, span.source, t.kv_head, base, part, span.last, false, s, &ahead);
      ahead.AskForRest();
      for (int64_t row = first; row < span.end; ++row) {
        Math::template Score<1, 0>(s, row, part, nullptr);
        add_row(row, 0, base, RowPart(keys.seen[row], base, part));
      }
    }
  }
}

// All query heads of one KV head for the tokens [begin, end) of a sequence whose weights are
// summed: in order, by one thread.
inline void AttendSummed(const AttentionArgs& a, const StepView& step, const CacheArrays& c,
                         int64_t begin, int64_t end, int64_t kv_head,
                         const AttentionScratchView& s) {
  const int64_t group = a.n_heads / a.kv.n_heads;
  const int64_t most = RowsFor(a.kv);
  const int64_t tile_tokens = group < most ? most / group : 1;
  for (int64_t token = begin; token < end;) {
    int64_t tokens = 1;
    while (token + tokens < end && tokens < tile_tokens && SamePhase(step, token, token + tokens)) {
      ++tokens;
    }
    for (int64_t head = 0; head < group; head += most) {
      const QueryTile tile = {token, tokens, kv_head * group + head, Least(most, group - head),
                              kv_head};
      TileKeys keys;
      FindKeys(a, step, tile, &keys);
      AttendTile(a, step, c, tile, keys, FirstPiece(keys), EndPieceOf(keys), s, nullptr);
      WithMath(a, step, tile,
               [&](auto math) { SumWeights<decltype(math)>(a, step, c, tile, keys, s); });
    }
    token += tokens;
  }
}

// ---- Work

// Calls fn(tile) for the tiles of all sequences without sums. Tiles are the same for every thread;
// what a row comes to does not depend on them.
template <typename Fn>
inline void ForQueryTiles(const AttentionArgs& a, const StepView& step, const CacheArrays& c,
                          int64_t threads, Fn&& fn) {
  const int64_t kv_heads = a.kv.n_heads;
  const int64_t group = a.n_heads / kv_heads;
  const int64_t rows = RowsFor(a.kv);
  // Two tiles for each thread must be left, but those of a few rows would load as much as they use.
  const int64_t even = step.n_tokens * kv_heads / (2 * threads);
  const int64_t least = (kMinRows + group - 1) / group;
  const int64_t fair = even > least ? even : least;
  const int64_t most = group < rows ? Least(rows / group, fair) : 1;
  for (int64_t token = 0; token < step.n_tokens;) {
    if (WantsScores(a, step, step.sequence[token])) {
      token = SequenceEnd(step, token);
      continue;
    }
    if (a.generated_only && !IsGenerated(step, token)) {
      ++token;
      continue;
    }
    const int64_t end = TileEnd(a, step, c, token, most, Least(most, even));
    for (int64_t kv_head = 0; kv_head < kv_heads; ++kv_head) {
      for (int64_t head = 0; head < group; head += rows) {
        fn({token, end - token, kv_head * group + head, Least(rows, group - head), kv_head});
      }
    }
    token = end;
  }
}

// About the time a tile takes.
inline int64_t CostOf(const QueryTile& t, const TileKeys& keys) {
  constexpr int64_t kLoading = 12;  // of a place, in rows
  const Places all = AllPlaces(keys);
  return (all.to - all.from) * (RowsOf(t) + kLoading);
}

// Memory that threads share: a counter for each tile that is split, and slots for its pieces' rows.
constexpr int64_t kSplitTiles = kSharedCounterBytes / 4;
constexpr int64_t kSplitSlots = 4096;
constexpr int64_t kSplitRows = 64;  // higher tiles are not split

size_t AttentionShared(const void* args, int64_t /*max_rows*/) {
  const KvView& kv = static_cast<const AttentionArgs*>(args)->kv;
  const int64_t floats = kSplitSlots * SlotFloats(Padded(kv.v_dim));
  return static_cast<size_t>(kSharedCounterBytes + floats * 4);
}

// Deals tiles to threads in order, so that each has an equal part of the cost. A tile on the border
// of two parts is split into its pieces, and whoever finishes last merges them.
class Dealer {
 public:
  Dealer(const AttentionArgs& a, const StepView& step, const CacheArrays& c,
         const ThreadSlot& thread)
      : a_(a), step_(step), c_(c), thread_(thread), s_(ViewScratch(a.kv, thread.scratch)) {}

  void AddCost(const QueryTile& t) {
    TileKeys keys;
    FindKeys(a_, step_, t, &keys);
    cost_ += CostOf(t, keys);
  }

  void Deal(const QueryTile& t) {
    TileKeys keys;
    FindKeys(a_, step_, t, &keys);
    const int64_t cost = CostOf(t, keys);
    const int64_t begin = dealt_;
    dealt_ += cost;
    const int64_t first_piece = FirstPiece(keys);
    const int64_t pieces = EndPieceOf(keys) - first_piece;
    const int64_t slots = pieces * RowsOf(t);
    if (OwnerAt(begin) != OwnerAt(dealt_ - 1) && pieces > 1 && RowsOf(t) <= kSplitRows &&
        tiles_ < kSplitTiles && slots_ + slots <= kSplitSlots) {
      const int64_t slot_floats = SlotFloats(s_.v_pad);
      float* out = reinterpret_cast<float*>(thread_.shared + kSharedCounterBytes);
      Split(t, keys, begin, cost, first_piece, pieces, out + slots_ * slot_floats);
      slots_ += slots;
      ++tiles_;
    } else if (OwnerAt(begin + cost / 2) == thread_.index) {
      AttendTile(a_, step_, c_, t, keys, first_piece, first_piece + pieces, s_, nullptr);
    }
  }

 private:
  int64_t OwnerAt(int64_t cost) const { return cost * thread_.count / cost_; }

  void Split(const QueryTile& t, const TileKeys& keys, int64_t begin, int64_t cost,
             int64_t first_piece, int64_t pieces, float* slots) {
    const auto owner = [&](int64_t i) {
      return OwnerAt(begin + (2 * i + 1) * cost / (2 * pieces));
    };
    int64_t from = 0;
    while (from < pieces && owner(from) != thread_.index) ++from;
    int64_t to = from;
    while (to < pieces && owner(to) == thread_.index) ++to;
    if (from == to) return;
    const int64_t rows = RowsOf(t);
    const int64_t floats = rows * SlotFloats(s_.v_pad);  // of a piece
    AttendTile(a_, step_, c_, t, keys, first_piece + from, first_piece + to, s_,
               slots + from * floats);
    auto* counter = reinterpret_cast<uint32_t*>(thread_.shared) + tiles_;
    const auto mine = static_cast<uint32_t>(to - from);
    if (__atomic_add_fetch(counter, mine, __ATOMIC_ACQ_REL) != static_cast<uint32_t>(pieces)) {
      return;
    }
    __atomic_store_n(counter, 0u, __ATOMIC_RELAXED);
    for (int64_t r = 0; r < rows; ++r) {
      const Partial all = AllOf(s_, r);
      StartAll(all);
      for (int64_t i = 0; i < pieces; ++i) {
        Merge(all, SlotOf(slots + i * floats, s_.v_pad, r), s_.v_pad);
      }
      PutOutput(a_, HeadIndex(a_, t, r), all);
    }
  }

  const AttentionArgs& a_;
  const StepView& step_;
  const CacheArrays& c_;
  const ThreadSlot& thread_;
  const AttentionScratchView s_;
  int64_t cost_ = 0;   // of all tiles
  int64_t dealt_ = 0;  // of those before this one
  int64_t slots_ = 0;
  int64_t tiles_ = 0;  // split so far
};

void Attention(const void* args, const StepView& step, const ThreadSlot& thread) {
  const auto& a = *static_cast<const AttentionArgs*>(args);
  const CacheArrays c = ArraysOf(a.kv);
  const int64_t kv_heads = a.kv.n_heads;
  if (step.scores != nullptr) {
    const AttentionScratchView s = ViewScratch(a.kv, thread.scratch);
    int64_t item = 0;
    for (int64_t token = 0; token < step.n_tokens;) {
      const int64_t end = SequenceEnd(step, token);
      if (WantsScores(a, step, step.sequence[token])) {
        for (int64_t kv_head = 0; kv_head < kv_heads; ++kv_head, ++item) {
          if (item % thread.count == thread.index) AttendSummed(a, step, c, token, end, kv_head, s);
        }
      }
      token = end;
    }
  }
  Dealer dealer(a, step, c, thread);
  ForQueryTiles(a, step, c, thread.count, [&](const QueryTile& t) { dealer.AddCost(t); });
  ForQueryTiles(a, step, c, thread.count, [&](const QueryTile& t) { dealer.Deal(t); });
}

}  // namespace
}  // namespace lucid::LUCID_ISA
