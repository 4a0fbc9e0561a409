// EditDistance: how far a mistyped word is from one that exists, for "did you mean".
#pragma once

#include <cstddef>
#include <string_view>

namespace lucid {

// Number of single-character edits (insert, delete, replace) between two short words.
size_t EditDistance(std::string_view a, std::string_view b);

}  // namespace lucid
