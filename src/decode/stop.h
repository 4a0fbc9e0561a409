// StopMatcher: ends a reply at a stop string, even one that spans tokens, and never shows a part of
// it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lucid {

enum class StopCause {
  kNone,
  kEndOfGeneration,
  kStopString,
  kLength,
  kAborted,
  kDeadline,  // its time was over
  kError,     // it could not be computed; others go on
};
// "stop" (end of generation or stop string), "length", "abort", "timeout", "error": the
// finish_reason of the OpenAI API, with vLLM's additions.
std::string_view FinishReason(StopCause cause);
// The cause itself: "end" (an end-of-generation token), "stop_string", "length", "aborted",
// "deadline", "error", "none".
std::string_view StopCauseName(StopCause cause);

class StopMatcher {
 public:
  // kInvalidArgument for an empty stop string. Stop strings are literal bytes. The one that ends
  // first in the text ends the reply, the longest if several end there; so how the text is cut into
  // pieces makes no difference. Takes time linear in the text for each stop string.
  static Result<StopMatcher> Create(std::vector<std::string> stops);

  // Appends text and returns the part that may be shown now: text that could still begin a stop
  // string is held back.
  std::string Add(std::string_view text);
  bool stopped() const { return stopped_; }
  const std::string& matched() const { return matched_; }  // the stop string that ended the reply
  std::string Finish();                                    // what was held back, if no stop came

 private:
  struct Stop {
    std::string text;
    std::vector<size_t> border;  // failure function of the text
    size_t matched = 0;          // bytes of `text` that end what was added so far
  };
  std::vector<Stop> stops_;
  std::string held_;  // the longest `matched` of all: what may still become a stop string
  std::string matched_;
  bool stopped_ = false;
};

}  // namespace lucid
