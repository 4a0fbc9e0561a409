#include "exec/packed_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>
#include <vector>

#include "base/unique_fd.h"

namespace lucid {
namespace {

constexpr char kMagic[8] = {'L', 'U', 'C', 'I', 'D', 'P', 'K', '\n'};
constexpr uint32_t kVersion = 2;

// At the beginning of the file, little endian as everything else.
struct Header {
  char magic[8];
  uint32_t version;
  uint32_t image_offset;
  uint64_t image_bytes;
  PackKey key;
  uint64_t image_hash;
  uint64_t checksum;  // XXH3 of what is before it
};
static_assert(sizeof(Header) == 56);

uint64_t Checksum(const Header& header) {
  return XXH3_64bits(&header, offsetof(Header, checksum));
}

// Whole huge pages at once: the kernel then keeps the file in such pages where it can.
constexpr size_t kPartBytes = size_t{8} << 20;

size_t PartsOf(size_t image_bytes) {
  return (image_bytes + kPartBytes - 1) / kPartBytes;
}

// XXH3 of the hashes of an image's parts, which all threads can compute at once.
uint64_t ImageHash(const std::vector<uint64_t>& parts) {
  return XXH3_64bits(parts.data(), parts.size() * sizeof(parts[0]));
}

Header MakeHeader(const PackKey& key, size_t image_bytes, uint64_t image_hash) {
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.version = kVersion;
  header.image_offset = kImageOffset;
  header.image_bytes = image_bytes;
  header.key = key;
  header.image_hash = image_hash;
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
    if (!S_ISREG(opened.st_mode)) return Err(ErrorCode::kIo, "{} is no regular file", name_);
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

// Nanoseconds that say, as part of a file's time, that its image has this hash.
long CheckedNote(const Header& header) {
  return static_cast<long>(header.checksum % 1'000'000'000);
}

bool IsNoted(const std::string& path, const Header& header) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && info.st_mtim.tv_nsec == CheckedNote(header);
}

// Without effect on a file of another user.
void Note(const std::string& path, const Header& header) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return;
  const timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT},
                             {.tv_sec = info.st_mtim.tv_sec, .tv_nsec = CheckedNote(header)}};
  ::utimensat(AT_FDCWD, path.c_str(), times, 0);
}

}  // namespace

Result<MmapFile> OpenPackedFile(const std::string& path, const PackKey& key, size_t image_bytes) {
  LUCID_ASSIGN_OR_RETURN(MmapFile file, MmapFile::Open(path));
  const size_t size = file.bytes().size();
  Header header{};
  if (size < sizeof(header)) return Err(ErrorCode::kInvalidFile, "{} is cut off", path);
  std::memcpy(&header, file.bytes().data(), sizeof(header));
  const Header wanted = MakeHeader(key, image_bytes, header.image_hash);
  if (std::memcmp(header.magic, wanted.magic, sizeof(header.magic)) != 0) {
    return Err(ErrorCode::kInvalidFile, "{} holds no packed weights", path);
  }
  if (header.version != kVersion) {
    return Err(ErrorCode::kInvalidFile, "{} was made by another version of lucid", path);
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

Status CheckImage(const MmapFile& file, ThreadPool& pool, bool anyway) {
  Header header{};
  std::memcpy(&header, file.bytes().data(), sizeof(header));
  // The system may have mapped a whole huge page for it, of memory that nobody reads again.
  ReleaseMappedPages(file.bytes().data(), kImageOffset);
  if (!anyway && IsNoted(file.path(), header)) return {};
  const std::span<const std::byte> image = file.bytes().subspan(kImageOffset);
  std::vector<uint64_t> parts(PartsOf(image.size()));
  std::atomic<size_t> next{0};
  pool.Run([&](int) {
    for (size_t i = next++; i < parts.size(); i = next++) {
      const size_t at = i * kPartBytes;
      parts[i] = XXH3_64bits(image.data() + at, std::min(kPartBytes, image.size() - at));
    }
  });
  if (ImageHash(parts) != header.image_hash) {
    return Err(ErrorCode::kInvalidFile, "{} is damaged", file.path());
  }
  Note(file.path(), header);
  return {};
}

bool IsPackedFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  char magic[sizeof(kMagic)] = {};
  return file.read(magic, sizeof(magic)) && std::memcmp(magic, kMagic, sizeof(kMagic)) == 0;
}

Result<bool> WritePackedFile(const std::string& path, const PackKey& key,
                             std::span<const std::byte> image,
                             const std::function<bool(size_t)>& go_on) {
  PartFile part(path + kUnfinishedPack);
  LUCID_ASSIGN_OR_RETURN(const bool mine, part.Open());
  if (!mine) return false;
  LUCID_RETURN_IF_ERROR(part.Reserve(kImageOffset + image.size()));
  std::vector<uint64_t> hashes;
  for (size_t done = 0; done < image.size();) {
    const size_t n = std::min(kPartBytes, image.size() - done);
    hashes.push_back(XXH3_64bits(image.data() + done, n));
    LUCID_RETURN_IF_ERROR(part.WriteAt(kImageOffset + done, image.subspan(done, n)));
    done += n;
    if (!go_on(done)) return Err(ErrorCode::kCancelled, "{} was not finished", path);
  }
  const Header header = MakeHeader(key, image.size(), ImageHash(hashes));
  LUCID_RETURN_IF_ERROR(part.WriteAt(0, std::as_bytes(std::span(&header, 1))));
  LUCID_RETURN_IF_ERROR(part.RenameTo(path));
  return true;
}

}  // namespace lucid
