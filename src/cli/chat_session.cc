#include "cli/chat_session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json.h"
#include "base/output_file.h"
#include "cli/command.h"
#include "engine/chat_prompt.h"

namespace lucid::cli {
namespace {

using Json = nlohmann::ordered_json;

// The conversation in a file: a system message at most, then turns.
struct Conversation {
  std::optional<std::string> system;
  std::vector<ChatTurn> turns;
};

Result<Conversation> ParseMessages(const Json& messages) {
  if (!messages.is_array()) {
    return Err(ErrorCode::kInvalidArgument, "there is no array of messages");
  }
  Conversation conversation;
  bool user_spoke = false;  // and waits for a reply
  for (size_t i = 0; i < messages.size(); ++i) {
    const Json& message = messages[i];
    const Json role = message.is_object() ? message.value("role", Json()) : Json();
    const Json content = message.is_object() ? message.value("content", Json()) : Json();
    if (!role.is_string() || !content.is_string()) {
      return Err(ErrorCode::kInvalidArgument,
                 "message {} is not an object with the strings role and content", i + 1);
    }
    const std::string wanted = user_spoke ? "assistant" : "user";
    if (i == 0 && role == "system") {
      conversation.system = content.get<std::string>();
    } else if (role != wanted) {
      return Err(ErrorCode::kInvalidArgument, "message {} has the role {}, not {}", i + 1,
                 role.dump(), wanted);
    } else if (user_spoke) {
      conversation.turns.back().reply = content.get<std::string>();
      user_spoke = false;
    } else {
      conversation.turns.push_back({content.get<std::string>(), ""});
      user_spoke = true;
    }
  }
  if (user_spoke) {
    return Err(ErrorCode::kInvalidArgument, "the last message is the user's, without a reply");
  }
  return conversation;
}

// "1 turn", "2 turns"
std::string Counted(int64_t n, std::string_view noun, std::string_view plural) {
  return fmt::format("{} {}", n, n == 1 ? noun : plural);
}

std::string Rate(double tokens_per_second) {
  return tokens_per_second > 0 ? fmt::format(" at {:.1f} tok/s", tokens_per_second) : "";
}

}  // namespace

ChatSession::ChatSession(Engine& engine, const Tokenizer& tokenizer,
                         const ChatTemplate& chat_template, ChatSettings settings,
                         RequestCacheFlags cache)
    : engine_(engine),
      tokenizer_(tokenizer),
      chat_template_(chat_template),
      settings_(std::move(settings)),
      cache_(std::move(cache)) {}

// The messages so far, and the one that the user says next.
Json ChatSession::Messages(const std::string* next_user) const {
  Json messages = Json::array();
  const auto add = [&messages](const char* role, const std::string& content) {
    messages.push_back({{"role", role}, {"content", content}});
  };
  if (!settings_.system.empty()) add("system", settings_.system);
  for (const ChatTurn& turn : turns_) {
    add("user", turn.user);
    add("assistant", turn.reply);
  }
  if (next_user != nullptr) add("user", *next_user);
  return messages;
}

Result<std::vector<TokenId>> ChatSession::Encode(const std::string* next_user) const {
  ChatTemplateOptions options;
  options.add_generation_prompt = next_user != nullptr;
  LUCID_ASSIGN_OR_RETURN(
      ChatPrompt prompt,
      RenderChatPrompt(chat_template_, tokenizer_, Messages(next_user), std::move(options)));
  return std::move(prompt.ids);
}

Result<FinishedReply> ChatSession::Answer(const std::string& user, uint64_t rng_stream,
                                          const OnText& on_text) {
  const InterruptGuard guard;  // Ctrl-C while the prompt is made must not end the program either
  LUCID_ASSIGN_OR_RETURN(const SamplerParams sampling, ToSamplerParams(settings_.sampling));
  Request request;
  LUCID_ASSIGN_OR_RETURN(request.prompt, Encode(&user));
  const auto n_prompt = static_cast<int64_t>(request.prompt.size());
  if (n_prompt >= engine_.context()) {
    return Err(ErrorCode::kContextLength,
               "with this message the conversation has {} tokens and no room for a reply, for the "
               "context holds {}; the message was taken back (/clear forgets the conversation)",
               n_prompt, engine_.context());
  }
  if (n_prompt >= limit()) {
    return Err(ErrorCode::kCapacity,
               "with this message the conversation has {} tokens and no room for a reply, for the "
               "cache holds {}; the message was taken back (/clear forgets the conversation, a "
               "larger --kv-memory holds more)",
               n_prompt, limit());
  }
  request.sampling = sampling;
  request.max_tokens = settings_.max_tokens;
  if (limit() < engine_.context() &&
      (request.max_tokens < 0 || request.max_tokens > limit() - n_prompt)) {
    request.max_tokens = limit() - n_prompt;
  }
  request.stop = settings_.stop;
  request.rng_stream = rng_stream;
  ApplyCacheFlags(cache_, request);
  std::vector<TokenId> ids = request.prompt;
  Result<FinishedReply> made = Generate(engine_, std::move(request), [&](const TokenOutput& out) {
    on_text(out.text);
    const KvCacheStats cache = engine_.Stats().cache;
    if (cache.reserved_positions >= fullest_.reserved_positions) fullest_ = cache;
  });
  if (!made && made.error().code == ErrorCode::kCapacity) {
    return Err(ErrorCode::kCapacity,
               "{}; the message was taken back (a larger --kv-memory holds more)",
               made.error().message);
  }
  LUCID_ASSIGN_OR_RETURN(FinishedReply reply, std::move(made));
  for (const TokenOutput& output : reply.outputs) ids.push_back(output.id);
  ids_ = std::move(ids);
  last_seed_ = sampling.seed;
  Count(reply);
  return reply;
}

void ChatSession::Count(const FinishedReply& reply) {
  last_ = reply.stats;
  ++n_replies_;
  total_.prompt_tokens += reply.stats.prompt_tokens;
  total_.cached_tokens += reply.stats.cached_tokens;
  total_.generated_tokens += reply.stats.generated_tokens;
  total_.prefill_seconds += reply.stats.prefill_seconds;
  total_.decode_seconds += reply.stats.decode_seconds;
}

Result<FinishedReply> ChatSession::Say(std::string text, const OnText& on_text) {
  LUCID_ASSIGN_OR_RETURN(FinishedReply reply, Answer(text, 0, on_text));
  if (reply.cause != StopCause::kAborted || !reply.text.empty()) {
    turns_.push_back({std::move(text), reply.text});
    n_retries_ = 0;
  } else {
    ids_.clear();
  }
  return reply;
}

Result<FinishedReply> ChatSession::Retry(const OnText& on_text) {
  if (turns_.empty()) return Err(ErrorCode::kInvalidArgument, "there is no reply to try again");
  ChatTurn last = std::move(turns_.back());
  turns_.pop_back();
  Result<FinishedReply> reply = Answer(last.user, n_retries_ + 1, on_text);
  const bool replaced = reply && (reply->cause != StopCause::kAborted || !reply->text.empty());
  if (replaced) {
    last.reply = reply->text;
    ++n_retries_;
  } else {
    ids_.clear();
  }
  turns_.push_back(std::move(last));
  return reply;
}

Status ChatSession::Undo() {
  if (turns_.empty()) return Err(ErrorCode::kInvalidArgument, "there is nothing to take back");
  turns_.pop_back();
  ids_.clear();
  n_retries_ = 0;
  return {};
}

void ChatSession::Clear() {
  turns_.clear();
  ids_.clear();
  n_retries_ = 0;
}

int64_t ChatSession::limit() const {
  const bool bounded = *KvPolicyFromName(cache_.policy) != KvPolicy::kFull && !cache_.audit;
  return bounded ? engine_.context() : std::min(engine_.context(), engine_.capacity());
}

bool ChatSession::full() const {
  return last_ && last_->prompt_tokens + last_->generated_tokens >= limit();
}

std::string ChatSession::WhyNothingIsKept() const {
  if (!engine_.config().prefix_sharing) return "--no-prefix-cache keeps none";
  if (*KvPolicyFromName(cache_.policy) != KvPolicy::kFull) {
    return fmt::format("--kv-policy {} keeps none", cache_.policy);
  }
  return "";
}

Result<int64_t> ChatSession::Save(const std::string& path) const {
  const Json json = {{"model", engine_.config().model},
                     {"messages", Messages(nullptr)},
                     {"settings", SettingsToJson(settings_)}};
  LUCID_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
  LUCID_RETURN_IF_ERROR(
      file.Write(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"));
  LUCID_RETURN_IF_ERROR(file.Commit());
  std::vector<TokenId> ids = ids_;
  if (ids.empty() && !turns_.empty()) {
    LUCID_ASSIGN_OR_RETURN(ids, Encode(nullptr));
  }
  const std::string cache_file = CacheFile(path);
  int64_t kept = 0;
  if (!ids.empty() && WhyNothingIsKept().empty()) {
    const Result<int64_t> saved = engine_.SaveCache(cache_file, ids);
    if (!saved) {
      return Err(saved.error().code, "the conversation is saved in {}, its cache is not: {}", path,
                 saved.error().message);
    }
    kept = *saved;
  }
  if (kept == 0) std::remove(cache_file.c_str());  // of an earlier conversation, or empty
  return kept;
}

std::optional<Result<int64_t>> ChatSession::LoadCache(const std::string& path) const {
  const std::string cache_file = CacheFile(path);
  if (access(cache_file.c_str(), F_OK) != 0) return std::nullopt;
  return engine_.LoadCache(cache_file);
}

Status ChatSession::Load(const std::string& path) {
  LUCID_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  LUCID_ASSIGN_OR_RETURN(const Json json, ParseJson(text, path));
  const bool is_object = json.is_object();
  Result<Conversation> conversation =
      ParseMessages(is_object ? json.value("messages", Json()) : json);
  if (!conversation) {
    return Err(ErrorCode::kInvalidFile, "{}: {}", path, conversation.error().message);
  }
  ChatSettings settings = settings_;
  if (is_object && json.contains("settings")) {
    Result<ChatSettings> loaded = SettingsFromJson(json["settings"], settings_);
    if (!loaded) return Err(ErrorCode::kInvalidFile, "{}: {}", path, loaded.error().message);
    settings = *std::move(loaded);
  }
  settings.system = conversation->system.value_or("");
  settings_ = std::move(settings);
  turns_ = std::move(conversation->turns);
  ids_.clear();
  n_retries_ = 0;
  return {};
}

// What the conversation takes of the cache, and what the engine's counters say of it.
std::string ChatSession::DescribeCache(int64_t tokens) const {
  const KvLayout& layout = engine_.kv_layout();
  const EngineStats stats = engine_.Stats();
  const KvCacheStats& cache = stats.cache;
  std::string text;
  if (*KvPolicyFromName(cache_.policy) == KvPolicy::kFull) {
    text = fmt::format("KV cache      {} for the conversation, {} for a full context\n",
                       FormatBytes(layout.BytesFor(tokens)),
                       FormatBytes(layout.BytesFor(engine_.context())));
  } else {
    text = fmt::format(
        "KV cache      {} at the end of the last reply: {} with a budget of {} tokens\n",
        FormatBytes(last_ ? last_->kv_bytes : 0), cache_.policy, cache_.budget);
  }
  text +=
      fmt::format("              of {}: {} held, {} kept for reuse, {} free\n",
                  FormatBytes(layout.Bytes(cache.total)), FormatBytes(layout.Bytes(cache.held)),
                  FormatBytes(layout.Bytes(cache.cached)), FormatBytes(layout.Bytes(cache.free)));
  if (fullest_.reserved_positions > 0) {
    text += fmt::format("blocks        at most {} of {} places used, {} unused in one sequence\n",
                        fullest_.used_positions, fullest_.reserved_positions, fullest_.worst_waste);
  }
  text += fmt::format("prefixes      {} of {} found, {} tokens; {} blocks copied, {} dropped\n",
                      cache.prefix_hits, Counted(cache.prefix_lookups, "prompt", "prompts"),
                      cache.prefix_hit_tokens, cache.copies, cache.evicted_blocks);
  return text;
}

Result<std::string> ChatSession::Describe() const {
  int64_t tokens = 0;
  if (!turns_.empty()) {
    LUCID_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, Encode(nullptr));
    tokens = static_cast<int64_t>(ids.size());
  }
  const int64_t context = engine_.context();
  std::string text = fmt::format("conversation  {}, {} tokens\n",
                                 Counted(std::ssize(turns_), "turn", "turns"), tokens);
  text += fmt::format("context       {} of {} tokens used, {} left\n", std::min(tokens, context),
                      context, std::max<int64_t>(context - tokens, 0));
  text += DescribeCache(std::min(tokens, context));
  if (last_) {
    text += fmt::format("last reply    prompt {} tokens ({} cached){}, reply {} tokens{}\n",
                        last_->prompt_tokens, last_->cached_tokens,
                        Rate(last_->prefill_tokens_per_second()), last_->generated_tokens,
                        Rate(last_->decode_tokens_per_second()));
  }
  text += fmt::format(
      "in total      {}, prompt {} tokens ({} cached), reply {} tokens, "
      "{:.2f} s prefill, {:.2f} s decode\n",
      Counted(n_replies_, "reply", "replies"), total_.prompt_tokens, total_.cached_tokens,
      total_.generated_tokens, total_.prefill_seconds, total_.decode_seconds);
  return text;
}

}  // namespace lucid::cli
