#include "store/file_util.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

namespace lucid {
namespace {

using FilePtr = std::unique_ptr<FILE, int (*)(FILE*)>;

FilePtr OpenFile(const std::string& path, const char* mode) {
  return FilePtr(std::fopen(path.c_str(), mode),
                 [](FILE* f) { return f == nullptr ? 0 : std::fclose(f); });
}

tl::unexpected<Error> OpenError(const std::string& path) {
  return Err(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "cannot open {}: {}", path,
             std::strerror(errno));
}

}  // namespace

Result<std::string> ReadFile(const std::string& path) {
  const FilePtr file = OpenFile(path, "rb");
  if (file == nullptr) return OpenError(path);
  std::string text;
  char buffer[1 << 15];
  while (const size_t n = std::fread(buffer, 1, sizeof(buffer), file.get())) text.append(buffer, n);
  if (std::ferror(file.get()) != 0) {
    return Err(ErrorCode::kIo, "cannot read {}: {}", path, std::strerror(errno));
  }
  return text;
}

Status WriteFileAtomically(const std::string& path, const std::string& text) {
  const std::string temporary = fmt::format("{}.{}.tmp", path, getpid());
  FilePtr file = OpenFile(temporary, "wb");
  if (file == nullptr) return OpenError(temporary);
  const bool written = std::fwrite(text.data(), 1, text.size(), file.get()) == text.size() &&
                       std::fflush(file.get()) == 0 && fsync(fileno(file.get())) == 0;
  const int write_errno = errno;
  file.reset();
  if (!written) {
    unlink(temporary.c_str());
    return Err(ErrorCode::kIo, "cannot write {}: {}", path, std::strerror(write_errno));
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    const int rename_errno = errno;
    unlink(temporary.c_str());
    return Err(ErrorCode::kIo, "cannot replace {}: {}", path, std::strerror(rename_errno));
  }
  return {};
}

Status MakeFolders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return Err(ErrorCode::kIo, "cannot create the folder {}: {}", path, error.message());
  return {};
}

Result<std::string> Sha256OfFile(const std::string& path) {
  const FilePtr file = OpenFile(path, "rb");
  if (file == nullptr) return OpenError(path);
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                   EVP_MD_CTX_free);
  bool ok = context != nullptr && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  std::vector<char> buffer(1 << 20);
  while (ok) {
    const size_t n = std::fread(buffer.data(), 1, buffer.size(), file.get());
    if (n == 0) break;
    ok = EVP_DigestUpdate(context.get(), buffer.data(), n) == 1;
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  ok = ok && EVP_DigestFinal_ex(context.get(), digest, &size) == 1;
  if (std::ferror(file.get()) != 0) {
    return Err(ErrorCode::kIo, "cannot read {}: {}", path, std::strerror(errno));
  }
  if (!ok)
    return Err(ErrorCode::kUnsupported, "the OpenSSL of this machine cannot compute SHA-256");
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

bool IsSha256(const std::string& text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(),
                                          [](unsigned char c) { return std::isxdigit(c) != 0; });
}

Result<uint64_t> FreeBytes(const std::string& folder) {
  struct statvfs info = {};
  if (statvfs(folder.c_str(), &info) != 0) {
    return Err(ErrorCode::kIo, "cannot ask for the free space of {}: {}", folder,
               std::strerror(errno));
  }
  return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
}

FileLock::FileLock(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
FileLock::FileLock(FileLock&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}
FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}
FileLock::~FileLock() {
  if (fd_ >= 0) close(fd_);
}

Result<FileLock> FileLock::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0)
    return Err(ErrorCode::kIo, "cannot create the lock {}: {}", path, std::strerror(errno));
  return FileLock(fd, path);
}

Result<bool> FileLock::TryLock() {
  if (flock(fd_, LOCK_EX | LOCK_NB) == 0) return true;
  if (errno == EWOULDBLOCK) return false;
  return Err(ErrorCode::kIo, "cannot lock {}: {}", path_, std::strerror(errno));
}

Status FileLock::WaitLock() {
  while (flock(fd_, LOCK_EX) != 0) {
    if (errno != EINTR)
      return Err(ErrorCode::kIo, "cannot lock {}: {}", path_, std::strerror(errno));
  }
  return {};
}

}  // namespace lucid
