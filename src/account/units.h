// Numbers with units, as tables, pages and figures print them: three digits, powers of 1000.
#pragma once

#include <cstdint>
#include <string>

namespace lucid::units {

// 1234567 -> "1.23 MB", powers of 1000: B, kB, MB, GB, TB.
std::string Bytes(double bytes);
// 1234567 -> "1.23 MFLOP".
std::string Flops(double flops);
// 0.00123 -> "1.23 ms".
std::string Seconds(double seconds);
// 1234567 -> "1,234,567".
std::string Thousands(int64_t number);

}  // namespace lucid::units
