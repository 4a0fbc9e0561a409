#include "base/json.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace lucid {
namespace {

constexpr size_t kMaxCause = 120;  // bytes

// Where brackets outside strings first nest deeper than `max_depth`. Looks at bytes alone, so it
// bounds the parser for malformed text too: up to its first error both see the same brackets.
std::optional<size_t> FindTooDeep(std::string_view text, int max_depth) {
  int64_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > max_depth) return i;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return std::nullopt;
}

// The cause alone of the library's message "[id] parse error at line L, column C: syntax error
// while parsing X - CAUSE; last read: '...'; expected Y": the rest repeats the text, which may be
// long and no UTF-8.
std::string CauseOf(std::string_view message) {
  const size_t dash = message.find(" - ");
  if (dash == std::string_view::npos) return "it cannot be parsed";
  const std::string_view cause = message.substr(dash + 3);
  return std::string(cause.substr(0, std::min(cause.find(';'), kMaxCause)));
}

template <typename Json>
Result<Json> Parse(std::string_view text, std::string_view what, int max_depth) {
  if (const std::optional<size_t> at = FindTooDeep(text, max_depth)) {
    return Err(ErrorCode::kInvalidFile, "{} is nested deeper than {} levels at byte {}", what,
               max_depth, *at);
  }
  try {
    return Json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    return Err(ErrorCode::kInvalidFile, "{} is not valid JSON: {} at byte {}", what,
               CauseOf(error.what()), error.byte);
  } catch (const nlohmann::json::out_of_range&) {
    return Err(ErrorCode::kInvalidFile, "{} is not valid JSON: a number is too large", what);
  }
}

}  // namespace

Result<nlohmann::ordered_json> ParseJson(std::string_view text, std::string_view what,
                                         int max_depth) {
  return Parse<nlohmann::ordered_json>(text, what, max_depth);
}

Result<nlohmann::json> ParseSortedJson(std::string_view text, std::string_view what,
                                       int max_depth) {
  return Parse<nlohmann::json>(text, what, max_depth);
}

}  // namespace lucid
