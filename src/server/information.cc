// GET /v1/models, /props: what is served, and with which settings.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/version.h"
#include "server/api.h"

namespace lucid::server {

using Json = nlohmann::ordered_json;

Json ModelList(const Api& api) {
  Json list = Json::array();
  const ModelConfig& config = api.engine.model().config;
  for (const std::string& name : api.names) {
    list.push_back({{"id", name},
                    {"object", "model"},
                    {"created", api.started},
                    {"owned_by", "lucid"},
                    {"max_model_len", api.engine.context()},
                    {"meta",
                     {{"vocab_size", config.vocab_size},
                      {"n_layers", config.n_layers},
                      {"context_length", config.context_length}}}});
  }
  return {{"object", "list"}, {"data", std::move(list)}};
}

Json Properties(const Api& api) {
  const EngineConfig& config = api.engine.config();
  const SamplerParams& sampling = api.context.defaults.sampling;
  const EngineStats stats = api.engine.Stats();
  const bool has_template = api.context.chat_template.has_value();
  return {{"model_path", config.model},
          {"model_alias", api.name()},
          {"total_slots", config.n_parallel},
          {"chat_template", has_template ? Json((*api.context.chat_template)->source()) : Json()},
          {"default_generation_settings",
           {{"n_ctx", api.engine.context()},
            {"max_tokens", api.context.defaults.max_tokens},
            {"temperature", sampling.temperature},
            {"top_k", sampling.top_k},
            {"top_p", sampling.top_p},
            {"min_p", sampling.min_p},
            {"typical_p", sampling.typical_p},
            {"repetition_penalty", sampling.repetition_penalty},
            {"frequency_penalty", sampling.frequency_penalty},
            {"presence_penalty", sampling.presence_penalty}}},
          {"requests_running", stats.scheduler.running},
          {"requests_waiting", stats.queued + stats.scheduler.waiting},
          {"isa", api.engine.runner().isa()},
          {"numerics", Name(config.numerics)},
          {"threads", api.engine.runner().n_threads()},
          {"kv_capacity_tokens", api.engine.capacity()},
          {"build_info", fmt::format("lucid {}", Version())}};
}

}  // namespace lucid::server
