// The table of element types. Entry points: Info, AllDTypes. Codecs: codecs/<family>.cc.
#include "tensor/dtype.h"

#include <array>

#include "base/check.h"
#include "tensor/blocks.h"
#include "tensor/codecs/codecs.h"

namespace lucid {
namespace {

using namespace codecs;  // NOLINT(build/namespaces): a table of nothing but codecs

template <typename Block>
constexpr int64_t kBytes = static_cast<int64_t>(sizeof(Block));

// Rows in the order of the enum. Block sizes are those of gguf's GGML_QUANT_SIZES.
constexpr DTypeInfo kTable[] = {
    {DType::kF32, "F32", 1, 4, DecodeF32, EncodeF32},
    {DType::kF16, "F16", 1, 2, DecodeF16, EncodeF16},
    {DType::kQ4_0, "Q4_0", 32, kBytes<BlockQ4_0>, DecodeQ4_0, EncodeQ4_0},
    {DType::kQ4_1, "Q4_1", 32, kBytes<BlockQ4_1>, DecodeQ4_1, EncodeQ4_1},
    {DType::kQ5_0, "Q5_0", 32, kBytes<BlockQ5_0>, DecodeQ5_0, EncodeQ5_0},
    {DType::kQ5_1, "Q5_1", 32, kBytes<BlockQ5_1>, DecodeQ5_1, EncodeQ5_1},
    {DType::kQ8_0, "Q8_0", 32, kBytes<BlockQ8_0>, DecodeQ8_0, EncodeQ8_0},
    {DType::kQ8_1, "Q8_1", 32, kBytes<BlockQ8_1>, DecodeQ8_1, nullptr},
    {DType::kQ2_K, "Q2_K", kSuperBlock, kBytes<BlockQ2_K>, DecodeQ2_K, nullptr},
    {DType::kQ3_K, "Q3_K", kSuperBlock, kBytes<BlockQ3_K>, DecodeQ3_K, nullptr},
    {DType::kQ4_K, "Q4_K", kSuperBlock, kBytes<BlockQ4_K>, DecodeQ4_K, nullptr},
    {DType::kQ5_K, "Q5_K", kSuperBlock, kBytes<BlockQ5_K>, DecodeQ5_K, nullptr},
    {DType::kQ6_K, "Q6_K", kSuperBlock, kBytes<BlockQ6_K>, DecodeQ6_K, nullptr},
    {DType::kQ8_K, "Q8_K", kSuperBlock, kBytes<BlockQ8_K>, DecodeQ8_K, nullptr},
    {DType::kIQ2_XXS, "IQ2_XXS", kSuperBlock, kBytes<BlockIQ2_XXS>, DecodeIQ2_XXS, nullptr},
    {DType::kIQ2_XS, "IQ2_XS", kSuperBlock, kBytes<BlockIQ2_XS>, DecodeIQ2_XS, nullptr},
    {DType::kIQ3_XXS, "IQ3_XXS", kSuperBlock, kBytes<BlockIQ3_XXS>, DecodeIQ3_XXS, nullptr},
    {DType::kIQ1_S, "IQ1_S", kSuperBlock, kBytes<BlockIQ1_S>, DecodeIQ1_S, nullptr},
    {DType::kIQ4_NL, "IQ4_NL", 32, kBytes<BlockIQ4_NL>, DecodeIQ4_NL, nullptr},
    {DType::kIQ3_S, "IQ3_S", kSuperBlock, kBytes<BlockIQ3_S>, DecodeIQ3_S, nullptr},
    {DType::kIQ2_S, "IQ2_S", kSuperBlock, kBytes<BlockIQ2_S>, DecodeIQ2_S, nullptr},
    {DType::kIQ4_XS, "IQ4_XS", kSuperBlock, kBytes<BlockIQ4_XS>, DecodeIQ4_XS, nullptr},
    {DType::kI8, "I8", 1, 1, DecodeI8, nullptr},
    {DType::kI16, "I16", 1, 2, DecodeI16, nullptr},
    {DType::kI32, "I32", 1, 4, DecodeI32, nullptr},
    {DType::kI64, "I64", 1, 8, DecodeI64, nullptr},
    {DType::kF64, "F64", 1, 8, DecodeF64, EncodeF64},
    {DType::kIQ1_M, "IQ1_M", kSuperBlock, kBytes<BlockIQ1_M>, DecodeIQ1_M, nullptr},
    {DType::kBF16, "BF16", 1, 2, DecodeBF16, EncodeBF16},
    {DType::kTQ1_0, "TQ1_0", kSuperBlock, kBytes<BlockTQ1_0>, DecodeTQ1_0, EncodeTQ1_0},
    {DType::kTQ2_0, "TQ2_0", kSuperBlock, kBytes<BlockTQ2_0>, DecodeTQ2_0, EncodeTQ2_0},
    {DType::kMXFP4, "MXFP4", 32, kBytes<BlockMXFP4>, DecodeMXFP4, EncodeMXFP4},
    {DType::kNVFP4, "NVFP4", 64, kBytes<BlockNVFP4>, DecodeNVFP4, nullptr},
    {DType::kU8, "U8", 1, 1, DecodeU8, nullptr},
    {DType::kBool, "BOOL", 1, 1, nullptr, nullptr},
    {DType::kF8E4M3, "F8_E4M3", 1, 1, DecodeF8E4M3, nullptr},
    {DType::kF8E5M2, "F8_E5M2", 1, 1, DecodeF8E5M2, nullptr},
};

constexpr int32_t kNumbers = 128;  // above every value of the enum
static_assert(static_cast<int32_t>(DType::kF8E5M2) < kNumbers);

constexpr std::array<int8_t, kNumbers> MakeRowOfNumber() {
  std::array<int8_t, kNumbers> rows{};
  rows.fill(-1);
  int8_t row = 0;
  for (const DTypeInfo& info : kTable) rows[static_cast<size_t>(info.type)] = row++;
  return rows;
}
constexpr std::array<int8_t, kNumbers> kRowOfNumber = MakeRowOfNumber();

bool EqualIgnoringCase(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    const char lower = a[i] >= 'a' && a[i] <= 'z' ? static_cast<char>(a[i] - 'a' + 'A') : a[i];
    if (lower != b[i]) return false;
  }
  return true;
}

}  // namespace

const DTypeInfo& Info(DType type) {
  const auto number = static_cast<int32_t>(type);
  LUCID_CHECK(number >= 0 && number < kNumbers && kRowOfNumber[number] >= 0, "dtype {}", number);
  return kTable[kRowOfNumber[number]];
}

std::span<const DTypeInfo> AllDTypes() {
  return kTable;
}

std::optional<DType> DTypeFromGguf(uint32_t id) {
  if (id >= static_cast<uint32_t>(kFirstDTypeNotInGguf) || kRowOfNumber[id] < 0)
    return std::nullopt;
  return kTable[kRowOfNumber[id]].type;
}

std::optional<DType> DTypeFromName(std::string_view name) {
  for (const DTypeInfo& info : kTable) {
    if (EqualIgnoringCase(name, info.name)) return info.type;
  }
  return std::nullopt;
}

}  // namespace lucid
