// KvSnapshot: a sequence's cache as bytes: for session files, and for handing a sequence from a
// prefill engine to a decode engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "kv/kv_cache.h"

namespace lucid {

struct KvSnapshot {
  uint64_t fingerprint = 0;          // of model, numerics and cache layout: what the bits depend on
  std::vector<int32_t> tokens = {};  // that the cache holds, from position 0
  int64_t n_prompt = 0;              // of them, computed in the prompt phase
  struct Group {
    int64_t first_block = 0;  // logical
    int64_t n_blocks = 0;
  };
  std::vector<Group> groups = {};
  std::vector<std::byte> blocks = {};  // group by group, block by block
};

// A sequence as it lies in the cache: `tokens` are all that it has committed. It must not be
// swapped out, and no eviction policy may have dropped tokens.
KvSnapshot TakeSnapshot(const KvCache& cache, SequenceHandle sequence,
                        std::span<const int32_t> tokens, uint64_t fingerprint);
// Fills an empty sequence. kInvalidArgument if the fingerprint or the shape is another one,
// kCapacity (with both numbers) if the pools have no room; the sequence is then still empty.
Status RestoreSnapshot(KvCache& cache, SequenceHandle sequence, const KvSnapshot& snapshot,
                       uint64_t fingerprint);

// One file: a magic, a version, a header with sizes, the bytes, an XXH3 checksum of all of it.
// Written under a temporary name and renamed.
Status WriteSnapshotFile(const std::string& path, const KvSnapshot& snapshot);
// kInvalidFile naming what is wrong (not such a file, cut short, checksum), kNotFound. Sizes are
// checked against the file before anything is allocated.
Result<KvSnapshot> ReadSnapshotFile(const std::string& path);

}  // namespace lucid
