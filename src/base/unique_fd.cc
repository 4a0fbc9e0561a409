#include "base/unique_fd.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace lucid {

void UniqueFd::Close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Result<OpenedFile> OpenRegularFile(const std::string& path, ErrorCode not_regular) {
  OpenedFile file;
  file.fd = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.fd.open()) {
    const int cause = errno;
    return Err(cause == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "cannot open {}: {}", path,
               std::strerror(cause));
  }
  struct stat info {};
  if (::fstat(file.fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return Err(not_regular, "cannot read {}: it is not a regular file", path);
  }
  ::fcntl(file.fd.get(), F_SETFL, 0);
  file.bytes = info.st_size;
  return file;
}

}  // namespace lucid
