// StopMatcher: ends a reply at a stop string, even one that spans tokens, and never shows a part of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lucid {

enum class StopCause { kNone, kEndOfGeneration, kStopString, kLength, kAborted };
// "stop" (end of generation or stop string), "length", "abort": the finish_reason of the OpenAI API.
std::string_view FinishReason(StopCause cause);

class StopMatcher {
 public:
  // kInvalidArgument for an empty stop string.
  static Result<StopMatcher> Create(std::vector<std::string> stops);

  // Appends text and returns the part that may be shown now: text that could still begin a stop string is held back.
  std::string Add(std::string_view text);
  bool stopped() const { return stopped_; }
  const std::string& matched() const { return matched_; }  // the stop string that ended the reply
  std::string Finish();                                    // what was held back, if no stop came

 private:
  std::vector<std::string> stops_;
  std::string held_;
  std::string matched_;
  bool stopped_ = false;
};

}  // namespace lucid
