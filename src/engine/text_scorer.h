// ScoreText: the logits after the tokens of a text, window by window, for perplexity and whatever
// compares distributions.
//
// Windows follow llama-perplexity, so that figures can be compared: of `context` tokens each, end
// to end, the second half scored; with a stride, of context + stride / 2 tokens, one every `stride`
// tokens, the last `stride` scored. Where the model wants BOS, it takes the place of a window's
// first token, which is not scored.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace lucid {

struct WindowOptions {
  int64_t context = 512;
  int64_t stride = 0;    // 0: end to end
  int64_t windows = -1;  // most of them; -1: as many as the text has
};

// Calls `score` with the logits after the tokens at positions [first, ids - 1), in order. Its error
// or the engine's ends it.
Status ScorePrompt(Engine& engine, std::span<const TokenId> ids, int64_t first,
                   const std::function<Status(int64_t, std::span<const float>)>& score);

// Tokens of the windows' prompts: what an engine's context must hold.
int64_t WindowTokens(const WindowOptions& options);
// How many windows `n_tokens` tokens give; kInvalidArgument with both numbers if not one, and for
// options that make no sense.
Result<int64_t> CountWindows(int64_t n_tokens, const WindowOptions& options);
// Rows that each window scores.
int64_t ScoredTokens(const WindowOptions& options);

struct ScoredRow {
  int64_t window = 0;
  int64_t position = 0;           // of `token` in the text
  TokenId token = 0;              // what comes next in the text
  std::span<const float> logits;  // [vocab], of what comes next
};

// Calls `score` for every scored row in order, and `end_window` after each window's last. An error
// of theirs, of the engine or of CountWindows ends it.
Status ScoreText(Engine& engine, std::span<const TokenId> text, const WindowOptions& options,
                 const std::function<Status(const ScoredRow&)>& score,
                 const std::function<void(int64_t window)>& end_window);

}  // namespace lucid
