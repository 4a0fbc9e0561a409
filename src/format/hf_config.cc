#include "format/hf_config.h"

#include "base/mmap_file.h"

namespace lucid {
namespace {

constexpr int kMaxDepth = 64;
constexpr size_t kMaxConfigBytes = size_t{4} << 20;

// Whether brackets outside strings never nest deeper than kMaxDepth. Looks at bytes only, so it
// holds for malformed text too; the parser then sees bounded depth.
bool WithinDepth(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxDepth) return false;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return true;
}

}  // namespace

Result<nlohmann::ordered_json> ReadJsonFile(const std::string& path, size_t max_bytes) {
  LUCID_ASSIGN_OR_RETURN(const MmapFile map, MmapFile::Open(path));
  if (map.bytes().size() > max_bytes) {
    return Err(ErrorCode::kInvalidFile, "{}: a JSON file of {} bytes, more than {}", path,
               map.bytes().size(), max_bytes);
  }
  const std::string_view text(reinterpret_cast<const char*>(map.bytes().data()),
                              map.bytes().size());
  if (!WithinDepth(text)) {
    return Err(ErrorCode::kInvalidFile, "{}: the JSON nests more than {} deep", path, kMaxDepth);
  }
  try {
    return nlohmann::ordered_json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    return Err(ErrorCode::kInvalidFile, "{}: not valid JSON near byte {}", path, error.byte);
  } catch (const nlohmann::json::exception& error) {
    return Err(ErrorCode::kInvalidFile, "{}: not valid JSON: {}", path, error.what());
  }
}

Result<nlohmann::ordered_json> ReadHfConfig(const std::string& folder) {
  const std::string path = folder + "/config.json";
  LUCID_ASSIGN_OR_RETURN(nlohmann::ordered_json config, ReadJsonFile(path, kMaxConfigBytes));
  if (!config.is_object()) return Err(ErrorCode::kInvalidFile, "{}: it is not a JSON object", path);
  return config;
}

}  // namespace lucid
