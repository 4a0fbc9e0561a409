// Counts what a test program takes with operator new, all threads together. Replaces the global
// operators (of arrays too: the library's call these), so exactly one file of a program includes
// it.
//
//   AllocationCount count;
//   ... work ...
//   EXPECT_EQ(count.Taken(), 0);
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace lucid {

inline std::atomic<int64_t> g_allocations{0};  // since the program's start

class AllocationCount {
 public:
  int64_t Taken() const { return g_allocations.load() - before_; }

 private:
  int64_t before_ = g_allocations.load();
};

inline void* TakeCounted(std::size_t bytes, std::size_t alignment) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* p = std::aligned_alloc(alignment, rounded > 0 ? rounded : alignment);
  if (p == nullptr) std::abort();
  return p;
}

}  // namespace lucid

void* operator new(std::size_t bytes) {
  return lucid::TakeCounted(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return lucid::TakeCounted(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return lucid::TakeCounted(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return lucid::TakeCounted(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}
void operator delete(void* p, std::align_val_t) noexcept {
  std::free(p);
}
void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
  std::free(p);
}
