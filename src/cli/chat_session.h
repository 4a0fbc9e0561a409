// A conversation with a model: the messages, the settings and the figures of lucid chat, without
// any terminal.
//
// Each turn submits the whole rendered conversation; the engine finds what it has computed before
// in its cache. Turns are pairs of a user's message and a reply; a turn that fails leaves the
// conversation as it was.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/chat_settings.h"
#include "cli/engine_flags.h"
#include "cli/generate.h"
#include "engine/engine.h"

namespace lucid::cli {

struct ChatTurn {
  std::string user;
  std::string reply;
};

using OnText = std::function<void(std::string_view)>;

class ChatSession {
 public:
  // What it refers to must outlive it.
  ChatSession(Engine& engine, const Tokenizer& tokenizer, const ChatTemplate& chat_template,
              ChatSettings settings, RequestCacheFlags cache);

  // Says something and streams the reply. Ctrl-C ends the reply, which then stays as far as it
  // came; if it had not begun, the turn is dropped (its text is empty and its cause kAborted).
  // kContextLength or kCapacity with both numbers if the conversation no longer fits.
  Result<FinishedReply> Say(std::string text, const OnText& on_text);
  // Replaces the last reply by another one. kInvalidArgument if there is none.
  Result<FinishedReply> Retry(const OnText& on_text);
  // Takes back the last turn. kInvalidArgument if there is none.
  Status Undo();
  void Clear();

  // Messages and settings as JSON, written under a temporary name and renamed; and beside it, in
  // CacheFile(path), what the cache holds of the conversation. Returns how many tokens that are;
  // where there are none, no such file is there afterwards. An error says if the JSON is saved
  // nevertheless.
  Result<int64_t> Save(const std::string& path) const;
  // Reads such a file, or an array of messages. On an error everything is as before.
  Status Load(const std::string& path);
  // Brings back what Save() kept of the cache: its tokens, or why it is of no use. Nothing if there
  // is no such file.
  std::optional<Result<int64_t>> LoadCache(const std::string& path) const;
  static std::string CacheFile(const std::string& path) { return path + ".kv"; }

  // What /stats prints.
  Result<std::string> Describe() const;

  ChatSettings& settings() { return settings_; }
  const std::vector<ChatTurn>& turns() const { return turns_; }
  uint64_t last_seed() const { return last_seed_; }
  // Tokens that a conversation may have: the context, or what the cache holds of it.
  int64_t limit() const;
  bool limit_is_cache() const { return limit() < engine_.context(); }
  // True if the last reply ended because there are limit() tokens.
  bool full() const;
  // Why the cache neither keeps nor finds anything, as the end of a sentence; empty if it does.
  std::string WhyNothingIsKept() const;

 private:
  nlohmann::ordered_json Messages(const std::string* next_user) const;
  Result<std::vector<TokenId>> Encode(const std::string* next_user) const;
  Result<FinishedReply> Answer(const std::string& user, uint64_t rng_stream, const OnText& on_text);
  void Count(const FinishedReply& reply);
  std::string DescribeCache(int64_t tokens) const;

  Engine& engine_;
  const Tokenizer& tokenizer_;
  const ChatTemplate& chat_template_;
  ChatSettings settings_;
  RequestCacheFlags cache_;
  std::vector<ChatTurn> turns_;
  // The conversation as the engine last saw it: the prompt and its reply. Empty where the turns
  // have changed since.
  std::vector<TokenId> ids_;
  uint64_t n_retries_ = 0;  // of the last turn: each draws from a stream of its own
  uint64_t last_seed_ = 0;
  std::optional<RequestStats> last_;
  RequestStats total_;
  int64_t n_replies_ = 0;
  KvCacheStats fullest_;  // the cache when most places were reserved, of this session's replies
};

}  // namespace lucid::cli
