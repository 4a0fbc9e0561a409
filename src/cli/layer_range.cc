#include "cli/layer_range.h"

#include <charconv>

namespace lucid::cli {

Result<std::pair<int32_t, int32_t>> ParseLayers(const std::string& text) {
  std::pair<int32_t, int32_t> range;
  const char* const end = text.data() + text.size();
  auto [at, error] = std::from_chars(text.data(), end, range.first);
  range.second = range.first;
  if (error == std::errc() && at != end && *at == '-') {
    const auto rest = std::from_chars(at + 1, end, range.second);
    at = rest.ptr;
    error = rest.ec;
  }
  if (error != std::errc() || at != end || range.first > range.second) {
    return Err(ErrorCode::kInvalidArgument, "--layers '{}' is neither a layer nor two, as in 3-7",
               text);
  }
  return range;
}

}  // namespace lucid::cli
