// Codecs of the types without blocks: floats and integers. Entry points: codecs.h.
//
// Sources may lie at any address (safetensors aligns nothing), so values are loaded through memcpy,
// which compilers turn into plain loads.
#include <cstring>

#include "base/float16.h"
#include "tensor/codecs/codecs.h"

namespace lucid::codecs {
namespace {

template <typename T, typename Convert>
void Decode(const std::byte* src, float* dst, int64_t n, Convert convert) {
  for (int64_t i = 0; i < n; ++i) {
    T value;
    std::memcpy(&value, src + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    dst[i] = convert(value);
  }
}

template <typename T, typename Convert>
void Encode(const float* src, std::byte* dst, int64_t n, Convert convert) {
  for (int64_t i = 0; i < n; ++i) {
    const T value = convert(src[i]);
    std::memcpy(dst + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
  }
}

template <typename T>
void DecodeNumber(const std::byte* src, float* dst, int64_t n) {
  Decode<T>(src, dst, n, [](T value) { return static_cast<float>(value); });
}

}  // namespace

void DecodeF32(const std::byte* src, float* dst, int64_t n) {
  if (n > 0) std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(float));
}
void EncodeF32(const float* src, std::byte* dst, int64_t n) {
  if (n > 0) std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(float));
}

void DecodeF16(const std::byte* src, float* dst, int64_t n) {
  Decode<uint16_t>(src, dst, n, [](uint16_t bits) { return F16ToF32(bits); });
}
void EncodeF16(const float* src, std::byte* dst, int64_t n) {
  Encode<uint16_t>(src, dst, n, [](float value) { return F32ToF16(value); });
}

void DecodeBF16(const std::byte* src, float* dst, int64_t n) {
  Decode<uint16_t>(src, dst, n, [](uint16_t bits) { return Bf16ToF32(bits); });
}
void EncodeBF16(const float* src, std::byte* dst, int64_t n) {
  Encode<uint16_t>(src, dst, n, [](float value) { return F32ToBf16(value); });
}

void DecodeF64(const std::byte* src, float* dst, int64_t n) {
  DecodeNumber<double>(src, dst, n);
}
void EncodeF64(const float* src, std::byte* dst, int64_t n) {
  Encode<double>(src, dst, n, [](float value) { return static_cast<double>(value); });
}

void DecodeF8E4M3(const std::byte* src, float* dst, int64_t n) {
  Decode<uint8_t>(src, dst, n, [](uint8_t bits) { return F8E4M3ToF32(bits); });
}
void DecodeF8E5M2(const std::byte* src, float* dst, int64_t n) {
  Decode<uint8_t>(src, dst, n, [](uint8_t bits) { return F8E5M2ToF32(bits); });
}

void DecodeI8(const std::byte* src, float* dst, int64_t n) {
  DecodeNumber<int8_t>(src, dst, n);
}
void DecodeI16(const std::byte* src, float* dst, int64_t n) {
  DecodeNumber<int16_t>(src, dst, n);
}
void DecodeI32(const std::byte* src, float* dst, int64_t n) {
  DecodeNumber<int32_t>(src, dst, n);
}
void DecodeI64(const std::byte* src, float* dst, int64_t n) {
  DecodeNumber<int64_t>(src, dst, n);
}
void DecodeU8(const std::byte* src, float* dst, int64_t n) {
  DecodeNumber<uint8_t>(src, dst, n);
}

}  // namespace lucid::codecs
