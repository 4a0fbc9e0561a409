#include "store/pack_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <filesystem>

#include "base/env.h"
#include "store/file_util.h"
#include "store/model_store.h"

namespace lucid {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".pack";
constexpr std::string_view kUnfinished = ".pack.part";
constexpr double kDefaultGigabytes = 64;

// The path that names the model whatever leads to it; without a slash at its end.
fs::path FullPath(const std::string& model) {
  std::error_code ignored;
  fs::path path = fs::weakly_canonical(model, ignored);
  if (path.empty()) path = model;
  return path.has_filename() ? path : path.parent_path();
}

}  // namespace

std::string PackCacheFolder() {
  return LucidFolder() + "/packed";
}

std::string PackCacheFile(const std::string& folder, const std::string& model) {
  const fs::path path = FullPath(model);
  const std::string& text = path.native();
  return fmt::format("{}/{}-{:016x}{}", folder, path.filename().native(),
                     XXH3_64bits(text.data(), text.size()), kSuffix);
}

std::string PackFileBeside(const std::string& model) {
  const std::string source = FullPath(model).native();
  const std::string file = source + std::string(kSuffix);
  struct stat model_info {
  }, info{};
  if (::stat(file.c_str(), &info) != 0 || ::stat(source.c_str(), &model_info) != 0) return "";
  const bool trusted =
      info.st_uid == 0 || info.st_uid == ::geteuid() || info.st_uid == model_info.st_uid;
  return trusted ? file : "";
}

std::vector<PackCacheEntry> ListPackCache(const std::string& folder) {
  std::vector<PackCacheEntry> entries;
  std::error_code ignored;
  for (const fs::directory_entry& file : fs::directory_iterator(folder, ignored)) {
    const std::string path = file.path().native();
    struct stat info {};
    if (!path.ends_with(kSuffix) && !path.ends_with(kUnfinished)) continue;
    if (::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    entries.push_back({path, static_cast<uint64_t>(info.st_size), info.st_mtim.tv_sec});
  }
  std::sort(entries.begin(), entries.end(), [](const PackCacheEntry& a, const PackCacheEntry& b) {
    return a.used_at > b.used_at || (a.used_at == b.used_at && a.path < b.path);
  });
  return entries;
}

Result<uint64_t> PackCacheLimit() {
  const std::optional<std::string> text = Env("LUCID_PACK_GB");
  double gigabytes = kDefaultGigabytes;
  if (text) {
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), gigabytes);
    if (error != std::errc() || end != text->data() + text->size() || !(gigabytes >= 0) ||
        gigabytes > 1e9) {
      return Err(ErrorCode::kInvalidArgument, "LUCID_PACK_GB is '{}', which is no size", *text);
    }
  }
  return static_cast<uint64_t>(gigabytes * 1e9);
}

Status MakePackRoom(const std::string& file, uint64_t bytes, uint64_t limit) {
  const std::string folder = fs::path(file).parent_path().native();
  LUCID_RETURN_IF_ERROR(MakeFolders(folder));
  uint64_t total = bytes;
  for (const PackCacheEntry& entry : ListPackCache(folder)) {
    if (entry.path == file || entry.path == file + ".part") continue;
    total += entry.bytes;
    if (total > limit && ::unlink(entry.path.c_str()) == 0) total -= entry.bytes;
  }
  LUCID_ASSIGN_OR_RETURN(const uint64_t free, FreeBytes(folder));
  if (free / 2 < bytes) {
    return Err(ErrorCode::kCapacity,
               "{} would have {} bytes, which the disk should have free twice; it has {}", file,
               bytes, free);
  }
  return {};
}

void TouchPack(const std::string& file) {
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0) return;
  const timespec now{.tv_sec = std::time(nullptr), .tv_nsec = info.st_mtim.tv_nsec};
  const timespec times[2] = {now, now};
  ::utimensat(AT_FDCWD, file.c_str(), times, 0);
}

}  // namespace lucid
