// Reading .xz files whole, through liblzma, with a bound on what they may unpack to.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/result.h"

namespace lucid {

bool LooksLikeXz(std::span<const std::byte> bytes);

// kInvalidFile for damaged data, kCapacity if more than `max_bytes` come out.
Result<std::string> DecompressXz(std::span<const std::byte> bytes, size_t max_bytes);

}  // namespace lucid
