// The grids of the IQ types, unpacked: the vectors of 4 or 8 small values that an index stands for.
//
// They are facts of the format. Packed in iq_grids.inc (made by python/make_iq_grids.py), unpacked
// at compile time in iq_grids.cc. Users: iquants.cc and kernels that work on the blocks directly.
#pragma once

#include <array>
#include <cstdint>

namespace lucid {

template <int kCount, int kLength>
using IqGrid = std::array<std::array<int8_t, kLength>, kCount>;

extern const IqGrid<256, 8> kIq2XxsGrid;  // magnitudes 8, 25, 43
extern const IqGrid<512, 8> kIq2XsGrid;   // the same
extern const IqGrid<1024, 8> kIq2SGrid;   // the same
extern const IqGrid<256, 4> kIq3XxsGrid;  // magnitudes 4 to 62
extern const IqGrid<512, 4> kIq3SGrid;    // magnitudes 1, 3, ... 15
extern const IqGrid<2048, 8> kIq1SGrid;   // -1, 0, 1; also IQ1_M

}  // namespace lucid
