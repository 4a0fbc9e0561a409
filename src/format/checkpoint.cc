// OpenCheckpoint: picks the format by what the path is and what the file begins with.
#include "format/checkpoint.h"

#include <filesystem>

#include "base/mmap_file.h"
#include "format/gguf.h"
#include "format/quote.h"
#include "format/safetensors.h"

namespace lucid {
namespace {

template <typename T>
Result<std::unique_ptr<Checkpoint>> Widen(Result<std::unique_ptr<T>> opened) {
  if (!opened) return tl::unexpected<Error>(std::move(opened).error());
  return std::unique_ptr<Checkpoint>(*std::move(opened));
}

bool LooksLikeSafetensors(std::string_view head) {
  return head.size() > 8 && head[8] == '{';
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> OpenCheckpoint(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return Widen(SafetensorsCheckpoint::Open(path));
  constexpr size_t kHeadBytes = 64;
  std::string head;
  {
    LUCID_ASSIGN_OR_RETURN(const MmapFile map, MmapFile::Open(path));
    const auto bytes = map.bytes().first(std::min(kHeadBytes, map.bytes().size()));
    head.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  if (head.starts_with("version https://git-lfs")) {
    return Err(ErrorCode::kInvalidFile,
               "{}: a Git LFS pointer, not the model file itself; fetch it with git lfs pull",
               path);
  }
  if (head.starts_with("GGUF") || path.ends_with(".gguf")) return Widen(GgufFile::Open(path));
  if (std::filesystem::path(path).filename() == "config.json") {
    return Err(ErrorCode::kInvalidArgument,
               "{}: it has no weights; name the folder that it lies in", path);
  }
  if (path.ends_with(".safetensors") || path.ends_with(".json") || LooksLikeSafetensors(head)) {
    return Widen(SafetensorsCheckpoint::Open(path));
  }
  return Err(ErrorCode::kInvalidFile,
             "{}: neither a GGUF nor a safetensors file; it begins with {}", path, Quote(head, 8));
}

}  // namespace lucid
