// GgufMetadata: keys and values of a GGUF file that is being made, and the memory of their texts.
//
// GgufWriter takes its entries; GgufFile::Outline reads them as a reader of the file would.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/gguf.h"

namespace lucid {

class GgufMetadata {
 public:
  // Each sets a key, replacing an earlier value of it but keeping its place.
  void SetString(std::string_view key, std::string value);
  void SetUint32(std::string_view key, uint32_t value);
  void SetFloat32(std::string_view key, double value);
  void SetBool(std::string_view key, bool value);
  void SetStrings(std::string_view key, std::vector<std::string> values);
  void SetInt32s(std::string_view key, std::vector<int64_t> values);
  void SetFloat32s(std::string_view key, std::vector<double> values);
  void SetBools(std::string_view key, const std::vector<bool>& values);

  std::span<const GgufEntry> entries() const { return entries_; }

 private:
  void Set(std::string_view key, GgufValue value);
  std::string_view Keep(std::string text);

  std::deque<std::string> texts_;  // a deque: views of its elements hold when it grows
  std::vector<GgufEntry> entries_;
};

}  // namespace lucid
