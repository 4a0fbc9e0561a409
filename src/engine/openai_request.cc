#include "engine/openai_request.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/chat_prompt.h"

namespace lucid {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostAlternatives = 20;  // of logprobs and top_logprobs, as OpenAI and vLLM
constexpr size_t kMostPrompts = 2048;      // of a completion, as OpenAI

// What a value is called in an error: its beginning, as JSON.
std::string Shown(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 60) text = "this " + std::string(value.type_name());
  return text;
}

// The state of one body's reading; the first error stays.
struct Reader {
  explicit Reader(const ApiContext& the_context) : context(the_context) {}

  const ApiContext& context;
  ApiRequest out = {};
  std::optional<ApiError> error = {};
  std::string field = {};  // being read

  const Json* messages = nullptr;
  const Json* prompt = nullptr;
  ChatTemplateOptions chat = {};
  bool beams = false;
  double length_penalty = 1;
  std::string sampling_field = {};  // one that was given and means nothing to beams
  std::string max_tokens_field = {};
  std::string penalty_field = {};  // length_penalty, if given
  bool logprobs = false;
  bool stream_options = false;
  int top_logprobs = -1;

  Request& request() { return out.request; }
  SamplerParams& sampling() { return out.request.sampling; }

  void Fail(std::string message, std::string code = {}) {
    if (!error) {
      error =
          ApiError{Error{ErrorCode::kInvalidArgument, std::move(message)}, field, std::move(code)};
    }
  }
  void WrongType(const Json& value, std::string_view wanted) {
    Fail(fmt::format("{} is {}, must be {}", field, Shown(value), wanted), "invalid_type");
  }

  void Read(const Json& value, bool& into) {
    if (!value.is_boolean()) return WrongType(value, "true or false");
    into = value.get<bool>();
  }
  void Read(const Json& value, std::string& into) {
    if (!value.is_string()) return WrongType(value, "a string");
    into = value.get<std::string>();
  }
  template <typename Real>
  void ReadReal(const Json& value, Real& into) {
    if (!value.is_number() ||
        std::abs(value.get<double>()) > double{std::numeric_limits<Real>::max()}) {
      return WrongType(value, "a number");
    }
    into = static_cast<Real>(value.get<double>());
  }
  template <typename Whole>
  void ReadWhole(const Json& value, Whole& into, int64_t least, int64_t most) {
    const bool fits = value.is_number_integer() &&
                      (!value.is_number_unsigned() ||
                       value.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()});
    if (!fits || value.get<int64_t>() < least || value.get<int64_t>() > most) {
      return WrongType(value, fmt::format("a whole number from {} to {}", least, most));
    }
    into = static_cast<Whole>(value.get<int64_t>());
  }
};

constexpr int64_t kMostTokens = int64_t{1} << 30;
constexpr int64_t kMostWhole = std::numeric_limits<int32_t>::max();

void ReadMaxTokens(Reader& r, const Json& value) {
  if (!r.max_tokens_field.empty()) {
    return r.Fail("max_tokens and max_completion_tokens are two names of one setting; give one");
  }
  r.max_tokens_field = r.field;
  r.ReadWhole(value, r.request().max_tokens, 0, kMostTokens);
}

void ReadStop(Reader& r, const Json& value) {
  std::vector<std::string>& stops = r.request().stop;
  stops.clear();
  if (value.is_string()) {
    stops.push_back(value.get<std::string>());
    return;
  }
  const bool strings = value.is_array() && std::all_of(value.begin(), value.end(),
                                                       [](const Json& v) { return v.is_string(); });
  if (!strings) return r.WrongType(value, "a string or an array of strings");
  stops = value.get<std::vector<std::string>>();
}

void ReadLogitBias(Reader& r, const Json& value) {
  if (!value.is_object()) return r.WrongType(value, "an object of token ids and numbers");
  for (const auto& [key, bias] : value.items()) {
    int32_t id = 0;
    const auto [end, problem] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (problem != std::errc() || end != key.data() + key.size() || id < 0) {
      return r.Fail(fmt::format("logit_bias: {} is not a token id", Shown(Json(key))));
    }
    if (!bias.is_number() ||
        std::abs(bias.get<double>()) > double{std::numeric_limits<float>::max()}) {
      return r.Fail(fmt::format("logit_bias of token {} is {}, must be a number", id, Shown(bias)));
    }
    r.sampling().logit_bias[id] = static_cast<float>(bias.get<double>());
  }
}

void ReadSeed(Reader& r, const Json& value) {
  int64_t seed = 0;
  r.ReadWhole(value, seed, std::numeric_limits<int64_t>::min(),
              std::numeric_limits<int64_t>::max());
  r.sampling().seed = static_cast<uint64_t>(seed);
  r.out.seed_given = true;
}

void ReadLogprobs(Reader& r, const Json& value) {
  if (r.out.endpoint == ApiEndpoint::kChat) return r.Read(value, r.logprobs);
  r.logprobs = true;
  r.ReadWhole(value, r.top_logprobs, 0, kMostAlternatives);
}

void ReadStream(Reader& r, const Json& value) {
  r.Read(value, r.out.stream);
  if (r.out.stream && !r.context.serving) {
    r.Fail("stream is true, but this answer comes whole", "unsupported_parameter");
  }
}

void ReadStreamOptions(Reader& r, const Json& value) {
  if (!value.is_object()) return r.WrongType(value, "an object");
  r.stream_options = true;
  for (const auto& [name, option] : value.items()) {
    r.field = "stream_options." + name;
    if (name == "include_usage") {
      r.Read(option, r.out.include_usage);
    } else {
      r.Fail(fmt::format("{} is not an option that is supported", r.field), "unknown_parameter");
    }
  }
}

// What only tells clients apart, or asks for what is so anyway.
void ReadLabel(Reader& r, const Json& value) {
  std::string label;
  r.Read(value, label);
}
void ReadMetadata(Reader& r, const Json& value) {
  if (!value.is_object()) r.WrongType(value, "an object of strings");
}
template <bool kOnly>
void ReadOnly(Reader& r, const Json& value) {
  bool given = false;
  r.Read(value, given);
  if (!r.error && given != kOnly) {
    r.Fail(fmt::format("{} is {}, only {} is supported", r.field, given, kOnly),
           "unsupported_parameter");
  }
}
void ReadServiceTier(Reader& r, const Json& value) {
  if (value != "auto" && value != "default") {
    r.Fail(fmt::format("service_tier is {}, only auto and default are supported", Shown(value)),
           "unsupported_parameter");
  }
}
void ReadModalities(Reader& r, const Json& value) {
  if (value != Json::array({"text"})) {
    r.Fail(fmt::format("modalities is {}, only [\"text\"] is supported", Shown(value)),
           "unsupported_parameter");
  }
}
// The template's variable, as gpt-oss and others have it.
void ReadReasoningEffort(Reader& r, const Json& value) {
  std::string effort;
  r.Read(value, effort);
  r.chat.variables["reasoning_effort"] = effort;
}

void ReadResponseFormat(Reader& r, const Json& value) {
  if (!value.is_object() || value.value("type", Json()) != "text") {
    r.Fail(fmt::format("response_format is {}, only {{\"type\": \"text\"}} is supported",
                       Shown(value)),
           "unsupported_parameter");
  }
}

void ReadPolicy(Reader& r, const Json& value) {
  std::string name;
  r.Read(value, name);
  if (r.error) return;
  const std::optional<KvPolicy> policy = KvPolicyFromName(name);
  if (!policy) return r.WrongType(value, "full, window_sink, h2o or snapkv");
  r.request().eviction.policy = *policy;
}

void ReadTemplateKwargs(Reader& r, const Json& value) {
  if (!value.is_object()) return r.WrongType(value, "an object of the template's variables");
  if (value.contains("messages")) return r.Fail("chat_template_kwargs cannot set messages");
  r.chat.variables.update(value);
}

struct Field {
  std::string_view name;
  bool chat, completion;  // where it is known
  bool samples;           // means nothing to a beam search
  void (*read)(Reader& r, const Json& value);
};

constexpr Field kFields[] = {
    {"model", true, true, false, [](Reader& r, const Json& v) { r.Read(v, r.out.model); }},
    {"messages", true, false, false, [](Reader& r, const Json& v) { r.messages = &v; }},
    {"prompt", false, true, false, [](Reader& r, const Json& v) { r.prompt = &v; }},
    {"max_tokens", true, true, false, ReadMaxTokens},
    {"max_completion_tokens", true, true, false, ReadMaxTokens},
    {"temperature", true, true, true,
     [](Reader& r, const Json& v) { r.ReadReal(v, r.sampling().temperature); }},
    {"top_p", true, true, true,
     [](Reader& r, const Json& v) { r.ReadReal(v, r.sampling().top_p); }},
    {"top_k", true, true, true,
     [](Reader& r, const Json& v) { r.ReadWhole(v, r.sampling().top_k, -1, kMostWhole); }},
    {"min_p", true, true, true,
     [](Reader& r, const Json& v) { r.ReadReal(v, r.sampling().min_p); }},
    {"typical_p", true, true, true,
     [](Reader& r, const Json& v) { r.ReadReal(v, r.sampling().typical_p); }},
    {"repetition_penalty", true, true, false,
     [](Reader& r, const Json& v) { r.ReadReal(v, r.sampling().repetition_penalty); }},
    {"frequency_penalty", true, true, false,
     [](Reader& r, const Json& v) { r.ReadReal(v, r.sampling().frequency_penalty); }},
    {"presence_penalty", true, true, false,
     [](Reader& r, const Json& v) { r.ReadReal(v, r.sampling().presence_penalty); }},
    {"logit_bias", true, true, false, ReadLogitBias},
    {"seed", true, true, false, ReadSeed},
    {"stop", true, true, false, ReadStop},
    {"n", true, true, false,
     [](Reader& r, const Json& v) { r.ReadWhole(v, r.request().n, 1, kMostWhole); }},
    {"logprobs", true, true, false, ReadLogprobs},
    {"top_logprobs", true, false, false,
     [](Reader& r, const Json& v) { r.ReadWhole(v, r.top_logprobs, 0, kMostAlternatives); }},
    {"ignore_eos", true, true, false,
     [](Reader& r, const Json& v) { r.Read(v, r.request().ignore_eos); }},
    {"priority", true, true, false,
     [](Reader& r, const Json& v) {
       r.ReadWhole(v, r.request().priority, -kMostWhole, kMostWhole);
     }},
    {"deadline", true, true, false,
     [](Reader& r, const Json& v) { r.ReadReal(v, r.request().deadline_seconds); }},
    {"user", true, true, false, [](Reader& r, const Json& v) { r.Read(v, r.request().client); }},
    {"use_beam_search", true, true, false, [](Reader& r, const Json& v) { r.Read(v, r.beams); }},
    {"length_penalty", true, true, false,
     [](Reader& r, const Json& v) {
       r.penalty_field = r.field;
       r.ReadReal(v, r.length_penalty);
     }},
    {"kv_policy", true, true, false, ReadPolicy},
    {"kv_budget", true, true, false,
     [](Reader& r, const Json& v) { r.ReadWhole(v, r.request().eviction.budget, 0, kMostTokens); }},
    {"kv_audit", true, true, false,
     [](Reader& r, const Json& v) { r.Read(v, r.request().kv_audit); }},
    {"chat_template_kwargs", true, false, false, ReadTemplateKwargs},
    {"add_generation_prompt", true, false, false,
     [](Reader& r, const Json& v) { r.Read(v, r.chat.add_generation_prompt); }},
    {"continue_final_message", true, false, false,
     [](Reader& r, const Json& v) { r.Read(v, r.chat.continue_final_message); }},
    {"response_format", true, false, false, ReadResponseFormat},
    {"stream", true, true, false, ReadStream},
    {"stream_options", true, true, false, ReadStreamOptions},
    {"echo", false, true, false, [](Reader& r, const Json& v) { r.Read(v, r.out.echo); }},
    {"best_of", false, true, true,
     [](Reader& r, const Json& v) { r.ReadWhole(v, r.out.best_of, 1, kMostWhole); }},
    {"explain", true, true, false, [](Reader& r, const Json& v) { r.Read(v, r.out.explain); }},
    {"metadata", true, true, false, ReadMetadata},
    {"store", true, false, false, ReadOnly<false>},
    {"service_tier", true, true, false, ReadServiceTier},
    {"modalities", true, false, false, ReadModalities},
    {"reasoning_effort", true, false, false, ReadReasoningEffort},
    {"prompt_cache_key", true, false, false, ReadLabel},
    {"safety_identifier", true, false, false, ReadLabel},
};

// Members of the OpenAI API, of vLLM and of llama-server that would change an answer, and that
// nothing here obeys.
constexpr std::string_view kUnsupported[] = {"audio",
                                             "function_call",
                                             "functions",
                                             "prediction",
                                             "verbosity",
                                             "web_search_options",
                                             "suffix",
                                             "tools",
                                             "tool_choice",
                                             "parallel_tool_calls",
                                             "min_tokens",
                                             "stop_token_ids",
                                             "include_stop_str_in_output",
                                             "skip_special_tokens",
                                             "prompt_logprobs",
                                             "truncate_prompt_tokens",
                                             "bad_words",
                                             "allowed_token_ids",
                                             "guided_json",
                                             "guided_regex",
                                             "guided_choice",
                                             "guided_grammar",
                                             "structured_outputs",
                                             "grammar",
                                             "json_schema",
                                             "mirostat",
                                             "mirostat_tau",
                                             "mirostat_eta",
                                             "dry_multiplier",
                                             "xtc_probability",
                                             "xtc_threshold",
                                             "dynatemp_range",
                                             "tfs_z",
                                             "cache_prompt",
                                             "id_slot",
                                             "n_predict",
                                             "documents",
                                             "chat_template",
                                             "logits_processors"};

void ReadMember(Reader& r, const std::string& name, const Json& value) {
  r.field = name;
  const bool is_chat = r.out.endpoint == ApiEndpoint::kChat;
  for (const Field& field : kFields) {
    if (field.name != name) continue;
    if (is_chat ? !field.chat : !field.completion) {
      return r.Fail(fmt::format("{} does not belong to {}", name,
                                is_chat ? "/v1/chat/completions" : "/v1/completions"),
                    "unknown_parameter");
    }
    if (value.is_null()) return;
    if (field.samples && r.sampling_field.empty()) r.sampling_field = name;
    return field.read(r, value);
  }
  if (value.is_null()) return;
  const bool known =
      std::find(std::begin(kUnsupported), std::end(kUnsupported), name) != std::end(kUnsupported);
  if (r.context.serving && !known) {
    r.out.ignored.push_back(name);
    return;
  }
  r.Fail(fmt::format("{} is not a parameter that is supported", Shown(Json(name))),
         known ? "unsupported_parameter" : "unknown_parameter");
}

void CombineBestOf(Reader& r) {
  Request& request = r.request();
  if (r.out.best_of == 0) return;
  r.field = "best_of";
  if (r.out.best_of < request.n) {
    r.Fail(fmt::format("best_of is {}, less than n, which is {}", r.out.best_of, request.n));
  }
  if (r.out.best_of == request.n) {
    r.out.best_of = 0;
  } else if (r.out.stream) {
    r.Fail("best_of above n does not go with stream: which replies are best is known at the end");
  } else if (request.n_logprobs < 0) {
    r.out.hide_logprobs = true;
    request.n_logprobs = 0;  // what they are compared by
  }
}

// What the members mean together.
void Combine(Reader& r) {
  Request& request = r.request();
  if (r.logprobs) request.n_logprobs = std::max(r.top_logprobs, 0);
  if (!r.logprobs && r.top_logprobs >= 0) {
    r.field = "top_logprobs";
    r.Fail("top_logprobs needs logprobs to be true");
  }
  if (r.beams) {
    request.beam.width = request.n;
    request.beam.length_penalty = r.length_penalty;
    const bool greedy = r.sampling_field == "temperature" && r.sampling().temperature == 0;
    if (!r.sampling_field.empty() && !greedy) {
      r.field = r.sampling_field;
      r.Fail(fmt::format("{} does not go with use_beam_search, which draws nothing",
                         r.sampling_field));
    }
  } else if (!r.penalty_field.empty()) {
    r.field = r.penalty_field;
    r.Fail("length_penalty needs use_beam_search to be true");
  }
  if (r.stream_options && !r.out.stream) {
    r.field = "stream_options";
    r.Fail("stream_options needs stream to be true");
  }
  CombineBestOf(r);
}

std::vector<TokenId> ReadOnePrompt(Reader& r, const Json& prompt) {
  if (prompt.is_string()) {
    const Result<const Tokenizer*>& tokenizer = r.context.tokenizer;
    if (tokenizer) return (*tokenizer)->Encode(prompt.get_ref<const std::string&>());
    r.error = ApiError{tokenizer.error(), r.field};
    return {};
  }
  const bool ids = prompt.is_array() && !prompt.empty() &&
                   std::all_of(prompt.begin(), prompt.end(), [](const Json& v) {
                     return v.is_number_integer() && v.get<int64_t>() >= 0 &&
                            v.get<int64_t>() <= std::numeric_limits<TokenId>::max();
                   });
  if (ids) return prompt.get<std::vector<TokenId>>();
  r.WrongType(prompt, "a string, an array of token ids, or an array of such");
  return {};
}

void ReadPrompt(Reader& r) {
  r.field = "prompt";
  if (r.prompt == nullptr) return r.Fail("there is no prompt", "missing_required_parameter");
  const Json& prompt = *r.prompt;
  const bool several =
      prompt.is_array() && !prompt.empty() && (prompt[0].is_string() || prompt[0].is_array());
  if (!several) {
    r.request().prompt = ReadOnePrompt(r, prompt);
    if (prompt.is_string()) r.out.prompt_text = prompt.get<std::string>();
    return;
  }
  if (prompt.size() > kMostPrompts) {
    return r.Fail(
        fmt::format("there are {} prompts, at most {} are taken", prompt.size(), kMostPrompts));
  }
  r.request().prompt = ReadOnePrompt(r, prompt[0]);
  for (size_t i = 1; i < prompt.size() && !r.error; ++i) {
    r.out.further_prompts.push_back(ReadOnePrompt(r, prompt[i]));
  }
}

void ReadMessages(Reader& r) {
  r.field = "messages";
  if (r.messages == nullptr) return r.Fail("there are no messages", "missing_required_parameter");
  if (!r.messages->is_array() || r.messages->empty()) {
    return r.WrongType(*r.messages, "an array of messages");
  }
  if (!r.context.tokenizer) {
    r.error = ApiError{r.context.tokenizer.error(), r.field};
  } else if (!r.context.chat_template) {
    r.error = ApiError{r.context.chat_template.error(), r.field};
  }
  if (r.error) return;
  Result<ChatPrompt> prompt = RenderChatPrompt(**r.context.chat_template, **r.context.tokenizer,
                                               *r.messages, std::move(r.chat));
  if (!prompt) {
    r.error = ApiError{prompt.error(), r.field};
    return;
  }
  r.request().prompt = std::move(prompt->ids);
  r.out.prompt_text = std::move(prompt->text);
}

}  // namespace

Request ApiRequest::RequestOf(int64_t i) const {
  Request one = request;
  if (i > 0) one.prompt = further_prompts[static_cast<size_t>(i - 1)];
  if (best_of > 0) one.n = best_of;
  one.rng_stream += static_cast<uint64_t>(i) * static_cast<uint64_t>(std::max(one.n, 1));
  return one;
}

ApiResult<ApiRequest> ParseApiRequest(ApiEndpoint endpoint, const Json& body,
                                      const ApiContext& context) {
  Reader reader(context);
  reader.out.endpoint = endpoint;
  reader.out.request = context.defaults;
  for (const auto& [name, value] : body.items()) {
    ReadMember(reader, name, value);
    if (reader.error) break;
  }
  if (!reader.error) Combine(reader);
  if (!reader.error) endpoint == ApiEndpoint::kChat ? ReadMessages(reader) : ReadPrompt(reader);
  if (reader.error) return tl::unexpected<ApiError>(*std::move(reader.error));
  return std::move(reader.out);
}

}  // namespace lucid
