// Buffer: zeroed memory, aligned to a page, whose pages cost nothing until they are touched or
// populated.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace lucid {

class Buffer {
 public:
  // kCapacity naming the size if the system refuses.
  static Result<Buffer> Allocate(size_t bytes);

  // Takes the memory of all pages now. kCapacity if there is not enough.
  Status Populate();

  // Asks for huge pages where the system has them: data that is read front to back costs fewer
  // address translations. Without effect where it has none.
  void PreferHugePages();

  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  // Bytes of all buffers of the process that are alive: what a foreseen footprint is compared with.
  static int64_t LiveBytes();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace lucid
