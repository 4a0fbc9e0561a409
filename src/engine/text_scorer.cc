#include "engine/text_scorer.h"

#include <algorithm>

namespace lucid {
namespace {

// What the model's tokenizer puts before a text; -1: nothing.
TokenId BosOf(const Engine& engine) {
  const Result<const Tokenizer*> tokenizer = engine.tokenizer();
  if (!tokenizer) return -1;
  const std::vector<TokenId> ids = (*tokenizer)->Encode("a");
  const TokenId bos = (*tokenizer)->spec().bos_id;
  return !ids.empty() && ids.front() == bos ? bos : -1;
}

}  // namespace

Status ScorePrompt(Engine& engine, std::span<const TokenId> ids, int64_t first,
                   const std::function<Status(int64_t, std::span<const float>)>& score) {
  Status status;
  const auto last = std::ssize(ids) - 1;  // its row predicts a token that is not there
  Request request;
  request.prompt.assign(ids.begin(), ids.end());
  request.max_tokens = 0;
  request.logits_from = first;
  request.on_logits = [&](int64_t position, std::span<const float> logits) {
    if (status && position < last) status = score(position, logits);
  };
  LUCID_ASSIGN_OR_RETURN(Stream stream, engine.Submit(std::move(request)));
  while (const std::optional<TokenOutput> out = stream.Next()) {
    if (out->error) return tl::unexpected<Error>(*out->error);
  }
  return status;
}

int64_t WindowTokens(const WindowOptions& options) {
  return options.context + options.stride / 2;
}

int64_t ScoredTokens(const WindowOptions& options) {
  if (options.stride > 0) return options.stride;
  return options.context - options.context / 2 - 1;
}

Result<int64_t> CountWindows(int64_t n_tokens, const WindowOptions& options) {
  if (options.context < 4 || options.stride < 0 || options.stride >= WindowTokens(options)) {
    return Err(ErrorCode::kInvalidArgument,
               "windows of {} tokens with a stride of {} score nothing: a window has at least 4 "
               "tokens, more than the stride",
               WindowTokens(options), options.stride);
  }
  const int64_t size = WindowTokens(options);
  int64_t windows = n_tokens / size;
  if (options.stride > 0) {
    windows = n_tokens < size ? 0 : (n_tokens - size + options.stride - 1) / options.stride;
  }
  if (windows == 0) {
    return Err(ErrorCode::kInvalidArgument,
               "the text has {} tokens, too few for one window of {} (-c makes windows shorter)",
               n_tokens, size);
  }
  return options.windows < 0 ? windows : std::min(windows, options.windows);
}

Status ScoreText(Engine& engine, std::span<const TokenId> text, const WindowOptions& options,
                 const std::function<Status(const ScoredRow&)>& score,
                 const std::function<void(int64_t window)>& end_window) {
  LUCID_ASSIGN_OR_RETURN(const int64_t windows, CountWindows(std::ssize(text), options));
  const int64_t size = WindowTokens(options);
  const int64_t step = options.stride > 0 ? options.stride : size;
  const TokenId bos = BosOf(engine);
  for (int64_t window = 0; window < windows; ++window) {
    const int64_t begin = window * step;
    const auto in_text = text.subspan(static_cast<size_t>(begin), static_cast<size_t>(size));
    std::vector<TokenId> prompt(in_text.begin(), in_text.end());
    if (bos >= 0) prompt[0] = bos;
    const int64_t first = size - 1 - ScoredTokens(options);
    LUCID_RETURN_IF_ERROR(
        ScorePrompt(engine, prompt, first, [&](int64_t position, std::span<const float> logits) {
          const TokenId next = in_text[static_cast<size_t>(position + 1)];
          return score({window, begin + position + 1, next, logits});
        }));
    end_window(window);
  }
  return {};
}

}  // namespace lucid
