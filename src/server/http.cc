#include "server/http.h"

#include <nlohmann/json.hpp>

namespace lucid::server {

std::string_view HttpRequest::Header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

std::string PercentDecoded(std::string_view text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  std::string decoded;
  decoded.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 &&
        digit(text[i + 2]) >= 0) {
      decoded += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

HttpResponse ErrorResponse(int status, std::string_view message, std::string_view code) {
  using Json = nlohmann::ordered_json;
  const Json body = {{"error",
                      {{"message", message},
                       {"type", status < 500 ? "invalid_request_error" : "server_error"},
                       {"param", nullptr},
                       {"code", code.empty() ? Json(nullptr) : Json(code)}}}};
  return {.status = status, .body = body.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

}  // namespace lucid::server
