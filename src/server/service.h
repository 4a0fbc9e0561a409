// Service: the server of `lucid serve`: an engine behind HTTP. It listens before the model is
// loaded, and until then says so; http_server.h has the connections, api.h the endpoints.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/config.h"
#include "engine/request.h"
#include "server/http_server.h"
#include "server/router.h"

namespace lucid::server {

struct ServiceOptions {
  HttpOptions http;
  RouterOptions router;
  EngineConfig engine;
  std::vector<std::string> names;  // of the model, for clients; at least one
  Request defaults;                // what bodies do not say
  bool log_requests = false;       // a line of JSON on standard error for each
  std::string chat_template;       // Jinja source instead of the model's own; "": that
};

class Service {
 public:
  // Listens. Errors of the address, TLS and the template; those of the model come from Run.
  static Result<std::unique_ptr<Service>> Listen(ServiceOptions options);
  ~Service();

  const std::string& url() const;
  // Loads the model, calls `ready`, and serves until Shutdown, SIGINT or SIGTERM: then no new
  // requests, and running ones have the grace period. Errors of Engine::Load.
  Status Run(const std::function<void()>& ready);
  void Shutdown();

 private:
  struct Impl;
  explicit Service(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lucid::server
