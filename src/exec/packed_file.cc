#include "exec/packed_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/unique_fd.h"

namespace lucid {
namespace {

constexpr char kMagic[8] = {'L', 'U', 'C', 'I', 'D', 'P', 'K', '\n'};
constexpr uint32_t kVersion = 1;

// At the beginning of the file, little endian as everything else.
struct Header {
  char magic[8];
  uint32_t version;
  uint32_t image_offset;
  uint64_t image_bytes;
  PackKey key;
  uint64_t checksum;  // XXH3 of what is before it
};
static_assert(sizeof(Header) == 48);

uint64_t Checksum(const Header& header) {
  return XXH3_64bits(&header, offsetof(Header, checksum));
}

Header MakeHeader(const PackKey& key, size_t image_bytes) {
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.version = kVersion;
  header.image_offset = kImageOffset;
  header.image_bytes = image_bytes;
  header.key = key;
  header.checksum = Checksum(header);
  return header;
}

tl::unexpected<Error> CannotWrite(const std::string& path, int cause) {
  return Err(ErrorCode::kIo, "cannot write {}: {}", path, std::strerror(cause));
}

// The file under its temporary name. Its own lock says that somebody writes it; one without a lock
// was left by a process that was killed, and is written anew.
class PartFile {
 public:
  explicit PartFile(std::string name) : name_(std::move(name)) {}
  ~PartFile() {
    if (mine_) ::unlink(name_.c_str());
  }
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  // False if another process has it.
  Result<bool> Open() {
    fd_ = UniqueFd(::open(name_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (!fd_.open()) return CannotWrite(name_, errno);
    if (::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) return false;
      return CannotWrite(name_, errno);
    }
    // Between opening and locking it, its writer may have given it its final name: then it is not
    // to be touched.
    struct stat opened {
    }, named{};
    if (::fstat(fd_.get(), &opened) != 0 || ::stat(name_.c_str(), &named) != 0 ||
        opened.st_dev != named.st_dev || opened.st_ino != named.st_ino) {
      return false;
    }
    mine_ = true;
    return true;
  }

  // Takes the disk's space at once where the file system can, so that a full one is seen before
  // gigabytes are written.
  Status Reserve(uint64_t bytes) {
    if (::ftruncate(fd_.get(), 0) != 0) return CannotWrite(name_, errno);
    if (::fallocate(fd_.get(), 0, 0, static_cast<off_t>(bytes)) != 0 && errno == ENOSPC) {
      return CannotWrite(name_, errno);
    }
    return {};
  }

  Status WriteAt(uint64_t offset, std::span<const std::byte> bytes) {
    const auto start = static_cast<off_t>(offset);
    auto at = start;
    for (std::span<const std::byte> rest = bytes; !rest.empty();) {
      const ssize_t written = ::pwrite(fd_.get(), rest.data(), rest.size(), at);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return CannotWrite(name_, errno);
      rest = rest.subspan(static_cast<size_t>(written));
      at += written;
    }
    // The disk begins now, and no more than a window waits for it: progress is the disk's, and
    // the sync at the end has little left to do.
    ::sync_file_range(fd_.get(), start, at - start, SYNC_FILE_RANGE_WRITE);
    if (start > kWindow) {
      ::sync_file_range(
          fd_.get(), start - kWindow, at - start,
          SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    }
    return {};
  }

  Status RenameTo(const std::string& path) {
    if (::fsync(fd_.get()) != 0) return CannotWrite(name_, errno);
    if (::rename(name_.c_str(), path.c_str()) != 0) return CannotWrite(path, errno);
    mine_ = false;
    return {};
  }

 private:
  static constexpr off_t kWindow = off_t{128} << 20;

  std::string name_;
  UniqueFd fd_;
  bool mine_ = false;
};

// Whole huge pages at once: the kernel then keeps the file in such pages where it can.
constexpr size_t kWriteBytes = size_t{8} << 20;

}  // namespace

Result<MmapFile> OpenPackedFile(const std::string& path, const PackKey& key, size_t image_bytes) {
  LUCID_ASSIGN_OR_RETURN(MmapFile file, MmapFile::Open(path));
  const size_t size = file.bytes().size();
  Header header{};
  if (size < sizeof(header)) return Err(ErrorCode::kInvalidFile, "{} is cut off", path);
  std::memcpy(&header, file.bytes().data(), sizeof(header));
  const Header wanted = MakeHeader(key, image_bytes);
  if (std::memcmp(header.magic, wanted.magic, sizeof(header.magic)) != 0) {
    return Err(ErrorCode::kInvalidFile, "{} holds no packed weights", path);
  }
  if (header.checksum != Checksum(header)) {
    return Err(ErrorCode::kInvalidFile, "{} is damaged", path);
  }
  if (std::memcmp(&header, &wanted, sizeof(header)) != 0) {
    return Err(ErrorCode::kInvalidFile,
               "{} was made from another version of the model, or by another one of lucid", path);
  }
  if (size != kImageOffset + image_bytes) {
    return Err(ErrorCode::kInvalidFile, "{} has {} bytes instead of {}", path, size,
               kImageOffset + image_bytes);
  }
  return file;
}

Result<bool> WritePackedFile(const std::string& path, const PackKey& key,
                             std::span<const std::byte> image,
                             const std::function<bool(size_t)>& go_on) {
  PartFile part(path + ".part");
  LUCID_ASSIGN_OR_RETURN(const bool mine, part.Open());
  if (!mine) return false;
  LUCID_RETURN_IF_ERROR(part.Reserve(kImageOffset + image.size()));
  for (size_t done = 0; done < image.size();) {
    const size_t n = std::min(kWriteBytes, image.size() - done);
    LUCID_RETURN_IF_ERROR(part.WriteAt(kImageOffset + done, image.subspan(done, n)));
    done += n;
    if (!go_on(done)) return Err(ErrorCode::kCancelled, "{} was not finished", path);
  }
  const Header header = MakeHeader(key, image.size());
  LUCID_RETURN_IF_ERROR(part.WriteAt(0, std::as_bytes(std::span(&header, 1))));
  LUCID_RETURN_IF_ERROR(part.RenameTo(path));
  return true;
}

}  // namespace lucid
