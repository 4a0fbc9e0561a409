// For tests: a cache memory that holds numbers instead of keys and values, and what computes them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/check.h"
#include "kv/kv_cache.h"

namespace lucid {

// What stands for the keys and values of one position: depends on its token, its phase and all
// before it, as the real ones do.
struct FakeKv {
  uint64_t tokens = 0;  // of the tokens so far
  uint64_t phases = 0;  // of their phases as well
  bool operator==(const FakeKv&) const = default;
};

inline FakeKv NextFakeKv(const FakeKv& before, int32_t token, bool prompt) {
  const auto mix = [](uint64_t state, uint64_t value) {
    state = (state + value + 1) * 0xD6E8FEB86659FD93u;
    return state ^ (state >> 32);
  };
  return {mix(before.tokens, static_cast<uint64_t>(token)),
          mix(before.phases, static_cast<uint64_t>(token) * 2 + (prompt ? 1 : 0))};
}

// Blocks of block_size FakeKv each. Every page of a block would say the same, so it has one.
class FakeKvMemory final : public KvMemory {
 public:
  FakeKvMemory(const KvLayout& layout, const PoolCounts& n_blocks) : size_(layout.block_size()) {
    for (size_t p = 0; p < layout.pools().size(); ++p) {
      pools_.emplace_back(static_cast<size_t>(n_blocks[p] * size_));
    }
  }

  FakeKv& At(size_t pool, int32_t block, int64_t place) {
    return pools_[pool][static_cast<size_t>(block * size_ + place)];
  }
  void CopyBlock(int32_t pool, int32_t from, int32_t to) override {
    for (int64_t i = 0; i < size_; ++i) {
      At(static_cast<size_t>(pool), to, i) = At(static_cast<size_t>(pool), from, i);
    }
  }
  void ReadBlock(int32_t pool, int32_t block, std::byte* bytes) const override {
    std::memcpy(bytes, &pools_[static_cast<size_t>(pool)][static_cast<size_t>(block * size_)],
                static_cast<size_t>(size_) * sizeof(FakeKv));
  }
  void WriteBlock(int32_t pool, int32_t block, const std::byte* bytes) override {
    std::memcpy(&At(static_cast<size_t>(pool), block, 0), bytes,
                static_cast<size_t>(size_) * sizeof(FakeKv));
  }

 private:
  int64_t size_;
  std::vector<std::vector<FakeKv>> pools_;
};

// A sequence that computes FakeKv where a model would compute keys and values, and knows what its
// cache must hold. Layers must be as large as FakeKv per position at least (see SwapOut).
class FakeSequence {
 public:
  FakeSequence(KvCache& cache, FakeKvMemory& memory, std::vector<int32_t> tokens, int64_t n_prompt,
               SequenceHandle handle)
      : cache_(&cache),
        memory_(&memory),
        tokens_(std::move(tokens)),
        n_prompt_(n_prompt),
        handle_(handle) {}

  SequenceHandle handle() const { return handle_; }
  const std::vector<int32_t>& tokens() const { return tokens_; }
  std::vector<int32_t>& tokens() { return tokens_; }
  int64_t n_prompt() const { return n_prompt_; }
  int64_t length() const { return cache_->length(handle_); }

  int64_t Attach(int64_t most) {
    const int64_t n = cache_->Attach(handle_, tokens_, most, n_prompt_);
    Learn();
    return n;
  }

  // One step up to n_tokens. False if there is no room.
  bool Step(int64_t n_tokens) {
    if (!cache_->Reserve(handle_, n_tokens)) return false;
    Compute(n_tokens);
    cache_->Commit(handle_, tokens_, n_tokens, n_prompt_);
    return true;
  }

  // Writes places [length, n_tokens) as kernels do.
  void Compute(int64_t n_tokens) {
    const KvLayout& layout = cache_->layout();
    for (int64_t p = length(); p < n_tokens; ++p) {
      const FakeKv before = p == 0 ? FakeKv{} : known_[static_cast<size_t>(p - 1)];
      const FakeKv kv = NextFakeKv(before, tokens_[static_cast<size_t>(p)], p < n_prompt_);
      known_.resize(static_cast<size_t>(p + 1));
      known_.back() = kv;
      for (size_t g = 0; g < layout.groups().size(); ++g) {
        if (layout.groups()[g].kind != KvGroupKind::kPacked) Place(g, p) = kv;
      }
    }
    Pack(n_tokens);
  }

  // The sequence reads, at every place that the next query can reach, what it computed or took.
  void Check() {
    if (cache_->swapped(handle_)) return;
    const KvLayout& layout = cache_->layout();
    FakeKv chain;         // as if all was computed by this sequence
    FakeKv prompt_chain;  // as if all was a prompt
    for (int64_t p = 0; p < length(); ++p) {
      chain = NextFakeKv(chain, tokens_[static_cast<size_t>(p)], p < n_prompt_);
      prompt_chain = NextFakeKv(prompt_chain, tokens_[static_cast<size_t>(p)], true);
      for (size_t g = 0; g < layout.groups().size(); ++g) {
        if (!Reads(g, p)) continue;
        ASSERT_EQ(Place(g, p).tokens, chain.tokens) << "group " << g << ", place " << p;
        ASSERT_EQ(Place(g, p).phases, known_[static_cast<size_t>(p)].phases)
            << "group " << g << ", place " << p;
        if (p < cache_->prompt_length(handle_)) {
          ASSERT_EQ(Place(g, p).phases, prompt_chain.phases) << "group " << g << ", place " << p;
        }
        if (cache_->options().strict) {
          ASSERT_EQ(Place(g, p).phases, chain.phases) << "group " << g << ", place " << p;
        }
      }
    }
  }

  FakeSequence Fork() const {
    FakeSequence twin = *this;
    twin.handle_ = cache_->Fork(handle_);
    return twin;
  }
  void Truncate(int64_t n_tokens) {
    cache_->Truncate(handle_, n_tokens);
    known_.resize(static_cast<size_t>(n_tokens));
    tokens_.resize(static_cast<size_t>(std::max(n_tokens, n_prompt_)));
  }

 private:
  FakeKv& Place(size_t group, int64_t place) {
    const int64_t size = cache_->layout().block_size();
    const int32_t block = cache_->Table(handle_, group)[static_cast<size_t>(place / size)];
    LUCID_CHECK(block >= 0, "place {} of group {} is not there", place, group);
    return memory_->At(static_cast<size_t>(cache_->layout().groups()[group].pool), block,
                       place % size);
  }
  bool Reads(size_t group, int64_t place) const {
    const KvLayout& layout = cache_->layout();
    const KvGroup& g = layout.groups()[group];
    if (g.kind == KvGroupKind::kWindow) return place >= length() + 1 - g.window;
    return place / layout.block_size() < layout.Needed(group, length(), length()).last;
  }
  bool Holds(size_t group, int64_t place) const {
    const std::span<const int32_t> table = cache_->Table(handle_, group);
    const size_t block = static_cast<size_t>(place / cache_->layout().block_size());
    return block < table.size() && table[block] >= 0;
  }
  // What the sequence took from others is known from now on.
  void Learn() {
    known_.assign(static_cast<size_t>(length()), {});
    for (int64_t p = 0; p < length(); ++p) {
      for (size_t g = 0; g < cache_->layout().groups().size(); ++g) {
        if (Holds(g, p)) known_[static_cast<size_t>(p)] = Place(g, p);
      }
    }
  }
  // Kivi2: packs the blocks that the residual has left, from the recent pages.
  void Pack(int64_t n_tokens) {
    const KvLayout& layout = cache_->layout();
    const int64_t size = layout.block_size();
    for (size_t g = 0; g < layout.groups().size(); ++g) {
      if (layout.groups()[g].kind != KvGroupKind::kPacked) continue;
      const size_t layer = static_cast<size_t>(layout.groups()[g].layers.front());
      const size_t recent = static_cast<size_t>(layout.place(layer).recent_group);
      const int64_t first = layout.Needed(g, length(), length()).last;
      for (int64_t p = first * size; p < layout.Needed(g, n_tokens, n_tokens).last * size; ++p) {
        Place(g, p) = Place(recent, p);
      }
    }
  }

  KvCache* cache_;
  FakeKvMemory* memory_;
  std::vector<int32_t> tokens_;
  int64_t n_prompt_;
  SequenceHandle handle_;
  std::vector<FakeKv> known_;  // by place
};

}  // namespace lucid
