// MmapFile: a read-only map of a whole file. Model weights are used where they lie in the map.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/result.h"

namespace lucid {

class MmapFile {
 public:
  // Maps `path` read-only. kNotFound if it is absent, kIo if it cannot be opened or mapped (a
  // folder, a device). An empty file maps to an empty span.
  static Result<MmapFile> Open(const std::string& path);

  MmapFile() = default;
  MmapFile(MmapFile&& other) noexcept;
  MmapFile& operator=(MmapFile&& other) noexcept;
  ~MmapFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::string path_;
};

// Brings [data, data + bytes) of a mapped file into memory, if possible in huge pages; several
// threads may do so for parts of one map. kIo if the file cannot be read. Systems that have no such
// call (Linux before 5.14) read the pages when they are touched.
Status PopulateMappedPages(const std::byte* data, size_t bytes);

// Gives back the memory of the whole pages within [data, data + bytes) of a mapped file; they are
// read again when they are touched again.
void ReleaseMappedPages(const std::byte* data, size_t bytes);

}  // namespace lucid
