#include "kv/kv_manager.h"

#include "base/check.h"

namespace lucid {
namespace {

int64_t BlocksFor(int64_t tokens, int64_t block_size) {
  return (tokens + block_size - 1) / block_size;
}

}  // namespace

int64_t ContiguousKv::BlockCount(int32_t n_sequences, int64_t context, int64_t block_size) {
  return n_sequences * BlocksFor(context, block_size);
}

ContiguousKv::ContiguousKv(int32_t n_sequences, int64_t context, int64_t block_size)
    : context_(context),
      block_size_(block_size),
      blocks_(static_cast<size_t>(n_sequences)),
      open_(static_cast<size_t>(n_sequences), false) {}

Result<SequenceHandle> ContiguousKv::Open() {
  for (size_t s = 0; s < open_.size(); ++s) {
    if (open_[s]) continue;
    open_[s] = true;
    return static_cast<SequenceHandle>(s);
  }
  return Err(ErrorCode::kCapacity, "all {} sequences of the cache are in use", open_.size());
}

Status ContiguousKv::Reserve(SequenceHandle sequence, int64_t n_tokens) {
  LUCID_CHECK(open_[static_cast<size_t>(sequence)], "sequence {} is not open", sequence);
  if (n_tokens > context_) {
    return Err(ErrorCode::kCapacity, "{} tokens do not fit a cache of {} positions", n_tokens,
               context_);
  }
  std::vector<int32_t>& blocks = blocks_[static_cast<size_t>(sequence)];
  const int64_t first = sequence * BlocksFor(context_, block_size_);
  while (static_cast<int64_t>(blocks.size()) < BlocksFor(n_tokens, block_size_)) {
    blocks.push_back(static_cast<int32_t>(first + static_cast<int64_t>(blocks.size())));
  }
  return {};
}

void ContiguousKv::Close(SequenceHandle sequence) {
  LUCID_CHECK(open_[static_cast<size_t>(sequence)], "sequence {} is not open", sequence);
  open_[static_cast<size_t>(sequence)] = false;
  blocks_[static_cast<size_t>(sequence)].clear();
}

std::span<const int32_t> ContiguousKv::Blocks(SequenceHandle sequence) const {
  return blocks_[static_cast<size_t>(sequence)];
}

}  // namespace lucid
