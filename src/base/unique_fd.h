// UniqueFd: a file descriptor with one owner, and how files that are read are opened.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/result.h"

namespace lucid {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd() { Close(); }

  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  void Close();

 private:
  int fd_ = -1;
};

struct OpenedFile {
  UniqueFd fd;
  int64_t bytes = 0;
};
// Opens a regular file for reading; a pipe is refused, not waited for. kNotFound or kIo with the
// system's reason; `not_regular` is the code for what is no regular file.
Result<OpenedFile> OpenRegularFile(const std::string& path, ErrorCode not_regular);

}  // namespace lucid
