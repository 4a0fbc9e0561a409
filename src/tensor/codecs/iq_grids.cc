#include "tensor/codecs/iq_grids.h"

namespace lucid {
namespace {

#include "tensor/codecs/iq_grids.inc"

constexpr int8_t kLevels2[4] = {8, 25, 43, 0};  // the fourth never occurs
constexpr int8_t kLevels1[4] = {-1, 0, 1, 0};
constexpr int8_t kLevels3Xxs[16] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr int8_t kLevels3S[16] = {1, 3, 5, 7, 9, 11, 13, 15};

template <int kLength, int kCount>
constexpr IqGrid<kCount, kLength> Unpack(const uint16_t (&packed)[kCount], const int8_t* levels) {
  constexpr int kWidth = 16 / kLength;
  IqGrid<kCount, kLength> grid{};
  for (int i = 0; i < kCount; ++i) {
    for (int k = 0; k < kLength; ++k) {
      grid[i][k] = levels[(packed[i] >> (k * kWidth)) & ((1 << kWidth) - 1)];
    }
  }
  return grid;
}

}  // namespace

constexpr IqGrid<256, 8> kIq2XxsGrid = Unpack<8>(kIq2XxsPacked, kLevels2);
constexpr IqGrid<512, 8> kIq2XsGrid = Unpack<8>(kIq2XsPacked, kLevels2);
constexpr IqGrid<1024, 8> kIq2SGrid = Unpack<8>(kIq2SPacked, kLevels2);
constexpr IqGrid<256, 4> kIq3XxsGrid = Unpack<4>(kIq3XxsPacked, kLevels3Xxs);
constexpr IqGrid<512, 4> kIq3SGrid = Unpack<4>(kIq3SPacked, kLevels3S);
constexpr IqGrid<2048, 8> kIq1SGrid = Unpack<8>(kIq1SPacked, kLevels1);

}  // namespace lucid
