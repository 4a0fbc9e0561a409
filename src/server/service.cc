#include "server/service.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "engine/engine.h"
#include "engine/version.h"
#include "server/api.h"
#include "server/worker_pool.h"

namespace lucid::server {
namespace {

using Json = nlohmann::ordered_json;
using Access = Router::Access;

// Threads for parsing, templates and tokenisers; the engine has the others.
constexpr int kWorkers = 2;

// Writes the line of a request to the log when its answer is over, however that came.
class RequestLine {
 public:
  // `file` null: none.
  RequestLine(HttpExchange& exchange, std::FILE* file) : exchange_(exchange), file_(file) {}
  RequestLine(const RequestLine&) = delete;
  RequestLine& operator=(const RequestLine&) = delete;
  ~RequestLine() {
    if (file_ == nullptr) return;
    const HttpRequest& request = exchange_.request();
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    Json line = {{"time", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(time_))},
                 {"method", request.method},
                 {"path", request.path},
                 {"status", exchange_.status()},
                 {"seconds", seconds}};
    for (const auto& [name, value] : exchange_.notes()) line[name] = Json::parse(value);
    // OpenTelemetry's headers (W3C Trace Context), so that a trace leads here.
    for (const char* header : {"traceparent", "tracestate", "x-request-id"}) {
      if (!request.Header(header).empty()) line[header] = request.Header(header);
    }
    fmt::print(file_, "{}\n", Dump(line));
    std::fflush(file_);
  }

 private:
  HttpExchange& exchange_;
  std::FILE* file_;
  std::time_t time_ = std::time(nullptr);
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// A body in, JSON out, off the server's thread.
using Answer = ApiResult<Json> (*)(const Api&, const Json&);
asio::awaitable<void> AnswerJson(const Api& api, Answer answer, HttpExchange& exchange) {
  const auto work = [&]() -> HttpResponse {
    const ApiResult<Json> body = ParseBody(exchange.request());
    if (!body) return JsonError(body.error());
    const ApiResult<Json> json = answer(api, *body);
    return json ? JsonResponse(*json) : JsonError(json.error());
  };
  HttpResponse response = co_await OnWorker(api.workers, work);
  co_await exchange.Send(std::move(response));
}

HttpHandler SendsJson(std::function<Json()> make) {
  return [make = std::move(make)](HttpExchange& exchange) -> asio::awaitable<void> {
    HttpResponse response = JsonResponse(make());
    co_await exchange.Send(std::move(response));
  };
}

Router MakeRouter(const RouterOptions& options, const Api& api) {
  Router router(options);
  const auto post = [&](std::initializer_list<const char*> paths, const HttpHandler& handler) {
    for (const char* path : paths) router.Add("POST", path, handler);
  };
  const auto get = [&](std::initializer_list<const char*> paths, const HttpHandler& handler,
                       Access access = Access::kKey) {
    for (const char* path : paths) router.Add("GET", path, handler, access);
  };
  post({"/v1/chat/completions", "/chat/completions"}, [&api](HttpExchange& exchange) {
    return AnswerCompletion(api, ApiEndpoint::kChat, exchange);
  });
  post({"/v1/completions", "/completions"}, [&api](HttpExchange& exchange) {
    return AnswerCompletion(api, ApiEndpoint::kCompletion, exchange);
  });
  post({"/tokenize"},
       [&api](HttpExchange& exchange) { return AnswerJson(api, Tokenize, exchange); });
  post({"/detokenize"},
       [&api](HttpExchange& exchange) { return AnswerJson(api, Detokenize, exchange); });
  post({"/apply-template"},
       [&api](HttpExchange& exchange) { return AnswerJson(api, ApplyTemplate, exchange); });
  get({"/v1/models", "/models"}, SendsJson([&api] { return ModelList(api); }));
  get({"/props"}, SendsJson([&api] { return Properties(api); }));
  get({"/health", "/v1/health"}, SendsJson([] { return Json{{"status", "ok"}}; }), Access::kOpen);
  router.Add("GET", "/metrics", [&api](HttpExchange& exchange) -> asio::awaitable<void> {
    HttpResponse response;
    response.body = api.metrics.Text();
    response.content_type = "text/plain; version=0.0.4; charset=utf-8";
    co_await exchange.Send(std::move(response));
  });
  get({"/version"}, SendsJson([] { return Json{{"version", Version()}}; }));
  return router;
}

}  // namespace

struct Service::Impl {
  explicit Impl(ServiceOptions the_options) : options(std::move(the_options)) {}

  Status Load();
  asio::awaitable<void> Handle(HttpExchange& exchange);

  ServiceOptions options;
  std::unique_ptr<HttpServer> http;
  std::optional<ChatTemplate> own_template;
  std::unique_ptr<Engine> engine;
  asio::thread_pool workers{kWorkers};
  std::optional<Metrics> metrics;
  LazyIdentity identity;
  std::optional<Api> api;
  std::optional<Router> router;
  std::atomic<bool> ready{false};  // engine, api and router are there
};

Status Service::Impl::Load() {
  LUCID_ASSIGN_OR_RETURN(engine, Engine::Load(options.engine));
  const Result<const ChatTemplate*> chat_template =
      own_template ? Result<const ChatTemplate*>(&*own_template) : engine->chat_template();
  metrics.emplace(*engine, options.names.front());
  api.emplace(Api{.engine = *engine,
                  .names = options.names,
                  .context = {.tokenizer = engine->tokenizer(),
                              .chat_template = chat_template,
                              .defaults = options.defaults,
                              .serving = true},
                  .workers = workers,
                  .metrics = *metrics,
                  .identity = identity,
                  .started = std::time(nullptr)});
  router.emplace(MakeRouter(options.router, *api));
  engine->Start();
  ready = true;
  return {};
}

asio::awaitable<void> Service::Impl::Handle(HttpExchange& exchange) {
  if (!ready) {
    HttpResponse response = ErrorResponse(503, "the model is being loaded", "loading");
    response.headers.emplace_back("Retry-After", "1");
    co_await exchange.Send(std::move(response));
    co_return;
  }
  const RequestLine line(exchange, options.log_requests ? stderr : nullptr);
  co_await router->Handle(exchange);
  if (exchange.status() >= 400) metrics->Refused(exchange.status());
}

Service::Service(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Service::~Service() = default;

Result<std::unique_ptr<Service>> Service::Listen(ServiceOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  Impl* const self = impl.get();
  if (!self->options.chat_template.empty()) {
    LUCID_ASSIGN_OR_RETURN(self->own_template, ChatTemplate::Parse(self->options.chat_template));
  }
  LUCID_ASSIGN_OR_RETURN(self->http,
                         HttpServer::Listen(self->options.http, [self](HttpExchange& exchange) {
                           return self->Handle(exchange);
                         }));
  return std::unique_ptr<Service>(new Service(std::move(impl)));
}

const std::string& Service::url() const {
  return impl_->http->url();
}

Status Service::Run(const std::function<void()>& ready) {
  impl_->http->StopOnSignals();
  std::thread connections([this] { impl_->http->Run(); });
  const Status loaded = impl_->Load();
  if (loaded) {
    ready();
  } else {
    impl_->http->Shutdown();
  }
  connections.join();
  impl_->workers.join();
  if (impl_->engine != nullptr) impl_->engine->Stop();
  return loaded;
}

void Service::Shutdown() {
  impl_->http->Shutdown();
}

}  // namespace lucid::server
