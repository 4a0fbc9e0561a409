#include "format/hf_config.h"

#include "base/json.h"
#include "base/mmap_file.h"

namespace lucid {
namespace {

constexpr size_t kMaxConfigBytes = size_t{4} << 20;

}  // namespace

Result<nlohmann::ordered_json> ReadJsonFile(const std::string& path, size_t max_bytes) {
  LUCID_ASSIGN_OR_RETURN(const MmapFile map, MmapFile::Open(path));
  if (map.bytes().size() > max_bytes) {
    return Err(ErrorCode::kInvalidFile, "{}: a JSON file of {} bytes, more than {}", path,
               map.bytes().size(), max_bytes);
  }
  const std::string_view text(reinterpret_cast<const char*>(map.bytes().data()),
                              map.bytes().size());
  return ParseJson(text, path);
}

Result<nlohmann::ordered_json> ReadHfConfig(const std::string& folder) {
  const std::string path = folder + "/config.json";
  LUCID_ASSIGN_OR_RETURN(nlohmann::ordered_json config, ReadJsonFile(path, kMaxConfigBytes));
  if (!config.is_object()) return Err(ErrorCode::kInvalidFile, "{}: it is not a JSON object", path);
  return config;
}

}  // namespace lucid
