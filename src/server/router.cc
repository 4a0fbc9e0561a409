#include "server/router.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <optional>

namespace lucid::server {
namespace {

// What is behind a prefix of whole segments; nothing if `path` does not begin with it.
std::optional<std::string_view> Behind(std::string_view prefix, std::string_view path) {
  if (prefix.empty()) return path;
  if (!path.starts_with(prefix)) return std::nullopt;
  path.remove_prefix(prefix.size());
  if (!path.empty() && path[0] != '/') return std::nullopt;
  return path.empty() ? std::string_view("/") : path;
}

HttpResponse OptionsResponse(const std::string& methods) {
  HttpResponse response;
  response.status = 204;
  response.headers = {{"Allow", methods + ", OPTIONS"},
                      {"Access-Control-Allow-Methods", methods},
                      {"Access-Control-Allow-Headers", "*, Authorization"},
                      {"Access-Control-Max-Age", "86400"}};
  return response;
}

using Digest = std::array<unsigned char, SHA256_DIGEST_LENGTH>;

Digest DigestOf(std::string_view text) {
  Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return digest;
}

}  // namespace

// Digests have one length, so that neither the place of a difference nor the secret's length shows.
bool EqualInConstantTime(std::string_view given, std::string_view secret) {
  const Digest a = DigestOf(given);
  const Digest b = DigestOf(secret);
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Router::Router(RouterOptions options) : options_(std::move(options)) {
  while (options_.prefix.ends_with('/')) options_.prefix.pop_back();
}

void Router::Add(std::string_view method, std::string_view path, HttpHandler handler,
                 Access access) {
  routes_[std::string(path)][std::string(method)] = {std::move(handler), access};
}

bool Router::HasKey(const HttpRequest& request) const {
  if (options_.api_keys.empty()) return true;
  constexpr std::string_view kBearer = "bearer ";
  std::string_view given = request.Header("authorization");
  const bool bearer =
      given.size() > kBearer.size() && std::equal(kBearer.begin(), kBearer.end(), given.begin(),
                                                  [](char a, char b) { return a == (b | 0x20); });
  given = bearer ? given.substr(kBearer.size()) : request.Header("x-api-key");
  bool found = false;
  for (const std::string& key : options_.api_keys) found |= EqualInConstantTime(given, key);
  return found;
}

void Router::AddCorsHeaders(HttpExchange& exchange) const {
  const std::string_view origin = exchange.request().Header("origin");
  if (origin.empty()) return;
  const auto& allowed = options_.cors_origins;
  const bool any = std::find(allowed.begin(), allowed.end(), "*") != allowed.end();
  if (!any && std::find(allowed.begin(), allowed.end(), origin) == allowed.end()) return;
  exchange.AddHeader("Access-Control-Allow-Origin", any ? "*" : std::string(origin));
  if (!any) exchange.AddHeader("Vary", "Origin");
}

asio::awaitable<void> Router::Handle(HttpExchange& exchange) const {
  const HttpRequest& request = exchange.request();
  AddCorsHeaders(exchange);
  const std::optional<std::string_view> path = Behind(options_.prefix, request.path);
  const auto found = path ? routes_.find(*path) : routes_.end();
  if (found == routes_.end()) {
    co_await exchange.Send(
        ErrorResponse(404, fmt::format("there is no {}", request.path), "not_found"));
    co_return;
  }
  std::string methods;
  for (const auto& [method, route] : found->second) {
    methods += (methods.empty() ? "" : ", ") + method;
  }
  if (request.method == "OPTIONS") {
    HttpResponse response = OptionsResponse(methods);
    co_await exchange.Send(std::move(response));
    co_return;
  }
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  const auto route = found->second.find(method);
  if (route == found->second.end()) {
    HttpResponse response =
        ErrorResponse(405, fmt::format("{} takes {}, not {}", request.path, methods, method),
                      "method_not_allowed");
    response.headers.emplace_back("Allow", methods);
    co_await exchange.Send(std::move(response));
    co_return;
  }
  if (route->second.access == Access::kKey && !HasKey(request)) {
    HttpResponse response = ErrorResponse(
        401,
        "the API key is missing or wrong: it belongs into the header Authorization: Bearer KEY",
        "invalid_api_key");
    response.headers.emplace_back("WWW-Authenticate", "Bearer");
    co_await exchange.Send(std::move(response));
    co_return;
  }
  co_await route->second.handler(exchange);
}

}  // namespace lucid::server
