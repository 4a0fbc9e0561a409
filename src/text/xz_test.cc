#include "text/xz.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lzma.h>
#include <array>

namespace lucid {
namespace {

std::vector<std::byte> Pack(const std::string& text) {
  std::vector<std::byte> out(text.size() + 4096);
  size_t used = 0;
  const auto rc = lzma_easy_buffer_encode(
      6, LZMA_CHECK_CRC64, nullptr, reinterpret_cast<const uint8_t*>(text.data()), text.size(),
      reinterpret_cast<uint8_t*>(out.data()), &used, out.size());
  EXPECT_EQ(rc, LZMA_OK);
  out.resize(used);
  return out;
}

TEST(Xz, UnpacksWhatWasPacked) {
  const std::string text(3'000'000, 'x');
  const auto packed = Pack(text);
  EXPECT_TRUE(LooksLikeXz(packed));
  EXPECT_EQ(*DecompressXz(packed, text.size()), text);
}

TEST(Xz, StopsAtTheLimit) {
  const auto packed = Pack(std::string(3'000'000, 'x'));
  const auto result = DecompressXz(packed, 2'999'999);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kCapacity);
}

TEST(Xz, DamagedDataIsAnErrorAtEveryLength) {
  const auto packed = Pack("some text that is packed");
  for (size_t n = 0; n < packed.size(); ++n) {
    EXPECT_FALSE(DecompressXz(std::span(packed).first(n), 1000)) << n;
  }
}

}  // namespace
}  // namespace lucid
