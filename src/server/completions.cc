// POST /v1/chat/completions and /v1/completions: a body becomes requests to the engine, their
// outputs one answer or a stream of events.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <random>
#include <utility>
#include <vector>

#include "engine/openai_response.h"
#include "server/api.h"
#include "server/async_stream.h"
#include "server/worker_pool.h"

namespace lucid::server {
namespace {

using Json = nlohmann::ordered_json;

std::string Event(const Json& json) {
  return "data: " + Dump(json) + "\n\n";
}

// Seeds that nobody gave are told, so that an answer can be had again.
uint64_t FreshSeed() {
  thread_local std::random_device device;
  return (uint64_t{device()} << 32 | device()) >> 1;  // positive as a signed number too
}

ApiResult<ApiRequest> ReadRequest(const Api& api, ApiEndpoint endpoint,
                                  const HttpRequest& request) {
  ApiResult<Json> body = ParseBody(request);
  if (!body) return tl::unexpected<ApiError>(body.error());
  ApiResult<ApiRequest> parsed = ParseApiRequest(endpoint, *body, api.context);
  if (!parsed) return parsed;
  const ApiResult<void> served = CheckModel(api, parsed->model);
  if (!served) return tl::unexpected<ApiError>(served.error());
  if (!parsed->seed_given) parsed->request.sampling.seed = FreshSeed();
  return parsed;
}

// A request to the engine and the times of its outputs.
struct Running {
  AsyncStream stream;
  Metrics::Request times;
};

ApiResult<std::vector<Running>> SubmitAll(const Api& api, const CompletionBuilder& builder,
                                          const asio::any_io_executor& executor) {
  std::vector<Running> running;
  for (int64_t i = 0; i < builder.n_prompts(); ++i) {
    Metrics::Request times(api.metrics);
    Result<Stream> stream = api.engine.Submit(builder.RequestOf(i));
    if (!stream) return tl::unexpected<ApiError>({stream.error()});
    running.push_back({AsyncStream(*std::move(stream), executor), std::move(times)});
  }
  return running;
}

// What an answer took, and receipts to have it again.
Json Explanation(const Api& api, const ApiRequest& request, const CompletionBuilder& builder) {
  const ChatTemplate* chat_template =
      api.context.chat_template ? *api.context.chat_template : nullptr;
  const ModelIdentity& identity = api.identity.Get(api.engine, chat_template);
  Json receipts = Json::array();
  Json prompts = Json::array();
  for (int64_t i = 0; i < builder.n_prompts(); ++i) {
    const RequestStats& stats = builder.Stats(i);
    prompts.push_back({{"prompt_tokens", stats.prompt_tokens},
                       {"cached_tokens", stats.cached_tokens},
                       {"computed_tokens", stats.prompt_tokens - stats.cached_tokens},
                       {"evicted_tokens", stats.eviction.evicted_tokens},
                       {"queue_seconds", stats.queue_seconds},
                       {"prefill_seconds", stats.prefill_seconds},
                       {"decode_seconds", stats.decode_seconds},
                       {"preemptions", stats.preemptions}});
    receipts.push_back(MakeReceipt(api.engine, identity, request.RequestOf(i), builder.Replies(i)));
  }
  const Result<SamplerChain> chain = SamplerChain::Create(request.request.sampling);
  Json explanation = {
      {"prompt_hash", request.prompt_text.empty() ? Json() : Json(TextHash(request.prompt_text))},
      {"template_hash", receipts[0]["template_hash"]},
      {"sampler", chain ? chain->Describe() : ""},
      {"seed", request.request.sampling.seed},
      {"prompts", std::move(prompts)}};
  if (receipts.size() == 1) {
    explanation["receipt"] = std::move(receipts[0]);
  } else {
    explanation["receipts"] = std::move(receipts);
  }
  return explanation;
}

asio::awaitable<Json> ExplanationOf(const Api& api, const ApiRequest& request,
                                    const CompletionBuilder& builder) {
  const auto make = [&] { return Explanation(api, request, builder); };
  co_return co_await OnWorker(api.workers, make);
}

asio::awaitable<void> SendWhole(const Api& api, const ApiRequest& request,
                                CompletionBuilder& builder, std::vector<Running>& running,
                                HttpExchange& exchange) {
  for (size_t i = 0; i < running.size(); ++i) {
    while (true) {
      const std::optional<TokenOutput> output = co_await running[i].stream.Next();
      if (!output) break;
      running[i].times.Note(*output);
      builder.Add(*output, static_cast<int64_t>(i));
    }
  }
  HttpResponse response;
  if (builder.error()) {
    response = JsonError({*builder.error()});
  } else {
    Json body = builder.Body();
    if (request.explain) body["lucid"] = co_await ExplanationOf(api, request, builder);
    response = JsonResponse(body);
  }
  co_await exchange.Send(std::move(response));
}

// What is there by now goes out in one piece. One prompt after the other: the engine works on all.
asio::awaitable<void> SendEvents(const Api& api, const ApiRequest& request,
                                 CompletionBuilder& builder, std::vector<Running>& running,
                                 HttpExchange& exchange) {
  co_await exchange.BeginStream("text/event-stream");
  for (size_t i = 0; i < running.size() && !builder.error(); ++i) {
    const auto prompt = static_cast<int64_t>(i);
    while (!builder.error()) {
      std::optional<TokenOutput> output = co_await running[i].stream.Next();
      if (!output) break;
      std::string events;
      for (; output; output = running[i].stream.TryNext()) {
        running[i].times.Note(*output);
        builder.Add(*output, prompt);
        if (builder.error()) break;
        for (const Json& chunk : builder.Chunks(*output, prompt)) events += Event(chunk);
      }
      co_await exchange.Write(std::move(events));
    }
  }
  std::string end;
  if (builder.error()) {
    end = Event(ErrorBody({*builder.error()}));
  } else {
    if (request.explain) {
      Json piece = builder.EmptyChunk();
      piece["lucid"] = co_await ExplanationOf(api, request, builder);
      end = Event(piece);
    }
    if (request.include_usage) end += Event(builder.UsageChunk());
  }
  end += "data: [DONE]\n\n";
  co_await exchange.Write(std::move(end));
  co_await exchange.EndStream();
}

}  // namespace

asio::awaitable<void> AnswerCompletion(const Api& api, ApiEndpoint endpoint,
                                       HttpExchange& exchange) {
  const auto read = [&] { return ReadRequest(api, endpoint, exchange.request()); };
  ApiResult<ApiRequest> request = co_await OnWorker(api.workers, read);
  if (!request) {
    HttpResponse response = JsonError(request.error());
    co_await exchange.Send(std::move(response));
    co_return;
  }
  const Tokenizer* tokenizer = api.context.tokenizer ? *api.context.tokenizer : nullptr;
  CompletionBuilder builder(*request, tokenizer, api.name());
  exchange.notes().emplace_back("id", Dump(builder.id()));
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  ApiResult<std::vector<Running>> running = SubmitAll(api, builder, executor);
  if (!running) {
    HttpResponse response = JsonError(running.error());
    co_await exchange.Send(std::move(response));
    co_return;
  }
  if (request->stream) {
    co_await SendEvents(api, *request, builder, *running, exchange);
  } else {
    co_await SendWhole(api, *request, builder, *running, exchange);
  }
  exchange.notes().emplace_back("prompt_tokens", Dump(builder.prompt_tokens()));
  exchange.notes().emplace_back("cached_tokens", Dump(builder.cached_tokens()));
  exchange.notes().emplace_back("completion_tokens", Dump(builder.generated_tokens()));
}

}  // namespace lucid::server
