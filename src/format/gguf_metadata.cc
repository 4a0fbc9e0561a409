#include "format/gguf_metadata.h"

#include <algorithm>
#include <utility>

namespace lucid {

std::string_view GgufMetadata::Keep(std::string text) {
  return texts_.emplace_back(std::move(text));
}

void GgufMetadata::Set(std::string_view key, GgufValue value) {
  const auto found = std::ranges::find(entries_, key, &GgufEntry::key);
  if (found != entries_.end()) {
    found->value = std::move(value);
  } else {
    entries_.push_back({Keep(std::string(key)), std::move(value)});
  }
}

void GgufMetadata::SetString(std::string_view key, std::string value) {
  Set(key, {.type = GgufType::kString, .element = {}, .value = Keep(std::move(value))});
}
void GgufMetadata::SetUint32(std::string_view key, uint32_t value) {
  Set(key, {.type = GgufType::kUint32, .element = {}, .value = uint64_t{value}});
}
void GgufMetadata::SetFloat32(std::string_view key, double value) {
  // As it will be read: a float32.
  const double stored = static_cast<float>(value);
  Set(key, {.type = GgufType::kFloat32, .element = {}, .value = stored});
}
void GgufMetadata::SetBool(std::string_view key, bool value) {
  Set(key, {.type = GgufType::kBool, .element = {}, .value = uint64_t{value}});
}

void GgufMetadata::SetStrings(std::string_view key, std::vector<std::string> values) {
  std::vector<std::string_view> views;
  views.reserve(values.size());
  for (std::string& value : values) views.push_back(Keep(std::move(value)));
  Set(key, {.type = GgufType::kArray, .element = GgufType::kString, .value = std::move(views)});
}
void GgufMetadata::SetInt32s(std::string_view key, std::vector<int64_t> values) {
  Set(key, {.type = GgufType::kArray, .element = GgufType::kInt32, .value = std::move(values)});
}
void GgufMetadata::SetFloat32s(std::string_view key, std::vector<double> values) {
  for (double& value : values) value = static_cast<float>(value);
  Set(key, {.type = GgufType::kArray, .element = GgufType::kFloat32, .value = std::move(values)});
}
void GgufMetadata::SetBools(std::string_view key, const std::vector<bool>& values) {
  std::vector<uint64_t> numbers(values.begin(), values.end());
  Set(key, {.type = GgufType::kArray, .element = GgufType::kBool, .value = std::move(numbers)});
}

}  // namespace lucid
