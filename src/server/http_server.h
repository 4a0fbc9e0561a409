// HttpServer: accepts connections on a TCP port or a Unix socket, with TLS or without, and gives
// every request to one handler.
//
// All of it happens on the thread of Run(), as coroutines: thousands of idle connections cost some
// kilobytes each, and a slow reader delays nobody. Handlers must not block that thread; what takes
// long goes to threads of its own (engine, worker_pool.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "server/http.h"

namespace lucid::server {

struct HttpOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;                  // 0: one that is free
  std::string unix_socket;               // a path instead of host and port
  std::string tls_certificate, tls_key;  // PEM files; empty: no TLS

  uint32_t max_header_bytes = 16 << 10;
  uint64_t max_body_bytes = 32 << 20;
  int64_t max_connections = 0;                        // 0: as the limit of open files allows
  std::chrono::milliseconds idle_timeout{75'000};     // between requests of a connection
  std::chrono::milliseconds request_timeout{30'000};  // from a request's first byte to its last
  std::chrono::milliseconds write_timeout{30'000};    // until a client takes what is sent
  std::chrono::milliseconds grace{10'000};  // that running requests have when the server stops
};

class HttpServer {
 public:
  // Binds; kInvalidArgument / kIo names the address or the file and the reason.
  static Result<std::unique_ptr<HttpServer>> Listen(const HttpOptions& options,
                                                    HttpHandler handler);
  ~HttpServer();

  uint16_t port() const;           // that it has; 0 for a Unix socket
  const std::string& url() const;  // "http://127.0.0.1:8080", "unix:/run/lucid.sock"

  // Serves until Shutdown, then until all connections are closed.
  void Run();
  // No further connections or requests; running ones have the grace period, then they are cut off.
  // A second call cuts them off at once. From any thread, and from signal handlers of asio.
  void Shutdown();
  // Calls Shutdown on SIGINT and SIGTERM.
  void StopOnSignals();

  int64_t connections() const;  // that are open
  asio::any_io_executor executor();

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lucid::server
