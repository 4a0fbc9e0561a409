// The HTTP server and its router over real sockets: what is answered, refused, timed out and cut
// off, and that nothing of it holds up others.
#include "server/http_server.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <filesystem>
#include <thread>
#include <vector>

#include "server/router.h"

namespace lucid::server {
namespace {

using namespace std::chrono_literals;

// A server on a thread of its own; stops at the end of the test.
class Running {
 public:
  explicit Running(HttpOptions options = {}, HttpHandler handler = Echo) {
    if (options.unix_socket.empty()) options.port = 0;
    server_ = HttpServer::Listen(options, std::move(handler)).value();
    thread_ = std::thread([this] { server_->Run(); });
  }
  ~Running() { Stop(); }
  void Stop() {
    if (!thread_.joinable()) return;
    server_->Shutdown();
    thread_.join();
  }
  HttpServer& operator*() { return *server_; }
  HttpServer* operator->() { return server_.get(); }

  // "METHOD PATH BODY" back; of /stream three pieces; of /throw an exception.
  static asio::awaitable<void> Echo(HttpExchange& exchange) {
    const HttpRequest& request = exchange.request();
    if (request.path == "/throw") throw std::runtime_error("planted");
    if (request.path == "/stream") {
      co_await exchange.BeginStream("text/plain");
      for (const char* piece : {"one", "two", "three"}) co_await exchange.Write(piece);
      co_await exchange.EndStream();
      co_return;
    }
    HttpResponse response;
    response.body = request.method + " " + request.path + " " + request.body;
    co_await exchange.Send(std::move(response));
  }

 private:
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

// A blocking connection.
class Client {
 public:
  explicit Client(HttpServer& server) : socket_(io_) {
    const asio::ip::tcp::endpoint to(asio::ip::make_address("127.0.0.1"), server.port());
    tcp_.emplace(io_);
    tcp_->connect(to);
  }
  void Send(std::string_view text) { asio::write(*tcp_, asio::buffer(text)); }
  // Everything until the server closes its end.
  std::string ReadAll() {
    std::string text;
    boost::system::error_code error;
    asio::read(*tcp_, asio::dynamic_buffer(text), error);
    return text;
  }
  // Until `end` has come.
  std::string ReadUntil(std::string_view end) {
    std::string text;
    char c = 0;
    boost::system::error_code error;
    while (text.find(end) == text.npos && asio::read(*tcp_, asio::buffer(&c, 1), error) == 1) {
      text += c;
    }
    return text;
  }
  void Close() { tcp_->close(); }

 private:
  asio::io_context io_;
  asio::local::stream_protocol::socket socket_;
  std::optional<asio::ip::tcp::socket> tcp_;
};

std::string Ask(HttpServer& server, std::string_view request) {
  Client client(server);
  client.Send(request);
  return client.ReadAll();
}

bool Has(const std::string& text, std::string_view part) {
  return text.find(part) != text.npos;
}

TEST(HttpServer, AnswersOneAfterTheOtherOnOneConnection) {
  Running server;
  Client client(*server);
  client.Send("POST /a%20b?x=1 HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc");
  EXPECT_TRUE(Has(client.ReadUntil("abc"), "POST /a b abc"));
  // Two at once, and one in chunks.
  client.Send("GET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_TRUE(Has(client.ReadUntil("GET /2 "), "GET /1 "));
  client.Send(
      "PUT /3 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
      "chunked\r\n\r\n2\r\nxy\r\n1\r\nz\r\n0\r\n\r\n");
  EXPECT_TRUE(Has(client.ReadUntil("xyz"), "PUT /3 xyz"));
  client.Send("HEAD /4 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  const std::string head = client.ReadAll();
  EXPECT_TRUE(Has(head, "Content-Length: 8")) << head;
  EXPECT_TRUE(head.ends_with("\r\n\r\n")) << head;
}

TEST(HttpServer, StreamsInChunksAndForOldClientsToTheEnd) {
  Running server;
  const std::string chunks =
      Ask(*server, "GET /stream HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(Has(chunks, "3\r\none\r\n3\r\ntwo\r\n5\r\nthree\r\n0\r\n\r\n")) << chunks;
  const std::string old = Ask(*server, "GET /stream HTTP/1.0\r\n\r\n");
  EXPECT_TRUE(old.ends_with("\r\n\r\nonetwothree")) << old;
}

TEST(HttpServer, RefusesWhatIsTooLongOrNoRequest) {
  HttpOptions options;
  options.max_header_bytes = 1024;
  options.max_body_bytes = 100;
  Running server(options);
  const std::string long_header(2000, 'x');
  EXPECT_TRUE(Ask(*server, "GET / HTTP/1.1\r\nA: " + long_header + "\r\n\r\n")
                  .starts_with("HTTP/1.1 431 "));
  EXPECT_TRUE(
      Ask(*server, "POST / HTTP/1.1\r\nContent-Length: 101\r\n\r\n").starts_with("HTTP/1.1 413 "));
  const std::string body(120, 'y');
  EXPECT_TRUE(
      Ask(*server, "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n78\r\n" + body + "\r\n")
          .starts_with("HTTP/1.1 413 "));
  for (const char* bad : {"nonsense\r\n\r\n", "GET /\r\n\r\n", "GET / HTTP/9.9\r\n\r\n",
                          "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
                          "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"}) {
    EXPECT_TRUE(Ask(*server, bad).starts_with("HTTP/1.1 400 ")) << bad;
  }
  EXPECT_TRUE(Has(Ask(*server, "GET /ok HTTP/1.1\r\nConnection: close\r\n\r\n"), "GET /ok"));
}

TEST(HttpServer, AHandlersExceptionIs500AndServesOn) {
  Running server;
  EXPECT_TRUE(Ask(*server, "GET /throw HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 500 "));
  EXPECT_TRUE(Has(Ask(*server, "GET /ok HTTP/1.1\r\nConnection: close\r\n\r\n"), "GET /ok"));
}

TEST(HttpServer, ClosesWhoSaysNothingOrTooLittle) {
  HttpOptions options;
  options.idle_timeout = 100ms;
  options.request_timeout = 200ms;
  Running server(options);
  EXPECT_EQ(Ask(*server, ""), "");
  EXPECT_TRUE(Ask(*server, "POST / HTTP/1.1\r\nContent-Le").starts_with("HTTP/1.1 408 "));
  EXPECT_TRUE(
      Ask(*server, "POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nab").starts_with("HTTP/1.1 408 "));
}

// Waits for a minute, or for the cancellation that it notes.
struct Waiting {
  std::atomic<int> began{0}, ended{0};
  HttpHandler Handler() {
    return [this](HttpExchange& exchange) -> asio::awaitable<void> {
      if (exchange.request().path == "/ok") co_return co_await Running::Echo(exchange);
      struct Note {
        std::atomic<int>& count;
        ~Note() { ++count; }
      } note{ended};
      ++began;
      asio::steady_timer timer(co_await asio::this_coro::executor, 60s);
      co_await timer.async_wait(asio::use_awaitable);
      co_await Running::Echo(exchange);
    };
  }
  static bool Becomes(const std::atomic<int>& value, int want) {
    for (int i = 0; i < 500 && value != want; ++i) std::this_thread::sleep_for(10ms);
    return value == want;
  }
};

TEST(HttpServer, CancelsTheHandlerWhenTheClientGoes) {
  Waiting waiting;
  Running server({}, waiting.Handler());
  Client client(*server);
  client.Send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  ASSERT_TRUE(Waiting::Becomes(waiting.began, 1));
  EXPECT_EQ(waiting.ended, 0);
  client.Close();
  EXPECT_TRUE(Waiting::Becomes(waiting.ended, 1));
}

TEST(HttpServer, WhatRunsHasTheGracePeriodAndThenIsCutOff) {
  Waiting waiting;
  HttpOptions options;
  options.grace = 300ms;
  Running server(options, waiting.Handler());
  Client idle(*server);
  Client busy(*server);
  busy.Send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  ASSERT_TRUE(Waiting::Becomes(waiting.began, 1));
  const auto start = std::chrono::steady_clock::now();
  server.Stop();
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_GE(took, 290ms);
  EXPECT_LT(took, 20s);
  EXPECT_EQ(waiting.ended, 1);
  EXPECT_EQ(idle.ReadAll(), "");
}

TEST(HttpServer, ManyIdleConnectionsHoldUpNobody) {
  Running server;
  std::vector<std::unique_ptr<Client>> idle;
  for (int i = 0; i < 400; ++i) idle.push_back(std::make_unique<Client>(*server));
  EXPECT_TRUE(Has(Ask(*server, "GET /ok HTTP/1.1\r\nConnection: close\r\n\r\n"), "GET /ok"));
  EXPECT_GE(server->connections(), 400);
}

// A reader that takes nothing of an endless stream.
TEST(HttpServer, WhoTakesNothingIsDroppedAndHoldsUpNobody) {
  HttpOptions options;
  options.write_timeout = 200ms;
  std::atomic<int> dropped{0};
  Running server(options, [&](HttpExchange& exchange) -> asio::awaitable<void> {
    if (exchange.request().path == "/ok") co_return co_await Running::Echo(exchange);
    co_await exchange.BeginStream("text/plain");
    try {
      while (true) co_await exchange.Write(std::string(100'000, 'x'));
    } catch (const boost::system::system_error&) {
      ++dropped;
    }
  });
  Client slow(*server);
  slow.Send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_TRUE(Has(Ask(*server, "GET /ok HTTP/1.1\r\nConnection: close\r\n\r\n"), "GET /ok"));
  EXPECT_TRUE(Waiting::Becomes(dropped, 1));
}

TEST(HttpServer, ListensOnAUnixSocketAndLeavesNone) {
  const std::string path = testing::TempDir() + "lucid-http-test.sock";
  HttpOptions options;
  options.unix_socket = path;
  {
    Running server(options);
    asio::io_context io;
    asio::local::stream_protocol::socket socket(io);
    socket.connect(asio::local::stream_protocol::endpoint(path));
    asio::write(socket, asio::buffer(std::string("GET /u HTTP/1.0\r\n\r\n")));
    std::string text;
    boost::system::error_code error;
    asio::read(socket, asio::dynamic_buffer(text), error);
    EXPECT_TRUE(Has(text, "GET /u ")) << text;
    const auto second = HttpServer::Listen(options, Running::Echo);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().message, path + " is in use by another server");
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(HttpServer, SaysWhatItCannotListenOn) {
  Running server;
  HttpOptions options;
  options.port = server->port();
  EXPECT_EQ(HttpServer::Listen(options, Running::Echo).error().message,
            fmt::format("cannot listen on 127.0.0.1:{}: Address already in use", options.port));
  options.tls_key = "/no/key.pem";
  EXPECT_EQ(HttpServer::Listen(options, Running::Echo).error().message,
            "TLS needs both a certificate and its key, and only one of them is named");
  options.tls_certificate = "/no/certificate.pem";
  EXPECT_TRUE(Has(HttpServer::Listen(options, Running::Echo).error().message,
                  "cannot use the certificate /no/certificate.pem: "));
}

// --- the router ---

Router TestRouter(RouterOptions options) {
  Router router(std::move(options));
  router.Add("GET", "/thing", Running::Echo);
  router.Add("POST", "/thing", Running::Echo);
  router.Add("GET", "/health", Running::Echo, Router::Access::kOpen);
  return router;
}

std::string AskRouter(const RouterOptions& options, const std::string& first_line,
                      const std::string& headers = "") {
  const Router router = TestRouter(options);
  Running server({}, [&](HttpExchange& exchange) { return router.Handle(exchange); });
  return Ask(*server, first_line + " HTTP/1.1\r\nConnection: close\r\n" + headers + "\r\n");
}

TEST(Router, FindsByMethodAndPathBehindThePrefix) {
  EXPECT_TRUE(Has(AskRouter({}, "GET /thing"), "GET /thing"));
  EXPECT_TRUE(Has(AskRouter({}, "HEAD /thing"), "200 OK"));
  EXPECT_TRUE(Has(AskRouter({}, "GET /none"), "404 Not Found"));
  const std::string wrong = AskRouter({}, "DELETE /thing");
  EXPECT_TRUE(Has(wrong, "405 Method Not Allowed")) << wrong;
  EXPECT_TRUE(Has(wrong, "Allow: GET, POST")) << wrong;
  RouterOptions prefixed;
  prefixed.prefix = "/llm/";
  EXPECT_TRUE(Has(AskRouter(prefixed, "GET /llm/thing"), "200 OK"));
  EXPECT_TRUE(Has(AskRouter(prefixed, "GET /thing"), "404"));
  EXPECT_TRUE(Has(AskRouter(prefixed, "GET /llmthing"), "404"));
}

TEST(Router, WantsAKeyWhereThereIsOne) {
  RouterOptions options;
  options.api_keys = {"first", "second"};
  EXPECT_TRUE(Has(AskRouter(options, "GET /thing"), "401 Unauthorized"));
  EXPECT_TRUE(Has(AskRouter(options, "GET /thing", "Authorization: Bearer third\r\n"), "401"));
  EXPECT_TRUE(Has(AskRouter(options, "GET /thing", "Authorization: Bearer secon\r\n"), "401"));
  EXPECT_TRUE(Has(AskRouter(options, "GET /thing", "Authorization: Bearer second\r\n"), "200"));
  EXPECT_TRUE(Has(AskRouter(options, "GET /thing", "x-api-key: first\r\n"), "200"));
  EXPECT_TRUE(Has(AskRouter(options, "GET /health"), "200"));
}

TEST(Router, TellsPagesOfOtherOriginsWhatTheyMay) {
  RouterOptions options;
  EXPECT_FALSE(Has(AskRouter(options, "GET /thing", "Origin: http://a\r\n"), "Access-Control"));
  options.cors_origins = {"http://a"};
  const std::string allowed = AskRouter(options, "GET /thing", "Origin: http://a\r\n");
  EXPECT_TRUE(Has(allowed, "Access-Control-Allow-Origin: http://a\r\n")) << allowed;
  EXPECT_FALSE(Has(AskRouter(options, "GET /thing", "Origin: http://b\r\n"), "Allow-Origin"));
  options.cors_origins = {"*"};
  const std::string asked = AskRouter(options, "OPTIONS /thing", "Origin: http://b\r\n");
  EXPECT_TRUE(asked.starts_with("HTTP/1.1 204 ")) << asked;
  EXPECT_TRUE(Has(asked, "Access-Control-Allow-Origin: *\r\n")) << asked;
  EXPECT_TRUE(Has(asked, "Access-Control-Allow-Methods: GET, POST\r\n")) << asked;
}

TEST(EqualInConstantTime, Compares) {
  EXPECT_TRUE(EqualInConstantTime("abc", "abc"));
  EXPECT_FALSE(EqualInConstantTime("abc", "abd"));
  EXPECT_FALSE(EqualInConstantTime("", "abd"));
}

TEST(PercentDecoded, LeavesWhatIsNoCode) {
  EXPECT_EQ(PercentDecoded("/a%20b%2Fc%zz%4"), "/a b/c%zz%4");
}

}  // namespace
}  // namespace lucid::server
