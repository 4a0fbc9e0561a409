// KvManager: which blocks of the cache each sequence owns. The engine picks an implementation at
// load and works through this interface.
//
// ContiguousKv is the simple implementation: a fixed number of sequences, each with one run of
// blocks for a whole context.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"

namespace lucid {

using SequenceHandle = int32_t;

class KvManager {
 public:
  virtual ~KvManager() = default;

  // A new, empty sequence. kCapacity if none is free.
  virtual Result<SequenceHandle> Open() = 0;
  // Makes room for positions 0 .. n_tokens - 1. kCapacity with both numbers if there is none.
  virtual Status Reserve(SequenceHandle sequence, int64_t n_tokens) = 0;
  // Gives everything back.
  virtual void Close(SequenceHandle sequence) = 0;
  // The physical block of each logical one, enough for what was reserved.
  virtual std::span<const int32_t> Blocks(SequenceHandle sequence) const = 0;
  virtual int64_t block_size() const = 0;
};

class ContiguousKv final : public KvManager {
 public:
  // `context` positions for each of `n_sequences`.
  ContiguousKv(int32_t n_sequences, int64_t context, int64_t block_size);

  Result<SequenceHandle> Open() override;
  Status Reserve(SequenceHandle sequence, int64_t n_tokens) override;
  void Close(SequenceHandle sequence) override;
  std::span<const int32_t> Blocks(SequenceHandle sequence) const override;
  int64_t block_size() const override { return block_size_; }

  // Blocks that the storage behind it must have.
  static int64_t BlockCount(int32_t n_sequences, int64_t context, int64_t block_size);

 private:
  int64_t context_;
  int64_t block_size_;
  std::vector<std::vector<int32_t>> blocks_;  // by sequence
  std::vector<bool> open_;
};

}  // namespace lucid
