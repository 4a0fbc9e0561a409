// ParseJson: the one way untrusted JSON text becomes a value.
//
// Copying and destroying a JSON value recurses once per level, so a value that is nested deeply
// enough exhausts the stack. Depth is therefore checked before any value is built. How large a text
// may be is the caller's business. Neighbours: text/hf_json_reader.h and format/safetensors_parse.h
// stream large files and keep the same limit.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "base/result.h"

namespace lucid {

// Objects and arrays inside one another; model files and requests use fewer than ten.
inline constexpr int kMaxJsonDepth = 64;

// The value of `text`, with the members of objects in the order of the text. kInvalidFile, one
// sentence that begins with `what`: "messages.json is not valid JSON: unexpected end of input at
// byte 12".
Result<nlohmann::ordered_json> ParseJson(std::string_view text, std::string_view what,
                                         int max_depth = kMaxJsonDepth);

// The same with members sorted by name: for objects that may have many members, since finding one
// takes logarithmic time here and linear time in the ordered kind.
Result<nlohmann::json> ParseSortedJson(std::string_view text, std::string_view what,
                                       int max_depth = kMaxJsonDepth);

}  // namespace lucid
