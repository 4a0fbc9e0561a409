#include "server/http_session.h"

#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <cctype>
#include <optional>
#include <utility>

#include "base/log.h"

namespace lucid::server {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using namespace asio::experimental::awaitable_operators;  // NOLINT: || of awaitables

constexpr unsigned char kTlsAlert = 21;  // content type of a record, RFC 8446, section 5.1

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

// Why a message could not be read, as an answer; nothing where the connection is simply over.
std::optional<HttpResponse> RefusalOf(const error_code& error, const HttpOptions& options) {
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return ErrorResponse(431, fmt::format("the headers are longer than the {} bytes allowed",
                                          options.max_header_bytes));
  }
  if (error == http::error::body_limit) {
    return ErrorResponse(
        413, fmt::format("the body is longer than the {} bytes allowed", options.max_body_bytes));
  }
  if (error == beast::error::timeout) return ErrorResponse(408, "the request came too slowly");
  if (error == http::error::end_of_stream || error == http::error::partial_message ||
      error.category() != make_error_code(http::error::bad_method).category()) {
    return std::nullopt;
  }
  return ErrorResponse(400, "this is no valid HTTP request: " + error.message());
}

// In a set while it lives.
class Listed {
 public:
  Listed(std::set<PlainStream*>& set, PlainStream* stream) : set_(set), stream_(stream) {
    set_.insert(stream_);
  }
  ~Listed() { set_.erase(stream_); }
  Listed(const Listed&) = delete;
  Listed& operator=(const Listed&) = delete;

 private:
  std::set<PlainStream*>& set_;
  PlainStream* stream_;
};

template <typename Stream>
class Session final : public HttpExchange {
 public:
  Session(Stream& stream, ServerState& state)
      : stream_(stream), state_(state), buffer_(state.options.max_header_bytes + 4096) {}

  const HttpRequest& request() const override { return request_; }
  int status() const override { return status_; }
  HttpHeaders& notes() override { return notes_; }
  void AddHeader(std::string name, std::string value) override {
    added_headers_.emplace_back(std::move(name), std::move(value));
  }

  // Reads and answers until the connection is over.
  asio::awaitable<void> Run() {
    while (!state_.stopping) {
      // GCC 12 makes wrong code of a co_await within a condition.
      const bool read = co_await ReadRequest();
      if (!read) break;
      status_ = 0;
      added_headers_.clear();
      notes_.clear();
      co_await (Answer() || ClientGone());
      if (gone_ || status_ == 0 || !keep_alive_) break;
    }
    if (!gone_) co_await Close();
  }

  asio::awaitable<void> Send(HttpResponse response) override {
    status_ = response.status;
    http::response<http::string_body> message(static_cast<http::status>(response.status), version_);
    message.set(http::field::content_type, response.content_type);
    for (const auto& [name, value] : response.headers) message.set(name, value);
    for (const auto& [name, value] : added_headers_) message.set(name, value);
    message.body() = std::move(response.body);
    message.keep_alive(keep_alive_ && !state_.stopping);
    message.prepare_payload();
    keep_alive_ = message.keep_alive();
    if (request_.method == "HEAD") {
      // As the answer to a GET, without its body.
      http::response_serializer<http::string_body> serializer(message);
      serializer.split(true);
      Expire(state_.options.write_timeout);
      co_await http::async_write_header(stream_, serializer, asio::use_awaitable);
      co_return;
    }
    Expire(state_.options.write_timeout);
    co_await http::async_write(stream_, message, asio::use_awaitable);
  }

  asio::awaitable<void> BeginStream(std::string_view content_type) override {
    status_ = 200;
    http::response<http::empty_body> message(http::status::ok, version_);
    message.set(http::field::content_type, content_type);
    message.set(http::field::cache_control, "no-cache");
    message.set("X-Accel-Buffering", "no");  // nginx passes events on as they come
    for (const auto& [name, value] : added_headers_) message.set(name, value);
    chunked_ = version_ >= 11;
    if (chunked_) {
      message.chunked(true);
    } else {
      keep_alive_ = false;  // the end of the connection is the end of the answer
    }
    message.keep_alive(keep_alive_ && !state_.stopping);
    keep_alive_ = message.keep_alive();
    http::response_serializer<http::empty_body> serializer(message);
    Expire(state_.options.write_timeout);
    co_await http::async_write_header(stream_, serializer, asio::use_awaitable);
  }

  asio::awaitable<void> Write(std::string data) override {
    if (data.empty()) co_return;
    Expire(state_.options.write_timeout);
    if (chunked_) {
      co_await asio::async_write(stream_, http::make_chunk(asio::buffer(data)),
                                 asio::use_awaitable);
    } else {
      co_await asio::async_write(stream_, asio::buffer(data), asio::use_awaitable);
    }
  }

  asio::awaitable<void> EndStream() override {
    if (!chunked_) co_return;
    Expire(state_.options.write_timeout);
    co_await asio::async_write(stream_, http::make_chunk_last(), asio::use_awaitable);
  }

 private:
  PlainStream& lowest() { return beast::get_lowest_layer(stream_); }
  void Expire(std::chrono::milliseconds after) { lowest().expires_after(after); }

  // False when there is none: the client or the server has ended the connection, or it was refused.
  asio::awaitable<bool> ReadRequest() {
    http::request_parser<http::string_body> parser;
    parser.header_limit(state_.options.max_header_bytes);
    parser.body_limit(state_.options.max_body_bytes);
    error_code error;
    auto token = asio::redirect_error(asio::use_awaitable, error);
    if (buffer_.size() == 0) {
      const Listed idle(state_.idle, &lowest());
      Expire(state_.options.idle_timeout);
      const size_t n = co_await stream_.async_read_some(buffer_.prepare(4096), token);
      buffer_.commit(n);
      if (error) co_return false;
    }
    lowest().expires_never();
    co_await (ReadMessage(parser, error) || RequestTimeout(error));
    if (error) {
      co_await Refuse(error);
      co_return false;
    }
    TakeRequest(parser.release());
    co_return true;
  }

  asio::awaitable<void> ReadMessage(http::request_parser<http::string_body>& parser,
                                    error_code& result) {
    error_code error;
    auto token = asio::redirect_error(asio::use_awaitable, error);
    co_await http::async_read_header(stream_, buffer_, parser, token);
    if (!error && Lower(parser.get()[http::field::expect]) == "100-continue") {
      const http::response<http::empty_body> go_on(http::status::continue_, 11);
      http::response_serializer<http::empty_body> serializer(go_on);
      co_await http::async_write_header(stream_, serializer, token);
    }
    if (!error) co_await http::async_read(stream_, buffer_, parser, token);
    if (result != beast::error::timeout) result = error;
  }

  // A timer of the stream itself would close it, and no answer could be sent.
  asio::awaitable<void> RequestTimeout(error_code& result) {
    asio::steady_timer timer(co_await asio::this_coro::executor, state_.options.request_timeout);
    error_code error;
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, error));
    if (!error) result = beast::error::timeout;
  }

  asio::awaitable<void> Refuse(const error_code& error) {
    std::optional<HttpResponse> refusal = RefusalOf(error, state_.options);
    if (!refusal) co_return;
    keep_alive_ = false;
    try {
      co_await Send(*std::move(refusal));
    } catch (const boost::system::system_error&) {
      gone_ = true;
    }
  }

  void TakeRequest(http::request<http::string_body> message) {
    request_ = {};
    version_ = message.version();
    keep_alive_ = message.keep_alive();
    request_.method = std::string(message.method_string());
    const std::string target(message.target());
    const size_t mark = target.find('?');
    request_.path = PercentDecoded(target.substr(0, mark));
    if (mark != target.npos) request_.query = target.substr(mark + 1);
    for (const auto& field : message) {
      request_.headers.emplace_back(Lower(field.name_string()), std::string(field.value()));
    }
    request_.body = std::move(message.body());
  }

  // Never throws: what a handler lets pass ends the connection, or is answered with 500.
  asio::awaitable<void> Answer() {
    std::string fault;
    try {
      co_await state_.handler(*this);
      co_return;
    } catch (const boost::system::system_error& error) {
      gone_ = true;
      co_return;
    } catch (const std::exception& error) {
      fault = error.what();
    }
    Log().error("{} {}: {}", request_.method, request_.path, fault);
    keep_alive_ = false;
    if (status_ != 0) co_return;
    try {
      co_await Send(ErrorResponse(500, "the server failed at this request; its log says how"));
    } catch (const boost::system::system_error&) {
      gone_ = true;
    }
  }

  // Comes back when the client has closed its end while a request is being answered.
  asio::awaitable<void> ClientGone() {
    auto& socket = lowest().socket();
    while (true) {
      error_code error;
      co_await socket.async_wait(asio::socket_base::wait_read,
                                 asio::redirect_error(asio::use_awaitable, error));
      // Answered meanwhile, or cut off by the server.
      if (error == asio::error::operation_aborted) co_return;
      unsigned char first = 0;
      const ssize_t n = ::recv(socket.native_handle(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
      const bool alert = kTls && n == 1 && first == kTlsAlert;
      if (error || n == 0 || alert || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        gone_ = true;
        co_return;
      }
      if (n == 1) {  // the next request is there already; it waits for its turn
        asio::steady_timer never(co_await asio::this_coro::executor,
                                 asio::steady_timer::time_point::max());
        co_await never.async_wait(asio::use_awaitable);
      }
    }
  }

  // What the client still sends is read for a moment: closing at once would lose it the answer.
  asio::awaitable<void> Close() {
    error_code error;
    Expire(std::chrono::seconds(2));
    if constexpr (kTls) {
      co_await stream_.async_shutdown(asio::redirect_error(asio::use_awaitable, error));
    }
    lowest().socket().shutdown(asio::socket_base::shutdown_send, error);
    char rest[4096];
    for (int64_t left = 1 << 20; left > 0 && !error;) {
      left -= static_cast<int64_t>(co_await lowest().async_read_some(
          asio::buffer(rest), asio::redirect_error(asio::use_awaitable, error)));
    }
    lowest().close();
  }

  static constexpr bool kTls = !std::is_same_v<Stream, PlainStream>;

  Stream& stream_;
  ServerState& state_;
  beast::flat_buffer buffer_;
  HttpRequest request_;
  HttpHeaders added_headers_;
  HttpHeaders notes_;
  unsigned version_ = 11;
  bool keep_alive_ = true;
  int status_ = 0;
  bool chunked_ = false;
  bool gone_ = false;  // the client has closed, or nothing can be sent any more
};

}  // namespace

asio::awaitable<void> ServeConnection(PlainStream stream, asio::ssl::context* tls,
                                      ServerState& state) {
  if (tls == nullptr) {
    const Listed listed(state.open, &stream);
    Session<PlainStream> session(stream, state);
    co_await session.Run();
    co_return;
  }
  beast::ssl_stream<PlainStream> secure(std::move(stream), *tls);
  PlainStream& lowest = beast::get_lowest_layer(secure);
  const Listed listed(state.open, &lowest);
  lowest.expires_after(state.options.request_timeout);
  error_code error;
  co_await secure.async_handshake(asio::ssl::stream_base::server,
                                  asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return;
  Session<beast::ssl_stream<PlainStream>> session(secure, state);
  co_await session.Run();
}

}  // namespace lucid::server
