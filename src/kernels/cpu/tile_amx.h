// Tiles of the AMX registers: the type that tile_emulated.h documents, made of its instructions.
// The sums are tmm0 to tmm3, a is tmm4 and tmm5, b is tmm6 and tmm7.
//
// The instructions are written as assembly and not as intrinsics: those of GCC 12 say of a
// configuration that its first 8 bytes are read, and of a tile load nothing at all, so stores that
// fill the memory may be moved behind them or dropped (the process then dies of SIGILL). The
// operands and the clobber here say what is read.
#pragma once

#include <cstdint>

namespace lucid::LUCID_ISA {
namespace {

// What LDTILECFG reads. Source: Intel SDM volume 1, section 18.3.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

struct TileConfigs {
  TileConfig of_rows[32];
};
constexpr TileConfigs MakeTileConfigs() {
  TileConfigs configs = {};
  for (int rows = 1; rows <= 32; ++rows) {
    TileConfig& config = configs.of_rows[rows - 1];
    const int first = rows < 16 ? rows : 16;
    const int second = rows - first;
    const int of_tile[8] = {first, first, second, second, first, second, 16, 16};
    for (int t = 0; t < 8; ++t) {
      config.rows[t] = static_cast<uint8_t>(of_tile[t]);
      config.row_bytes[t] = of_tile[t] > 0 ? 64 : 0;
    }
  }
  return configs;
}
constexpr TileConfigs kTileConfigs = MakeTileConfigs();

class AmxTiles {
 public:
  // Loading a configuration takes as long as a few products, so an unchanged one stays.
  void Configure(int64_t rows) {
    if (rows == rows_) return;
    rows_ = rows;
    asm volatile("ldtilecfg %0" ::"m"(kTileConfigs.of_rows[rows - 1]) : "memory");
  }
  // Without it every switch of the thread would save and load 8 KB, and an idle core could not
  // sleep deeply.
  void Release() {
    if (rows_ != 0) asm volatile("tilerelease" ::: "memory");
    rows_ = 0;
  }

  template <int i>
  void LoadA(const uint8_t* p) {
    Load<4 + i>(p);
  }
  template <int j>
  void LoadB(const uint8_t* p) {
    Load<6 + j>(p);
  }
  template <int i, int j>
  void ZeroSum() {
    asm volatile("tilezero %%tmm%c0" ::"i"(2 * i + j));
  }
  template <int i, int j>
  void LoadSum(const float* p) {
    Load<2 * i + j>(p);
  }
  template <int i, int j>
  void StoreSum(float* p) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(p), "r"(kRowBytes), "i"(2 * i + j)
                 : "memory");
  }
  template <int i, int j>
  void Multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(2 * i + j), "i"(4 + i), "i"(6 + j));
  }

 private:
  static constexpr int64_t kRowBytes = 64;

  template <int kTile>
  static void Load(const void* p) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(kRowBytes), "i"(kTile) : "memory");
  }

  int64_t rows_ = 0;
};

}  // namespace
}  // namespace lucid::LUCID_ISA
