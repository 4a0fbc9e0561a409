#include "base/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace lucid {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

// The permissions that a newly created file gets; mkstemp gives fewer.
mode_t NewFileMode() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return static_cast<mode_t>(0666 & ~mask);
}

}  // namespace

Result<OutputFile> OutputFile::Create(const std::string& path) {
  OutputFile file;
  file.path_ = path;
  struct stat info {};
  const bool exists = ::stat(path.c_str(), &info) == 0;
  if (exists && !S_ISREG(info.st_mode)) {
    file.fd_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    std::string name = path + ".XXXXXX";
    file.fd_ = ::mkostemp(name.data(), O_CLOEXEC);
    if (file.fd_ >= 0) {
      file.temporary_ = name;
      if (::fchmod(file.fd_, exists ? info.st_mode & 07777 : NewFileMode()) != 0)
        return file.Failed(errno);
    }
  }
  if (file.fd_ < 0) return file.Failed(errno);
  file.buffer_.reserve(kBufferBytes);
  return file;
}

OutputFile::OutputFile(OutputFile&& other) noexcept {
  *this = std::move(other);
}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  std::swap(temporary_, other.temporary_);
  std::swap(buffer_, other.buffer_);
  std::swap(position_, other.position_);
  return *this;
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Status OutputFile::Write(std::span<const std::byte> bytes) {
  if (buffer_.size() + bytes.size() > kBufferBytes) LUCID_RETURN_IF_ERROR(Flush());
  position_ += bytes.size();
  if (bytes.size() > kBufferBytes) return WriteThrough(bytes);
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  return {};
}

Status OutputFile::Pad(uint64_t alignment) {
  const uint64_t rest = position_ % alignment;
  if (rest == 0) return {};
  return Write(std::vector<std::byte>(alignment - rest));
}

Status OutputFile::Commit() {
  LUCID_RETURN_IF_ERROR(Flush());
  // A device cannot be synced, and says so with EINVAL.
  if (!temporary_.empty() && ::fsync(fd_) != 0) return Failed(errno);
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0) return Failed(errno);
  if (temporary_.empty()) return {};
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return Failed(errno);
  temporary_.clear();
  return {};
}

Status OutputFile::Flush() {
  LUCID_RETURN_IF_ERROR(WriteThrough(buffer_));
  buffer_.clear();
  return {};
}

Status OutputFile::WriteThrough(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return Failed(errno);
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return {};
}

tl::unexpected<Error> OutputFile::Failed(int error_number) const {
  return Err(ErrorCode::kIo, "cannot write {}: {}", path_, std::strerror(error_number));
}

}  // namespace lucid
