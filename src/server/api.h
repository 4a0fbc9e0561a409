// What the endpoints share: the engine with its names and defaults, threads for what takes long,
// and the forms of errors. routes.h registers the endpoints; each group has a file of its own.
#pragma once

#include <boost/asio/thread_pool.hpp>
#include <ctime>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/openai_request.h"
#include "engine/receipt.h"
#include "server/http.h"
#include "server/metrics.h"

namespace lucid::server {

// Hashes of the model, made when somebody first asks, which takes seconds for a large one.
class LazyIdentity {
 public:
  const ModelIdentity& Get(const Engine& engine, const ChatTemplate* chat_template) {
    std::call_once(once_, [&] { identity_ = IdentityOf(engine, chat_template); });
    return identity_;
  }

 private:
  std::once_flag once_;
  ModelIdentity identity_;
};

struct Api {
  Engine& engine;
  std::vector<std::string> names;  // that a body's "model" may have; the first is told to clients
  ApiContext context;              // of bodies
  asio::thread_pool& workers;
  Metrics& metrics;
  LazyIdentity& identity;
  std::time_t started = 0;

  const std::string& name() const { return names.front(); }
};

// JSON text in which every string is valid UTF-8.
std::string Dump(const nlohmann::ordered_json& json);
HttpResponse JsonResponse(const nlohmann::ordered_json& json);
HttpResponse JsonError(const ApiError& error);

// The body as a JSON object. Its error says what is wrong with it.
ApiResult<nlohmann::ordered_json> ParseBody(const HttpRequest& request);
// Whether the model that a body names is the one that is served; "" is.
ApiResult<void> CheckModel(const Api& api, const std::string& model);

// POST /v1/chat/completions and /v1/completions.
asio::awaitable<void> AnswerCompletion(const Api& api, ApiEndpoint endpoint,
                                       HttpExchange& exchange);

// Bodies and answers that need no engine at work (tokens.cc, information.cc).
ApiResult<nlohmann::ordered_json> Tokenize(const Api& api, const nlohmann::ordered_json& body);
ApiResult<nlohmann::ordered_json> Detokenize(const Api& api, const nlohmann::ordered_json& body);
ApiResult<nlohmann::ordered_json> ApplyTemplate(const Api& api, const nlohmann::ordered_json& body);
nlohmann::ordered_json ModelList(const Api& api);
nlohmann::ordered_json Properties(const Api& api);

}  // namespace lucid::server
