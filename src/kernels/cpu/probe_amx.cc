// Probes of the AMX tile products: four accumulator tiles and four operand tiles, all in registers.
//
// Like isa_<name>.cc, compiled with flags of its own and without std templates (ADR 0003).
#if defined(__x86_64__)
#define LUCID_PROBE probe_amx

#include <immintrin.h>

#include "kernels/cpu/probe-inl.h"

namespace lucid {
namespace probe_amx {
namespace {

// Eight tiles of 16 rows of 64 bytes. A constant object and not a local one: GCC 12 believes that
// loading a configuration reads its first 8 bytes only, and drops stores to the others. Source:
// Intel SDM volume 1, section 18.3.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
const TileConfig kConfig;
constexpr int64_t kTileBytes = 1024;
static_assert(sizeof(TileConfig) == 64 && 4 * kTileBytes <= kProbeOperandBytes);

void LoadTiles(const void* data) {
  const auto* operands = static_cast<const char*>(data);
  _tile_loadconfig(&kConfig);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, operands, 64);
  _tile_loadd(5, operands + kTileBytes, 64);
  _tile_loadd(6, operands + 2 * kTileBytes, 64);
  _tile_loadd(7, operands + 3 * kTileBytes, 64);
}

uint64_t FoldTiles() {
  struct alignas(64) Tile {
    uint64_t words[kTileBytes / 8];
  };
  Tile sums[4];
  _tile_stored(0, sums[0].words, 64);
  _tile_stored(1, sums[1].words, 64);
  _tile_stored(2, sums[2].words, 64);
  _tile_stored(3, sums[3].words, 64);
  _tile_release();
  return Fold(sums[0]) ^ Fold(sums[1]) ^ Fold(sums[2]) ^ Fold(sums[3]);
}

uint64_t Integer(const void* data, int64_t n) {
  LoadTiles(data);
  for (int64_t i = 0; i < n; ++i) {
    _tile_dpbusd(0, 4, 6);
    _tile_dpbusd(1, 4, 7);
    _tile_dpbusd(2, 5, 6);
    _tile_dpbusd(3, 5, 7);
  }
  return FoldTiles();
}

uint64_t Bfloat(const void* data, int64_t n) {
  LoadTiles(data);
  for (int64_t i = 0; i < n; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  return FoldTiles();
}

constexpr Probe kProbes[] = {
    {ProbeKind::kBfloat, "", int64_t{4} * 16 * 16 * 32, Bfloat},
    {ProbeKind::kInteger, "", int64_t{4} * 16 * 16 * 64, Integer},
};
constexpr ProbeTable kTable = {"amx", kProbes};

}  // namespace
}  // namespace probe_amx

const ProbeTable& AmxProbes() {
  return probe_amx::kTable;
}

}  // namespace lucid

#endif  // x86-64
