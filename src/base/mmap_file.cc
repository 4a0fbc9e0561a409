#include "base/mmap_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/unique_fd.h"

namespace lucid {

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

void ReleaseMappedPages(const std::byte* data, size_t bytes) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + page - 1) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace lucid
