#include "format/quote.h"

#include <fmt/format.h>

namespace lucid {

std::string Quote(std::string_view name, size_t max_bytes) {
  std::string text = "\"";
  for (const char c : name.substr(0, max_bytes)) {
    if (c == '"' || c == '\\') {
      text += '\\';
      text += c;
    } else if (c >= ' ' && c <= '~') {
      text += c;
    } else {
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  text += name.size() > max_bytes ? "...\"" : "\"";
  return text;
}

}  // namespace lucid
