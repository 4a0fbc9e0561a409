// Small file operations of the model store: atomic text files, locks between processes, checksums.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace lucid {

// The whole file. kNotFound / kIo name the path.
Result<std::string> ReadFile(const std::string& path);

// Writes a temporary file beside `path` and renames it, so readers see the old text or the new one.
Status WriteFileAtomically(const std::string& path, const std::string& text);

// Creates the folder and its parents.
Status MakeFolders(const std::string& path);

// SHA-256 of a file as 64 lower-case hex digits.
Result<std::string> Sha256OfFile(const std::string& path);

bool IsSha256(const std::string& text);  // 64 hex digits

// Bytes that may still be written on the file system of `folder`.
Result<uint64_t> FreeBytes(const std::string& folder);

// An exclusive advisory lock on a file, held until destruction. It is free again when its process
// ends, however.
class FileLock {
 public:
  // Waits for the lock. Calls `on_wait` once if another process holds it.
  template <typename OnWait>
  static Result<FileLock> Acquire(const std::string& path, OnWait on_wait) {
    LUCID_ASSIGN_OR_RETURN(FileLock lock, Open(path));
    LUCID_ASSIGN_OR_RETURN(const bool taken, lock.TryLock());
    if (taken) return lock;
    on_wait();
    LUCID_RETURN_IF_ERROR(lock.WaitLock());
    return lock;
  }

  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();

 private:
  FileLock(int fd, std::string path);
  static Result<FileLock> Open(const std::string& path);
  Result<bool> TryLock();
  Status WaitLock();

  int fd_ = -1;
  std::string path_;
};

}  // namespace lucid
