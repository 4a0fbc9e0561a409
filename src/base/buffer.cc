#include "base/buffer.h"

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <utility>

namespace lucid {

namespace {

std::atomic<int64_t> live_bytes{0};

}  // namespace

int64_t Buffer::LiveBytes() {
  return live_bytes.load(std::memory_order_relaxed);
}

Result<Buffer> Buffer::Allocate(size_t bytes) {
  Buffer buffer;
  if (bytes == 0) return buffer;
  void* map = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED)
    return Err(ErrorCode::kCapacity, "cannot allocate {} bytes of memory", bytes);
  buffer.data_ = static_cast<std::byte*>(map);
  buffer.size_ = bytes;
  live_bytes.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  return buffer;
}

Status Buffer::Populate() {
  if (size_ == 0) return {};
#ifdef MADV_POPULATE_WRITE  // Linux 5.14
  if (::madvise(data_, size_, MADV_POPULATE_WRITE) == 0) return {};
  if (errno != EINVAL) {
    return Err(ErrorCode::kCapacity, "the machine does not have {} bytes of memory to give", size_);
  }
#endif
  constexpr size_t kPage = 4096;
  for (size_t at = 0; at < size_; at += kPage) {
    static_cast<volatile std::byte*>(data_)[at] = std::byte{0};
  }
  return {};
}

void Buffer::PreferHugePages() {
#ifdef MADV_HUGEPAGE
  if (size_ > 0) ::madvise(data_, size_, MADV_HUGEPAGE);
#endif
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ == nullptr) return;
  ::munmap(data_, size_);
  live_bytes.fetch_sub(static_cast<int64_t>(size_), std::memory_order_relaxed);
}

}  // namespace lucid
