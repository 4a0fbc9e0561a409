// OutputFile: writes a file so that a reader never sees half of it.
//
// A regular destination is written under a temporary name in its folder, synced and renamed by
// Commit; without Commit the temporary file is removed. A device or pipe is written directly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lucid {

class OutputFile {
 public:
  // kIo names the path and the cause, here and below.
  static Result<OutputFile> Create(const std::string& path);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  ~OutputFile();

  Status Write(std::span<const std::byte> bytes);
  Status Write(std::string_view bytes) { return Write(std::as_bytes(std::span(bytes))); }
  // Zero bytes up to the next multiple of `alignment` (counted from the start of the file).
  Status Pad(uint64_t alignment);
  uint64_t position() const { return position_; }  // bytes written so far
  Status Commit();

 private:
  OutputFile() = default;
  Status Flush();
  Status WriteThrough(std::span<const std::byte> bytes);
  tl::unexpected<Error> Failed(int error_number) const;

  int fd_ = -1;
  std::string path_;
  std::string temporary_;  // empty when writing directly
  std::vector<std::byte> buffer_;
  uint64_t position_ = 0;
};

}  // namespace lucid
