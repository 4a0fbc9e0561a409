#include "base/mmap_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/unique_fd.h"

namespace lucid {
namespace {

struct PageRange {
  void* begin = nullptr;
  size_t bytes = 0;
};

// The pages that lie in [data, data + bytes): those within it, or those it touches too.
PageRange PagesOf(const std::byte* data, size_t bytes, bool touched) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(data);
  const uintptr_t up = page - 1;
  const uintptr_t begin = (first + (touched ? 0 : up)) / page * page;
  const uintptr_t end = (first + bytes + (touched ? up : 0)) / page * page;
  if (begin >= end) return {};
  return {reinterpret_cast<void*>(begin), end - begin};
}

}  // namespace

Result<MmapFile> MmapFile::Open(const std::string& path) {
  LUCID_ASSIGN_OR_RETURN(const OpenedFile opened, OpenRegularFile(path, ErrorCode::kIo));
  MmapFile file;
  file.path_ = path;
  if (opened.bytes == 0) return file;
  const auto size = static_cast<size_t>(opened.bytes);
  void* map = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, opened.fd.get(), 0);
  if (map == MAP_FAILED) {
    return Err(ErrorCode::kIo, "cannot map {}: {}", path, std::strerror(errno));
  }
  file.size_ = size;
  file.data_ = static_cast<const std::byte*>(map);
  return file;
}

MmapFile::MmapFile(MmapFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      path_(std::move(other.path_)) {}

MmapFile& MmapFile::operator=(MmapFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

MmapFile::~MmapFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

Status PopulateMappedPages(const std::byte* data, size_t bytes) {
  const PageRange pages = PagesOf(data, bytes, /*touched=*/true);
  if (pages.bytes == 0) return {};
#ifdef MADV_HUGEPAGE
  ::madvise(pages.begin, pages.bytes, MADV_HUGEPAGE);  // read in huge pages what is not in memory
#endif
#ifdef MADV_POPULATE_READ  // Linux 5.14
  while (::madvise(pages.begin, pages.bytes, MADV_POPULATE_READ) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    if (errno == EINVAL) break;
    return Err(ErrorCode::kIo, "cannot read a mapped file: {}", std::strerror(errno));
  }
#endif
  return {};
}

void ReleaseMappedPages(const std::byte* data, size_t bytes) {
  const PageRange pages = PagesOf(data, bytes, /*touched=*/false);
  if (pages.bytes > 0) ::madvise(pages.begin, pages.bytes, MADV_DONTNEED);
}

}  // namespace lucid
