#include "decode/stop.h"

#include <algorithm>

namespace lucid {

std::string_view StopCauseName(StopCause cause) {
  switch (cause) {
    case StopCause::kNone:
      return "none";
    case StopCause::kEndOfGeneration:
      return "end";
    case StopCause::kStopString:
      return "stop_string";
    case StopCause::kLength:
      return "length";
    case StopCause::kAborted:
      return "aborted";
    case StopCause::kDeadline:
      return "deadline";
    case StopCause::kError:
      return "error";
  }
  return "none";
}

std::string_view FinishReason(StopCause cause) {
  switch (cause) {
    case StopCause::kNone:
      return "";
    case StopCause::kEndOfGeneration:
    case StopCause::kStopString:
      return "stop";
    case StopCause::kLength:
      return "length";
    case StopCause::kAborted:
      return "abort";
    case StopCause::kDeadline:
      return "timeout";
    case StopCause::kError:
      return "error";
  }
  return "";
}

Result<StopMatcher> StopMatcher::Create(std::vector<std::string> stops) {
  StopMatcher matcher;
  for (std::string& stop : stops) {
    if (stop.empty()) {
      return Err(ErrorCode::kInvalidArgument,
                 "a stop string is empty, which would end every reply");
    }
    // The failure function of Knuth, Morris and Pratt (1977): border[i] is the length of the
    // longest proper prefix of stop[0, i] that is also its suffix.
    std::vector<size_t> border(stop.size(), 0);
    for (size_t i = 1, length = 0; i < stop.size(); ++i) {
      while (length > 0 && stop[i] != stop[length]) length = border[length - 1];
      if (stop[i] == stop[length]) ++length;
      border[i] = length;
    }
    matcher.stops_.push_back({std::move(stop), std::move(border), 0});
  }
  return matcher;
}

std::string StopMatcher::Add(std::string_view text) {
  if (stopped_) return {};
  for (size_t i = 0; i < text.size(); ++i) {
    size_t longest_match = 0;
    for (Stop& stop : stops_) {
      while (stop.matched > 0 && text[i] != stop.text[stop.matched]) {
        stop.matched = stop.border[stop.matched - 1];
      }
      if (text[i] == stop.text[stop.matched]) ++stop.matched;
      if (stop.matched == stop.text.size() && stop.matched > longest_match) {
        longest_match = stop.matched;
        matched_ = stop.text;
      }
    }
    if (longest_match == 0) continue;
    stopped_ = true;
    std::string shown = held_.append(text.substr(0, i + 1));
    shown.resize(shown.size() - longest_match);
    held_.clear();
    return shown;
  }
  size_t may_match = 0;
  for (const Stop& stop : stops_) may_match = std::max(may_match, stop.matched);
  std::string shown = held_.append(text);
  held_ = shown.substr(shown.size() - may_match);
  shown.resize(shown.size() - may_match);
  return shown;
}

std::string StopMatcher::Finish() {
  for (Stop& stop : stops_) stop.matched = 0;
  return std::exchange(held_, {});
}

}  // namespace lucid
