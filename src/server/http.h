// HTTP as the handlers of the server see it: a request that was read whole, and an exchange to
// answer it through. http_server.h accepts and reads; router.h finds the handler.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lucid::server {

namespace asio = boost::asio;

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;   // "GET"
  std::string path;     // percent-decoded, without the query
  std::string query;    // behind the "?", as it came
  HttpHeaders headers;  // names in lower case
  std::string body;

  // The value of the first header of that name (in lower case); "" if there is none.
  std::string_view Header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string body = {};
  std::string content_type = "application/json";
  HttpHeaders headers = {};
};

// One request and its answer. Every member that returns an awaitable throws
// boost::system::system_error once the client has gone or takes no more; whoever answers just lets
// it pass.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  virtual const HttpRequest& request() const = 0;
  virtual int status() const = 0;  // that was sent; 0: nothing was yet
  // What the log says of the request beside its path and status: names, and values as JSON.
  virtual HttpHeaders& notes() = 0;
  // Sent with the answer, whatever that will be.
  virtual void AddHeader(std::string name, std::string value) = 0;

  virtual asio::awaitable<void> Send(HttpResponse response) = 0;

  // An answer whose length is not known: headers, then pieces, each sent at once, then the end.
  virtual asio::awaitable<void> BeginStream(std::string_view content_type) = 0;
  virtual asio::awaitable<void> Write(std::string data) = 0;
  virtual asio::awaitable<void> EndStream() = 0;
};

using HttpHandler = std::function<asio::awaitable<void>(HttpExchange&)>;

// "%41+b" -> "A+b"; bytes that are no percent code stay.
std::string PercentDecoded(std::string_view text);

// {"error": {...}} as the OpenAI API has it; `type` "invalid_request_error" below 500.
HttpResponse ErrorResponse(int status, std::string_view message, std::string_view code = {});

}  // namespace lucid::server
