// NullKvMemory: no memory at all behind a cache's bookkeeping, for tests and benchmarks that count
// blocks and never look into one.
#pragma once

#include <cstring>
#include <utility>

#include "kv/kv_storage.h"

namespace lucid {

class NullKvMemory final : public KvMemory {
 public:
  explicit NullKvMemory(KvLayout layout) : layout_(std::move(layout)) {}
  void CopyBlock(int32_t, int32_t, int32_t) override {}
  void ReadBlock(int32_t pool, int32_t, std::byte* bytes) const override {
    std::memset(bytes, 0,
                static_cast<size_t>(layout_.pools()[static_cast<size_t>(pool)].block_bytes));
  }
  void WriteBlock(int32_t, int32_t, const std::byte*) override {}

 private:
  KvLayout layout_;
};

}  // namespace lucid
