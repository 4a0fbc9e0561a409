// The block codecs against the stored reference fixtures: decoded values and encoded bytes, bit for
// bit.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "format/hf_config.h"
#include "format/safetensors.h"

namespace lucid {
namespace {

constexpr const char* kFixtures = LUCID_SHARED_DIR "/fixtures/gguf/quants";

struct Fixtures {
  std::unique_ptr<SafetensorsCheckpoint> tensors;
  nlohmann::ordered_json index;

  const Tensor& Get(const std::string& name) const {
    const TensorEntry* entry = tensors->Find(name);
    EXPECT_NE(entry, nullptr) << name;
    static const Tensor kNone;
    return entry == nullptr ? kNone : entry->tensor;
  }
};

Fixtures Load() {
  Fixtures fixtures;
  auto tensors = SafetensorsCheckpoint::Open(std::string(kFixtures) + ".safetensors");
  auto index = ReadJsonFile(std::string(kFixtures) + ".json");
  EXPECT_TRUE(tensors && index);
  if (tensors) fixtures.tensors = *std::move(tensors);
  if (index) fixtures.index = *std::move(index);
  return fixtures;
}

bool Present() {
  return MmapFile::Open(std::string(kFixtures) + ".json").has_value();
}

TEST(Quants, DecodedBlocksEqualTheReference) {
  if (!Present()) GTEST_SKIP() << "no reference fixtures at " << kFixtures;
  const Fixtures fixtures = Load();
  size_t n_types = 0;
  for (const auto& item : fixtures.index["types"]) {
    const std::string name = item["name"];
    const std::optional<DType> type = DTypeFromGguf(item["ggml_type"]);
    ASSERT_TRUE(type) << name;
    EXPECT_EQ(Name(*type), name);
    EXPECT_EQ(Info(*type).block_elems, item["block_values"]) << name;
    EXPECT_EQ(Info(*type).block_bytes, item["block_bytes"]) << name;
    const Tensor& raw = fixtures.Get(name + ".raw");
    const Tensor& expected = fixtures.Get(name + ".f32");
    ASSERT_EQ(raw.bytes(), RowBytes(*type, expected.elements())) << name;
    std::vector<float> decoded(static_cast<size_t>(expected.elements()));
    Info(*type).decode(raw.data, decoded.data(), expected.elements());
    EXPECT_EQ(std::memcmp(decoded.data(), expected.data, decoded.size() * sizeof(float)), 0)
        << name;
    ++n_types;
  }
  EXPECT_EQ(n_types, 24u);
}

TEST(Quants, EncodedBytesEqualTheReference) {
  if (!Present()) GTEST_SKIP() << "no reference fixtures at " << kFixtures;
  const Fixtures fixtures = Load();
  const Tensor& x = fixtures.Get("quantise.x");
  std::vector<float> values(static_cast<size_t>(x.elements()));
  std::memcpy(values.data(), x.data, values.size() * sizeof(float));
  size_t n_types = 0;
  for (const auto& item : fixtures.index["quantise"]) {
    const std::string name = item["name"];
    const DType type = DTypeFromName(name).value();
    const Tensor& expected = fixtures.Get("quantise." + name + ".raw");
    std::vector<std::byte> encoded(static_cast<size_t>(expected.bytes()));
    ASSERT_EQ(RowBytes(type, x.elements()), expected.bytes()) << name;
    ASSERT_NE(Info(type).encode, nullptr) << name;
    Info(type).encode(values.data(), encoded.data(), x.elements());
    EXPECT_EQ(std::memcmp(encoded.data(), expected.data, encoded.size()), 0) << name;
    ++n_types;
  }
  EXPECT_EQ(n_types, 10u);
}

}  // namespace
}  // namespace lucid
