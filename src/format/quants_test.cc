// The block codecs against the stored reference fixtures: decoded values and encoded bytes, bit for
// bit.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "base/component_test_util.h"
#include "base/float16.h"
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

std::string FromHex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

// Blocks at the edges: zeros, denormals, outliers, half steps, values that fill the range.
TEST(Quants, EdgeCaseBlocksEqualTheReference) {
  std::ifstream cases(LUCID_SHARED_DIR "/cases/quantise_blocks.jsonl");
  if (!cases) GTEST_SKIP() << "no cases at " << LUCID_SHARED_DIR "/cases";
  size_t n_decoded = 0;
  size_t n_encoded = 0;
  for (std::string line; std::getline(cases, line);) {
    const auto item = nlohmann::json::parse(line);
    const std::string id = item["id"];
    const DTypeInfo& info = Info(DTypeFromName(item["type"].get<std::string>()).value());
    const std::string stored = FromHex(item["quantised_hex"]);
    const std::string expected = FromHex(item["dequantised_f32_hex"]);
    const auto n = static_cast<int64_t>(expected.size() / sizeof(float));
    ASSERT_EQ(RowBytes(info.type, n), static_cast<int64_t>(stored.size())) << id;
    std::vector<float> values(static_cast<size_t>(n));
    info.decode(reinterpret_cast<const std::byte*>(stored.data()), values.data(), n);
    EXPECT_EQ(std::memcmp(values.data(), expected.data(), expected.size()), 0) << id;
    ++n_decoded;
    const std::string source = FromHex(item.value("f32_hex", ""));
    if (info.encode == nullptr || source.size() != expected.size()) continue;
    std::memcpy(values.data(), source.data(), source.size());
    std::string encoded(stored.size(), '\0');
    info.encode(values.data(), reinterpret_cast<std::byte*>(encoded.data()), n);
    EXPECT_EQ(encoded, stored) << id;
    ++n_encoded;
  }
  EXPECT_GE(n_decoded, 100u);
  EXPECT_GE(n_encoded, 75u);
}

TEST(Quants, SmallFloatsEqualTheReference) {
  LUCID_NEEDS_COMPONENTS();
  const testing_util::ComponentFixture fixture("dtypes");
  const auto expect_same = [](float got, float want, const char* name, size_t i) {
    EXPECT_TRUE(got == want || (got != got && want != want))
        << name << " " << i << ": " << got << " " << want;
  };
  const std::vector<float> e4m3 = fixture.Floats("f8_e4m3fn");
  const std::vector<float> e5m2 = fixture.Floats("f8_e5m2");
  ASSERT_EQ(e4m3.size(), 256u);
  for (size_t i = 0; i < 256; ++i) {
    expect_same(F8E4M3ToF32(static_cast<uint8_t>(i)), e4m3[i], "e4m3", i);
    expect_same(F8E5M2ToF32(static_cast<uint8_t>(i)), e5m2[i], "e5m2", i);
  }
  const std::vector<int32_t> f16 = fixture.Ints("f16.bits");
  const std::vector<int32_t> bf16 = fixture.Ints("bf16.bits");
  const std::vector<float> f16_values = fixture.Floats("f16.f32");
  const std::vector<float> bf16_values = fixture.Floats("bf16.f32");
  for (size_t i = 0; i < f16.size(); ++i) {
    expect_same(F16ToF32(static_cast<uint16_t>(f16[i])), f16_values[i], "f16", i);
    expect_same(Bf16ToF32(static_cast<uint16_t>(bf16[i])), bf16_values[i], "bf16", i);
  }
  const std::vector<float> x = fixture.Floats("round.x");
  const std::vector<int32_t> to_f16 = fixture.Ints("round.to_f16");
  const std::vector<int32_t> to_bf16 = fixture.Ints("round.to_bf16");
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(F32ToF16(x[i]), static_cast<uint16_t>(to_f16[i])) << x[i];
    EXPECT_EQ(F32ToBf16(x[i]), static_cast<uint16_t>(to_bf16[i])) << x[i];
  }
  fixture.ExpectAllRead();
}

}  // namespace
}  // namespace lucid
