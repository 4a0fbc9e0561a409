// The reference arrays of single operations, <LUCID_SHARED_DIR>/fixtures/component/<name>.json and
// .safetensors, for the tests of every module that has such an operation. Each test says at its end
// which arrays it has not read (ExpectAllRead), so that none is forgotten.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace lucid::testing_util {

class ComponentFixture {
 public:
  static std::string Folder() { return std::string(LUCID_SHARED_DIR) + "/fixtures/component/"; }
  static bool Available() { return std::filesystem::exists(Folder()); }

  explicit ComponentFixture(const std::string& name) : name_(name) {
    cases = nlohmann::json::parse(ReadAll(Folder() + name + ".json"))["cases"];
    blob_ = ReadAll(Folder() + name + ".safetensors");
    uint64_t header = 0;
    std::memcpy(&header, blob_.data(), sizeof(header));
    index_ = nlohmann::json::parse(blob_.substr(8, header));
    index_.erase("__metadata__");
    data_ = 8 + header;
  }

  std::vector<int64_t> Shape(const std::string& name) const { return index_.at(name).at("shape"); }
  std::vector<float> Floats(const std::string& name) const { return Values<float>(name, "F32"); }
  std::vector<int32_t> Ints(const std::string& name) const { return Values<int32_t>(name, "I32"); }

  // Fails for the arrays that nothing has read here, but those that `elsewhere` knows: what another
  // test compares, or no operation of ours computes.
  void ExpectAllRead(const std::function<bool(const std::string&)>& elsewhere =
                         [](const std::string&) { return false; }) const {
    for (const auto& [array, facts] : index_.items()) {
      EXPECT_TRUE(read_.contains(array) || elsewhere(array))
          << "no test compares the array " << array << " of " << Folder() << name_
          << ".safetensors: read it here, or say where it is";
    }
  }

  nlohmann::json cases;

 private:
  static std::string ReadAll(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    EXPECT_TRUE(file) << path;
    return {std::istreambuf_iterator<char>(file), {}};
  }
  template <typename T>
  std::vector<T> Values(const std::string& name, const std::string& dtype) const {
    EXPECT_EQ(index_.at(name).at("dtype"), dtype) << name;
    const size_t begin = index_.at(name).at("data_offsets")[0];
    const size_t end = index_.at(name).at("data_offsets")[1];
    std::vector<T> out((end - begin) / sizeof(T));
    std::memcpy(out.data(), blob_.data() + data_ + begin, end - begin);
    read_.insert(name);
    return out;
  }

  std::string name_;
  std::string blob_;
  nlohmann::json index_;
  size_t data_ = 0;
  mutable std::set<std::string> read_;
};

}  // namespace lucid::testing_util

#define LUCID_NEEDS_COMPONENTS()                                                            \
  if (!::lucid::testing_util::ComponentFixture::Available()) {                              \
    GTEST_SKIP() << "no fixtures at " << ::lucid::testing_util::ComponentFixture::Folder(); \
  }
