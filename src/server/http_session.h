// ServeConnection: the requests of one connection, one after the other.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <memory>
#include <set>

#include "server/http_server.h"

namespace lucid::server {

// TCP and Unix sockets alike.
using PlainStream = boost::beast::basic_stream<asio::generic::stream_protocol>;

// What a running server and its connections share, on the server's thread.
struct ServerState {
  const HttpOptions& options;
  const HttpHandler& handler;
  bool stopping = false;
  int64_t connections = 0;
  std::set<PlainStream*> idle = {};  // between two requests
  std::set<PlainStream*> open = {};
};

// Until the client or the server ends it. `tls` may be null.
asio::awaitable<void> ServeConnection(PlainStream stream, asio::ssl::context* tls,
                                      ServerState& state);

}  // namespace lucid::server
