#include "server/http_server.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <csignal>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/log.h"
#include "server/http_session.h"

namespace lucid::server {
namespace {

using asio::generic::stream_protocol;
using boost::system::error_code;
using Acceptor = asio::basic_socket_acceptor<stream_protocol>;

// Files that a process needs beside its connections: libraries, the model, packed weights, pipes.
constexpr int64_t kOtherFiles = 64;

// As many open files as the system lets this process have.
int64_t RaiseFileLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 1 << 20);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int64_t>(limit.rlim_cur);
}

Result<std::unique_ptr<asio::ssl::context>> MakeTls(const HttpOptions& options) {
  std::unique_ptr<asio::ssl::context> tls;
  if (options.tls_certificate.empty() != options.tls_key.empty()) {
    return Err(ErrorCode::kInvalidArgument,
               "TLS needs both a certificate and its key, and only one of them is named");
  }
  if (options.tls_certificate.empty()) return tls;
  tls = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server);
  error_code error;
  tls->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
                       asio::ssl::context::no_tlsv1_1,
                   error);
  tls->use_certificate_chain_file(options.tls_certificate, error);
  if (error) {
    return Err(ErrorCode::kInvalidArgument, "cannot use the certificate {}: {}",
               options.tls_certificate, error.message());
  }
  tls->use_private_key_file(options.tls_key, asio::ssl::context::pem, error);
  if (error) {
    return Err(ErrorCode::kInvalidArgument, "cannot use the key {} for {}: {}", options.tls_key,
               options.tls_certificate, error.message());
  }
  return tls;
}

// Whether somebody answers there: a file that a server which was killed has left may be replaced.
bool SocketIsServed(const std::string& path) {
  asio::io_context io;
  asio::local::stream_protocol::socket socket(io);
  error_code error;
  socket.connect(asio::local::stream_protocol::endpoint(path), error);
  return !error;
}

Result<stream_protocol::endpoint> EndpointOf(const HttpOptions& options, asio::io_context& io) {
  if (!options.unix_socket.empty()) {
    constexpr size_t kMost = 107;  // sockaddr_un::sun_path
    if (options.unix_socket.size() > kMost) {
      return Err(ErrorCode::kInvalidArgument, "the path of the socket has {} bytes, at most {} do",
                 options.unix_socket.size(), kMost);
    }
    if (std::filesystem::is_socket(options.unix_socket)) {
      if (SocketIsServed(options.unix_socket)) {
        return Err(ErrorCode::kInvalidArgument, "{} is in use by another server",
                   options.unix_socket);
      }
      ::unlink(options.unix_socket.c_str());
    }
    return stream_protocol::endpoint(asio::local::stream_protocol::endpoint(options.unix_socket));
  }
  asio::ip::tcp::resolver resolver(io);
  error_code error;
  const auto found = resolver.resolve(options.host, std::to_string(options.port),
                                      asio::ip::tcp::resolver::passive, error);
  if (error || found.empty()) {
    return Err(ErrorCode::kInvalidArgument, "there is no address {}: {}", options.host,
               error.message());
  }
  return stream_protocol::endpoint(found.begin()->endpoint());
}

}  // namespace

struct HttpServer::Impl {
  Impl(const HttpOptions& the_options, HttpHandler the_handler)
      : options(the_options), handler(std::move(the_handler)) {}

  HttpOptions options;
  HttpHandler handler;
  asio::io_context io{1};
  Acceptor acceptor{io};
  asio::signal_set signals{io};
  asio::steady_timer grace{io};
  std::unique_ptr<asio::ssl::context> tls;
  ServerState state{options, handler};
  uint16_t port = 0;
  std::string url;

  Status Bind();
  asio::awaitable<void> Accept();
  void Start(asio::basic_stream_socket<stream_protocol> socket);
  void Stop();
  void CutOff();
  void AwaitSignal();
};

Status HttpServer::Impl::Bind() {
  LUCID_ASSIGN_OR_RETURN(tls, MakeTls(options));
  LUCID_ASSIGN_OR_RETURN(const stream_protocol::endpoint endpoint, EndpointOf(options, io));
  const bool local = !options.unix_socket.empty();
  const std::string where =
      local ? options.unix_socket : fmt::format("{}:{}", options.host, options.port);
  error_code error;
  acceptor.open(endpoint.protocol(), error);
  if (!error && !local) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) return Err(ErrorCode::kIo, "cannot listen on {}: {}", where, error.message());
  if (local) {
    url = "unix:" + options.unix_socket;
    return {};
  }
  asio::ip::tcp::endpoint bound;
  const stream_protocol::endpoint own = acceptor.local_endpoint();
  std::memcpy(bound.data(), own.data(), own.size());
  port = bound.port();
  const bool v6 = options.host.find(':') != std::string::npos;
  url = fmt::format("{}://{}{}{}:{}", tls ? "https" : "http", v6 ? "[" : "", options.host,
                    v6 ? "]" : "", port);
  return {};
}

void HttpServer::Impl::Start(asio::basic_stream_socket<stream_protocol> socket) {
  error_code ignored;
  if (options.unix_socket.empty()) socket.set_option(asio::ip::tcp::no_delay(true), ignored);
  ++state.connections;
  asio::co_spawn(io, ServeConnection(PlainStream(std::move(socket)), tls.get(), state),
                 [this](const std::exception_ptr& thrown) {
                   --state.connections;
                   if (thrown == nullptr) return;
                   try {
                     std::rethrow_exception(thrown);
                   } catch (const std::exception& error) {
                     LogDebug("a connection ended: {}", error.what());
                   }
                 });
}

asio::awaitable<void> HttpServer::Impl::Accept() {
  const int64_t files = RaiseFileLimit();
  const int64_t most = options.max_connections > 0 ? options.max_connections
                                                   : std::max<int64_t>(files - kOtherFiles, 16);
  asio::steady_timer pause(io);
  while (!state.stopping) {
    error_code error;
    auto token = asio::redirect_error(asio::use_awaitable, error);
    auto socket = co_await acceptor.async_accept(token);
    if (state.stopping) break;
    if (error) {  // out of files or memory: those that wait are taken once others have gone
      LogWarn("cannot accept a connection: {}", error.message());
      pause.expires_after(std::chrono::milliseconds(100));
      co_await pause.async_wait(token);
      continue;
    }
    while (state.connections >= most && !state.stopping) {
      pause.expires_after(std::chrono::milliseconds(10));
      co_await pause.async_wait(token);
    }
    Start(std::move(socket));
  }
}

void HttpServer::Impl::CutOff() {
  grace.cancel();
  signals.cancel();
  // Closing one makes its coroutine take itself from the set, once it runs.
  for (PlainStream* stream : state.open) stream->close();
}

void HttpServer::Impl::Stop() {
  if (state.stopping) return CutOff();
  state.stopping = true;
  error_code ignored;
  acceptor.close(ignored);
  if (!options.unix_socket.empty()) ::unlink(options.unix_socket.c_str());
  for (PlainStream* stream : state.idle) stream->cancel();
  grace.expires_after(options.grace);
  grace.async_wait([this](const error_code& error) {
    if (!error) CutOff();
  });
  // Once the last connection has ended nothing is left to wait for.
  asio::co_spawn(
      io,
      [this]() -> asio::awaitable<void> {
        asio::steady_timer pause(io);
        while (state.connections > 0) {
          pause.expires_after(std::chrono::milliseconds(10));
          co_await pause.async_wait(asio::use_awaitable);
        }
        grace.cancel();
        signals.cancel();
      },
      asio::detached);
}

void HttpServer::Impl::AwaitSignal() {
  signals.async_wait([this](const error_code& error, int) {
    if (error) return;
    AwaitSignal();  // a second one; Stop cancels the wait where nothing is left to cut off
    Stop();
  });
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

Result<std::unique_ptr<HttpServer>> HttpServer::Listen(const HttpOptions& options,
                                                       HttpHandler handler) {
  auto impl = std::make_unique<Impl>(options, std::move(handler));
  LUCID_RETURN_IF_ERROR(impl->Bind());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

uint16_t HttpServer::port() const {
  return impl_->port;
}
const std::string& HttpServer::url() const {
  return impl_->url;
}
int64_t HttpServer::connections() const {
  return impl_->state.connections;
}
asio::any_io_executor HttpServer::executor() {
  return impl_->io.get_executor();
}

void HttpServer::Run() {
  asio::co_spawn(impl_->io, impl_->Accept(), asio::detached);
  impl_->io.run();
}

void HttpServer::Shutdown() {
  asio::post(impl_->io, [this] { impl_->Stop(); });
}

void HttpServer::StopOnSignals() {
  impl_->signals.add(SIGINT);
  impl_->signals.add(SIGTERM);
  impl_->AwaitSignal();
}

}  // namespace lucid::server
