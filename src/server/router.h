// Router: from method and path to a handler, behind what every request passes first: the URL
// prefix, CORS (the Fetch standard) and API keys.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "server/http.h"

namespace lucid::server {

struct RouterOptions {
  std::string prefix;                     // "/llm": the part of a path that comes before all routes
  std::vector<std::string> api_keys;      // none: everybody may ask
  std::vector<std::string> cors_origins;  // "*": all; none: no page of another origin
};

class Router {
 public:
  explicit Router(RouterOptions options);

  enum class Access { kKey, kOpen };  // kOpen: without a key too, for health checks
  // `method` "GET" answers HEAD as well.
  void Add(std::string_view method, std::string_view path, HttpHandler handler,
           Access access = Access::kKey);
  // Finds and runs the handler; answers 401, 404 and 405 itself.
  asio::awaitable<void> Handle(HttpExchange& exchange) const;

 private:
  struct Route {
    HttpHandler handler;
    Access access = Access::kKey;
  };
  using Methods = std::map<std::string, Route, std::less<>>;

  void AddCorsHeaders(HttpExchange& exchange) const;
  bool HasKey(const HttpRequest& request) const;

  RouterOptions options_;
  std::map<std::string, Methods, std::less<>> routes_;
};

// Whether two strings are equal, in a time that depends on the length of `given` alone.
bool EqualInConstantTime(std::string_view given, std::string_view secret);

}  // namespace lucid::server
