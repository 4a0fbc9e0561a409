// Packing and unpacking of weight matrices, in plain code. The layout is told in packed.h.
#include "kernels/packed.h"

#include <array>
#include <cstring>

#include "base/check.h"
#include "kernels/packed_dense.h"
#include "tensor/blocks.h"

namespace lucid {
namespace {

constexpr int kGroups = 8;      // of 4 columns in a block
constexpr int kTileBlocks = 8;  // blocks in a whole tile
constexpr int kSubBlocks = 16;  // of 16 columns in a tile
constexpr int64_t kAlignment = 64;

constexpr int64_t Aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// --- planes ---

// Which planes hold the bits of a number, lowest bits first.
enum class Planes : int8_t { kNibble, kNibbleBit, kNibbleCrumb, kCrumb, kCrumbBit, kByte };

int WordsOf(Planes planes) {
  constexpr int kWords[] = {4, 5, 6, 2, 3, 8};
  return kWords[static_cast<int>(planes)];
}

uint32_t Word(const uint8_t* codes, int group) {
  uint32_t word;
  std::memcpy(&word, codes + 4 * group, sizeof(word));
  return word;
}
uint32_t EachByte(uint32_t bits) {
  return bits * 0x01010101u;
}
uint32_t BitsOf(const uint8_t* codes, int group, int first_bit, int bits) {
  return (Word(codes, group) >> first_bit) & EachByte((1u << bits) - 1);
}

void NibbleWords(const uint8_t* codes, uint32_t* words) {
  for (int g = 0; g < 4; ++g) {
    words[g] = BitsOf(codes, g, 0, 4) | (BitsOf(codes, g + 4, 0, 4) << 4);
  }
}
uint32_t BitWord(const uint8_t* codes, int bit) {
  uint32_t word = 0;
  for (int g = 0; g < kGroups; ++g) word |= BitsOf(codes, g, bit, 1) << g;
  return word;
}
void CrumbWords(const uint8_t* codes, int first_bit, uint32_t* words) {
  for (int h = 0; h < 2; ++h) {
    words[h] = 0;
    for (int q = 0; q < 4; ++q) words[h] |= BitsOf(codes, 4 * h + q, first_bit, 2) << (2 * q);
  }
}

// The plane words of one row's block of 32 numbers.
void ToWords(Planes planes, const uint8_t* codes, uint32_t* words) {
  switch (planes) {
    case Planes::kNibble:
      return NibbleWords(codes, words);
    case Planes::kNibbleBit:
      NibbleWords(codes, words);
      words[4] = BitWord(codes, 4);
      return;
    case Planes::kNibbleCrumb:
      NibbleWords(codes, words);
      return CrumbWords(codes, 4, words + 4);
    case Planes::kCrumb:
      return CrumbWords(codes, 0, words);
    case Planes::kCrumbBit:
      CrumbWords(codes, 0, words);
      words[2] = BitWord(codes, 2);
      return;
    case Planes::kByte:
      std::memcpy(words, codes, 32);
      return;
  }
}

void FromWords(Planes planes, const uint32_t* words, uint8_t* codes) {
  for (int g = 0; g < kGroups; ++g) {
    uint32_t word = 0;
    const bool nibble =
        planes == Planes::kNibble || planes == Planes::kNibbleBit || planes == Planes::kNibbleCrumb;
    const bool crumb = planes == Planes::kCrumb || planes == Planes::kCrumbBit;
    if (planes == Planes::kByte) word = words[g];
    if (nibble) word = (words[g % 4] >> (g / 4 * 4)) & EachByte(15);
    if (crumb) word = (words[g / 4] >> (g % 4 * 2)) & EachByte(3);
    if (planes == Planes::kNibbleBit) word |= ((words[4] >> g) & EachByte(1)) << 4;
    if (planes == Planes::kCrumbBit) word |= ((words[2] >> g) & EachByte(1)) << 2;
    if (planes == Planes::kNibbleCrumb) {
      word |= ((words[4 + g / 4] >> (g % 4 * 2)) & EachByte(3)) << 4;
    }
    std::memcpy(codes + 4 * g, &word, sizeof(word));
  }
}

// --- numbers of a block, as the file has them ---

// `src`: the row's block of the file; `part`: which 32 of its columns.
using CodesFn = void (*)(const uint8_t* src, int part, uint8_t* codes);

void SplitNibbles(const uint8_t* qs, uint8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = qs[i] & 15;
    codes[16 + i] = qs[i] >> 4;
  }
}
void AddFifthBits(const uint8_t* qh, uint8_t* codes) {
  const uint32_t bits = LoadU32(qh);
  for (int i = 0; i < 32; ++i) codes[i] |= static_cast<uint8_t>(((bits >> i) & 1u) << 4);
}

template <typename Block>
void LegacyNibbles(const uint8_t* src, int, uint8_t* codes) {
  SplitNibbles(reinterpret_cast<const Block*>(src)->qs, codes);
}
template <typename Block>
void LegacyFives(const uint8_t* src, int, uint8_t* codes) {
  const auto& b = *reinterpret_cast<const Block*>(src);
  SplitNibbles(b.qs, codes);
  AddFifthBits(b.qh, codes);
}
void BytesOfQ8_0(const uint8_t* src, int, uint8_t* codes) {
  std::memcpy(codes, reinterpret_cast<const BlockQ8_0*>(src)->qs, 32);
}
void NibblesOfIQ4_XS(const uint8_t* src, int part, uint8_t* codes) {
  SplitNibbles(reinterpret_cast<const BlockIQ4_XS*>(src)->qs + 16 * part, codes);
}
void CodesOfQ4_K(const uint8_t* src, int part, uint8_t* codes) {
  const uint8_t* qs = reinterpret_cast<const BlockQ4_K*>(src)->qs + part / 2 * 32;
  for (int i = 0; i < 32; ++i) codes[i] = (qs[i] >> (part % 2 * 4)) & 15;
}
void CodesOfQ5_K(const uint8_t* src, int part, uint8_t* codes) {
  const auto& b = *reinterpret_cast<const BlockQ5_K*>(src);
  const uint8_t* qs = b.qs + part / 2 * 32;
  for (int i = 0; i < 32; ++i) {
    codes[i] =
        static_cast<uint8_t>(((qs[i] >> (part % 2 * 4)) & 15) | (((b.qh[i] >> part) & 1) << 4));
  }
}
void CodesOfQ6_K(const uint8_t* src, int part, uint8_t* codes) {
  const auto& b = *reinterpret_cast<const BlockQ6_K*>(src);
  const uint8_t* ql = b.ql + part / 4 * 64 + part % 2 * 32;
  const uint8_t* qh = b.qh + part / 4 * 32;
  for (int i = 0; i < 32; ++i) {
    codes[i] = static_cast<uint8_t>(((ql[i] >> (part % 4 / 2 * 4)) & 15) |
                                    (((qh[i] >> (part % 4 * 2)) & 3) << 4));
  }
}
void CodesOfQ2_K(const uint8_t* src, int part, uint8_t* codes) {
  const uint8_t* qs = reinterpret_cast<const BlockQ2_K*>(src)->qs + part / 4 * 32;
  for (int i = 0; i < 32; ++i) codes[i] = (qs[i] >> (part % 4 * 2)) & 3;
}
void CodesOfQ3_K(const uint8_t* src, int part, uint8_t* codes) {
  const auto& b = *reinterpret_cast<const BlockQ3_K*>(src);
  const uint8_t* qs = b.qs + part / 4 * 32;
  for (int i = 0; i < 32; ++i) {
    codes[i] =
        static_cast<uint8_t>(((qs[i] >> (part % 4 * 2)) & 3) | (((b.hmask[i] >> part) & 1) << 2));
  }
}

// --- scales ---

// The file's blocks at the beginning of a tile, one of each row; nullptr: a padding row.
using TileRows = std::array<const uint8_t*, kStripRows>;
using WriteScalesFn = void (*)(const TileRows& rows, int64_t blocks, uint8_t* dst);

// What a row's sub-blocks of 16 columns are multiplied with, and what is added: value = scale * q +
// add.
struct RowScales {
  float scale[kSubBlocks] = {};
  float add[kSubBlocks] = {};
  bool adds = false;  // else `add` is all zero; adding it would make +0 of -0
};
using ReadScalesFn = void (*)(const uint8_t* src, int64_t blocks, int row, RowScales* out);

void PutHalf(uint8_t* dst, int64_t index, PackedF16 half) {
  dst[2 * index] = half.lo;
  dst[2 * index + 1] = half.hi;
}
float GetHalf(const uint8_t* src, int64_t index) {
  return F16ToF32(LoadU16(src + 2 * index));
}

int64_t HalfScaleBytes(int64_t blocks) {
  return Aligned(blocks * kStripRows * 2);
}
template <typename Block>
void WriteHalf(const TileRows& rows, int64_t blocks, uint8_t* dst) {
  for (int64_t b = 0; b < blocks; ++b) {
    for (int r = 0; r < kStripRows; ++r) {
      if (rows[r]) PutHalf(dst, b * 16 + r, reinterpret_cast<const Block*>(rows[r])[b].d);
    }
  }
}
void ReadHalf(const uint8_t* src, int64_t blocks, int row, RowScales* out) {
  for (int64_t b = 0; b < blocks; ++b) {
    out->scale[2 * b] = out->scale[2 * b + 1] = GetHalf(src, b * 16 + row);
  }
}

int64_t TwoHalvesBytes(int64_t blocks) {
  return blocks * kStripRows * 4;
}
template <typename Block>
void WriteTwoHalves(const TileRows& rows, int64_t blocks, uint8_t* dst) {
  for (int64_t b = 0; b < blocks; ++b) {
    for (int r = 0; r < kStripRows; ++r) {
      if (!rows[r]) continue;
      const Block& block = reinterpret_cast<const Block*>(rows[r])[b];
      PutHalf(dst, b * 16 + r, block.d);
      PutHalf(dst, (blocks + b) * 16 + r, block.m);
    }
  }
}
void ReadTwoHalves(const uint8_t* src, int64_t blocks, int row, RowScales* out) {
  out->adds = true;
  ReadHalf(src, blocks, row, out);
  for (int64_t b = 0; b < blocks; ++b) {
    out->add[2 * b] = out->add[2 * b + 1] = GetHalf(src, (blocks + b) * 16 + row);
  }
}

// 6-bit numbers: `count` sub-blocks, number s of row r.
void PutSix(uint8_t* low, uint8_t* high, int count, int s, int r, int value) {
  const int half = count / 2;
  const int quarter = count / 4;
  low[s % half * 16 + r] |= static_cast<uint8_t>((value & 15) << (s / half * 4));
  high[s % quarter * 16 + r] |= static_cast<uint8_t>((value >> 4) << (s / quarter * 2));
}
int GetSix(const uint8_t* low, const uint8_t* high, int count, int s, int r) {
  const int half = count / 2;
  const int quarter = count / 4;
  return ((low[s % half * 16 + r] >> (s / half * 4)) & 15) |
         (((high[s % quarter * 16 + r] >> (s / quarter * 2)) & 3) << 4);
}

// Q4_K and Q5_K: d, dmin, then low halves of scales and mins (64 bytes each), then the high bits.
constexpr int kKLow = 64, kKMinLow = 128, kKHigh = 192;
int64_t KScaleBytes(int64_t) {
  return 256;
}
template <typename Block>
void WriteK(const TileRows& rows, int64_t, uint8_t* dst) {
  for (int r = 0; r < kStripRows; ++r) {
    if (!rows[r]) continue;
    const Block& b = *reinterpret_cast<const Block*>(rows[r]);
    PutHalf(dst, r, b.d);
    PutHalf(dst, 16 + r, b.dmin);
    for (int s = 0; s < kTileBlocks; ++s) {
      const ScaleMin sm = KScaleMin(b.scales, s);
      const int at = s % 4 * 16 + r;
      const int half = s / 4;
      dst[kKLow + at] |= static_cast<uint8_t>((sm.scale & 15) << (4 * half));
      dst[kKMinLow + at] |= static_cast<uint8_t>((sm.min & 15) << (4 * half));
      dst[kKHigh + at] |= static_cast<uint8_t>((sm.scale >> 4) << (2 * half));
      dst[kKHigh + at] |= static_cast<uint8_t>((sm.min >> 4) << (4 + 2 * half));
    }
  }
}
void ReadK(const uint8_t* src, int64_t, int row, RowScales* out) {
  out->adds = true;
  const float d = GetHalf(src, row);
  const float dmin = GetHalf(src, 16 + row);
  for (int s = 0; s < kTileBlocks; ++s) {
    const int at = s % 4 * 16 + row;
    const int half = s / 4;
    const int scale =
        ((src[kKLow + at] >> (4 * half)) & 15) | (((src[kKHigh + at] >> (2 * half)) & 3) << 4);
    const int min = ((src[kKMinLow + at] >> (4 * half)) & 15) |
                    (((src[kKHigh + at] >> (4 + 2 * half)) & 3) << 4);
    out->scale[2 * s] = out->scale[2 * s + 1] = d * static_cast<float>(scale);
    out->add[2 * s] = out->add[2 * s + 1] = -(dmin * static_cast<float>(min));
  }
}

// Q6_K: d, then int8 scales.
int64_t Q6ScaleBytes(int64_t) {
  return Aligned(32 + 256);
}
void WriteQ6(const TileRows& rows, int64_t, uint8_t* dst) {
  for (int r = 0; r < kStripRows; ++r) {
    if (!rows[r]) continue;
    const auto& b = *reinterpret_cast<const BlockQ6_K*>(rows[r]);
    PutHalf(dst, r, b.d);
    for (int s = 0; s < kSubBlocks; ++s) std::memcpy(dst + 32 + s * 16 + r, &b.scales[s], 1);
  }
}
void ReadQ6(const uint8_t* src, int64_t, int row, RowScales* out) {
  for (int s = 0; s < kSubBlocks; ++s) {
    int8_t scale;
    std::memcpy(&scale, src + 32 + s * 16 + row, 1);
    out->scale[s] = GetHalf(src, row) * static_cast<float>(scale);
  }
}

// Q2_K: d, dmin, then scale and min of each sub-block in a byte.
int64_t Q2ScaleBytes(int64_t) {
  return 64 + 256;
}
void WriteQ2(const TileRows& rows, int64_t, uint8_t* dst) {
  for (int r = 0; r < kStripRows; ++r) {
    if (!rows[r]) continue;
    const auto& b = *reinterpret_cast<const BlockQ2_K*>(rows[r]);
    PutHalf(dst, r, b.d);
    PutHalf(dst, 16 + r, b.dmin);
    for (int s = 0; s < kSubBlocks; ++s) dst[64 + s * 16 + r] = b.scales[s];
  }
}
void ReadQ2(const uint8_t* src, int64_t, int row, RowScales* out) {
  out->adds = true;
  for (int s = 0; s < kSubBlocks; ++s) {
    const uint8_t both = src[64 + s * 16 + row];
    out->scale[s] = GetHalf(src, row) * static_cast<float>(both & 15);
    out->add[s] = -(GetHalf(src, 16 + row) * static_cast<float>(both >> 4));
  }
}

// Q3_K: d, then 6-bit scales, of which 32 is subtracted.
int64_t Q3ScaleBytes(int64_t) {
  return Aligned(32 + 128 + 64);
}
void WriteQ3(const TileRows& rows, int64_t, uint8_t* dst) {
  for (int r = 0; r < kStripRows; ++r) {
    if (!rows[r]) continue;
    const auto& b = *reinterpret_cast<const BlockQ3_K*>(rows[r]);
    PutHalf(dst, r, b.d);
    for (int s = 0; s < kSubBlocks; ++s) {
      const int low = (b.scales[s % 8] >> (s / 8 * 4)) & 15;
      const int high = (b.scales[8 + s % 4] >> (s / 4 * 2)) & 3;
      PutSix(dst + 32, dst + 160, kSubBlocks, s, r, low | (high << 4));
    }
  }
}
void ReadQ3(const uint8_t* src, int64_t, int row, RowScales* out) {
  for (int s = 0; s < kSubBlocks; ++s) {
    const int scale = GetSix(src + 32, src + 160, kSubBlocks, s, row) - 32;
    out->scale[s] = GetHalf(src, row) * static_cast<float>(scale);
  }
}

// IQ4_XS: d, then 6-bit scales, of which 32 is subtracted.
int64_t Iq4XsScaleBytes(int64_t) {
  return 32 + 64 + 32;
}
void WriteIq4Xs(const TileRows& rows, int64_t, uint8_t* dst) {
  for (int r = 0; r < kStripRows; ++r) {
    if (!rows[r]) continue;
    const auto& b = *reinterpret_cast<const BlockIQ4_XS*>(rows[r]);
    PutHalf(dst, r, b.d);
    for (int s = 0; s < kTileBlocks; ++s) {
      const int low = (b.scales_l[s / 2] >> (s % 2 * 4)) & 15;
      const int high = (LoadU16(b.scales_h) >> (2 * s)) & 3;
      PutSix(dst + 32, dst + 96, kTileBlocks, s, r, low | (high << 4));
    }
  }
}
void ReadIq4Xs(const uint8_t* src, int64_t, int row, RowScales* out) {
  for (int s = 0; s < kTileBlocks; ++s) {
    const int scale = GetSix(src + 32, src + 96, kTileBlocks, s, row) - 32;
    out->scale[2 * s] = out->scale[2 * s + 1] = GetHalf(src, row) * static_cast<float>(scale);
  }
}

int64_t ExponentBytes(int64_t blocks) {
  return Aligned(blocks * kStripRows);
}
void WriteExponents(const TileRows& rows, int64_t blocks, uint8_t* dst) {
  for (int64_t b = 0; b < blocks; ++b) {
    for (int r = 0; r < kStripRows; ++r) {
      if (rows[r]) dst[b * 16 + r] = reinterpret_cast<const BlockMXFP4*>(rows[r])[b].e;
    }
  }
}
void ReadExponents(const uint8_t* src, int64_t blocks, int row, RowScales* out) {
  for (int64_t b = 0; b < blocks; ++b) {
    out->scale[2 * b] = out->scale[2 * b + 1] = E8m0Half(src[b * 16 + row]);
  }
}

// --- the types ---

struct Spec {
  PackedForm form;
  Planes planes;
  int offset;            // subtracted from the number in the planes
  const int8_t* levels;  // or the table that the number is an index of
  CodesFn codes;
  WriteScalesFn write_scales;
  ReadScalesFn read_scales;
};

Spec Row(DType type, Planes planes, int offset, const int8_t* levels,
         int64_t (*scale_bytes)(int64_t), CodesFn codes, WriteScalesFn write, ReadScalesFn read) {
  return {{type, WordsOf(planes), scale_bytes}, planes, offset, levels, codes, write, read};
}

const Spec kSpecs[] = {
    Row(DType::kQ4_0, Planes::kNibble, 8, nullptr, HalfScaleBytes, LegacyNibbles<BlockQ4_0>,
        WriteHalf<BlockQ4_0>, ReadHalf),
    Row(DType::kQ4_1, Planes::kNibble, 0, nullptr, TwoHalvesBytes, LegacyNibbles<BlockQ4_1>,
        WriteTwoHalves<BlockQ4_1>, ReadTwoHalves),
    Row(DType::kQ5_0, Planes::kNibbleBit, 16, nullptr, HalfScaleBytes, LegacyFives<BlockQ5_0>,
        WriteHalf<BlockQ5_0>, ReadHalf),
    Row(DType::kQ5_1, Planes::kNibbleBit, 0, nullptr, TwoHalvesBytes, LegacyFives<BlockQ5_1>,
        WriteTwoHalves<BlockQ5_1>, ReadTwoHalves),
    Row(DType::kQ8_0, Planes::kByte, 0, nullptr, HalfScaleBytes, BytesOfQ8_0, WriteHalf<BlockQ8_0>,
        ReadHalf),
    Row(DType::kQ2_K, Planes::kCrumb, 0, nullptr, Q2ScaleBytes, CodesOfQ2_K, WriteQ2, ReadQ2),
    Row(DType::kQ3_K, Planes::kCrumbBit, 4, nullptr, Q3ScaleBytes, CodesOfQ3_K, WriteQ3, ReadQ3),
    Row(DType::kQ4_K, Planes::kNibble, 0, nullptr, KScaleBytes, CodesOfQ4_K, WriteK<BlockQ4_K>,
        ReadK),
    Row(DType::kQ5_K, Planes::kNibbleBit, 0, nullptr, KScaleBytes, CodesOfQ5_K, WriteK<BlockQ5_K>,
        ReadK),
    Row(DType::kQ6_K, Planes::kNibbleCrumb, 32, nullptr, Q6ScaleBytes, CodesOfQ6_K, WriteQ6,
        ReadQ6),
    Row(DType::kIQ4_NL, Planes::kNibble, 0, kIq4Levels, HalfScaleBytes, LegacyNibbles<BlockIQ4_NL>,
        WriteHalf<BlockIQ4_NL>, ReadHalf),
    Row(DType::kIQ4_XS, Planes::kNibble, 0, kIq4Levels, Iq4XsScaleBytes, NibblesOfIQ4_XS,
        WriteIq4Xs, ReadIq4Xs),
    Row(DType::kMXFP4, Planes::kNibble, 0, kE2m1Doubled, ExponentBytes, LegacyNibbles<BlockMXFP4>,
        WriteExponents, ReadExponents),
};

constexpr PackedForm PlainForm(DType type, int columns) {
  PackedForm form;
  form.type = type;
  form.columns = columns;
  return form;
}
constexpr PackedForm kPlainForms[] = {PlainForm(DType::kF32, 1), PlainForm(DType::kF16, 2),
                                      PlainForm(DType::kBF16, 2)};

const Spec* FindSpec(DType type) {
  for (const Spec& spec : kSpecs) {
    if (spec.form.type == type) return &spec;
  }
  return nullptr;
}

int64_t BlocksOfTile(int64_t n_in, int64_t tile) {
  const int64_t left = n_in / kPackedBlock - tile * kTileBlocks;
  return left < kTileBlocks ? left : kTileBlocks;
}
int64_t TilesOf(int64_t n_in) {
  return (n_in + kPackedTile - 1) / kPackedTile;
}

void PackTile(const Spec& spec, const TileRows& rows, int64_t blocks, uint8_t* dst) {
  const int64_t scale_bytes = spec.form.scale_bytes(blocks);
  std::memset(dst, 0, static_cast<size_t>(scale_bytes));
  spec.write_scales(rows, blocks, dst);
  const DTypeInfo& info = Info(spec.form.type);
  const int64_t parts = info.block_elems / kPackedBlock;  // blocks of ours in one of the file's
  uint8_t* planes = dst + scale_bytes;
  for (int r = 0; r < kStripRows; ++r) {
    for (int64_t b = 0; b < blocks; ++b) {
      uint8_t codes[kPackedBlock] = {};
      uint32_t words[kGroups] = {};
      if (rows[r]) {
        spec.codes(rows[r] + b / parts * info.block_bytes, static_cast<int>(b % parts), codes);
      }
      ToWords(spec.planes, codes, words);
      for (int w = 0; w < spec.form.words; ++w) {
        uint8_t* at = planes + ((b * spec.form.words + w) * kStripRows + r) * 4;
        std::memcpy(at, &words[w], sizeof(words[w]));
      }
    }
  }
}

}  // namespace

int64_t PackedForm::StripBytes(int64_t n_in) const {
  if (plain()) return (n_in + columns - 1) / columns * kPackedWord;
  const int64_t whole = n_in / kPackedTile;
  const int64_t rest = n_in % kPackedTile / kPackedBlock;
  return whole * TileBytes(kTileBlocks) + (rest > 0 ? TileBytes(rest) : 0);
}

const PackedForm* FindPackedForm(DType type) {
  for (const PackedForm& form : kPlainForms) {
    if (form.type == type) return &form;
  }
  const Spec* spec = FindSpec(type);
  return spec != nullptr ? &spec->form : nullptr;
}

bool PackAlike(DType a, DType b) {
  const PackedForm* form = FindPackedForm(a);
  const PackedForm* other = FindPackedForm(b);
  if (form == nullptr || other == nullptr) return form == other;
  return form->plain() == other->plain();
}

int64_t PackedBytes(const Tensor& w) {
  const PackedForm* form = FindPackedForm(w.dtype);
  if (form == nullptr) return 0;
  return (w.rows() + kStripRows - 1) / kStripRows * form->StripBytes(w.cols());
}

void PackStrips(const Tensor& w, int64_t begin, int64_t end, std::byte* packed) {
  const PackedForm* form = FindPackedForm(w.dtype);
  if (form != nullptr && form->plain()) return PackDenseStrips(*form, w, begin, end, packed);
  const Spec* spec = FindSpec(w.dtype);
  LUCID_CHECK(spec != nullptr, "{} has no packed form", Name(w.dtype));
  const int64_t strip_bytes = spec->form.StripBytes(w.cols());
  for (int64_t strip = begin; strip < end; ++strip) {
    auto* dst = reinterpret_cast<uint8_t*>(packed + strip * strip_bytes);
    for (int64_t tile = 0; tile < TilesOf(w.cols()); ++tile) {
      const int64_t blocks = BlocksOfTile(w.cols(), tile);
      TileRows rows{};
      for (int r = 0; r < kStripRows; ++r) {
        const int64_t n = strip * kStripRows + r;
        if (n >= w.rows()) continue;
        rows[static_cast<size_t>(r)] =
            reinterpret_cast<const uint8_t*>(w.row(n)) + RowBytes(w.dtype, tile * kPackedTile);
      }
      PackTile(*spec, rows, blocks, dst);
      dst += spec->form.TileBytes(blocks);
    }
  }
}

void DecodePackedRow(DType type, const std::byte* packed, int64_t n_in, int64_t row, float* dst) {
  const PackedForm* form = FindPackedForm(type);
  if (form != nullptr && form->plain()) return DecodeDenseRow(*form, packed, n_in, row, dst);
  const Spec* spec = FindSpec(type);
  LUCID_CHECK(spec != nullptr, "{} has no packed form", Name(type));
  const auto* src =
      reinterpret_cast<const uint8_t*>(packed) + row / kStripRows * spec->form.StripBytes(n_in);
  const int r = static_cast<int>(row % kStripRows);
  for (int64_t tile = 0; tile < TilesOf(n_in); ++tile) {
    const int64_t blocks = BlocksOfTile(n_in, tile);
    RowScales scales;
    spec->read_scales(src, blocks, r, &scales);
    const uint8_t* planes = src + spec->form.scale_bytes(blocks);
    for (int64_t b = 0; b < blocks; ++b) {
      uint32_t words[kGroups] = {};
      for (int w = 0; w < spec->form.words; ++w) {
        words[w] = LoadU32(planes + ((b * spec->form.words + w) * kStripRows + r) * 4);
      }
      uint8_t codes[kPackedBlock];
      FromWords(spec->planes, words, codes);
      for (int i = 0; i < kPackedBlock; ++i) {
        int q = codes[i] - spec->offset;
        if (spec->levels != nullptr) q = spec->levels[codes[i]];
        if (spec->planes == Planes::kByte) q = static_cast<int8_t>(codes[i]);
        const int64_t sub = 2 * b + i / 16;
        const float value = scales.scale[sub] * static_cast<float>(q);
        *dst++ = scales.adds ? value + scales.add[sub] : value;
      }
    }
    src += spec->form.TileBytes(blocks);
  }
}

}  // namespace lucid
