// The progress line of lucid batch on a terminal: lines done, tokens per second, time left.
#pragma once

#include <chrono>
#include <cstdint>

namespace lucid::cli {

struct BatchProgress {
  int64_t done = 0, total = 0;  // lines, those of an earlier run included
  int64_t done_before = 0;      // of them, by an earlier run
  int64_t prompt_tokens = 0;    // computed
  int64_t reply_tokens = 0;
};

class ProgressLine {
 public:
  // Silent unless standard error is a terminal.
  ProgressLine();
  // Draws the line, at most a few times per second.
  void Show(const BatchProgress& progress);
  // Removes it, so that other text can follow.
  void Clear();
  double seconds() const;  // since it was made

 private:
  using Clock = std::chrono::steady_clock;
  bool enabled_;
  bool visible_ = false;
  Clock::time_point start_;
  Clock::time_point shown_;
};

}  // namespace lucid::cli
