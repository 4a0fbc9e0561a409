#include "account/units.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

namespace lucid::units {
namespace {

// Three digits and a unit of 1000s.
std::string Scaled(double value, std::initializer_list<const char*> units) {
  const char* const* unit = units.begin();
  while (std::abs(value) >= 999.5 && unit + 1 != units.end()) {
    value /= 1000;
    ++unit;
  }
  const int digits = value == std::floor(value) && unit == units.begin() ? 0
                     : std::abs(value) >= 99.95                          ? 0
                     : std::abs(value) >= 9.995                          ? 1
                                                                         : 2;
  return fmt::format("{:.{}f} {}", value, digits, *unit);
}

}  // namespace

std::string Bytes(double bytes) {
  return Scaled(bytes, {"B", "kB", "MB", "GB", "TB", "PB"});
}

std::string Flops(double flops) {
  return Scaled(flops, {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"});
}

std::string Seconds(double seconds) {
  return std::abs(seconds) >= 1 ? Scaled(seconds, {"s"})
                                : Scaled(seconds * 1e9, {"ns", "us", "ms"});
}

std::string Thousands(int64_t number) {
  std::string digits = std::to_string(std::abs(number));
  for (size_t at = digits.size(); at > 3;) digits.insert(at -= 3, ",");
  return number < 0 ? "-" + digits : digits;
}

}  // namespace lucid::units
