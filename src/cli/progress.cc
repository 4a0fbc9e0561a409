#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

namespace lucid::cli {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(200);
constexpr int kBarWidth = 20;

// "1:02:03", "2:03"
std::string Duration(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole >= 3600) {
    return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  }
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

ProgressLine::ProgressLine()
    : enabled_(isatty(STDERR_FILENO) != 0), start_(Clock::now()), shown_(start_ - kInterval) {}

double ProgressLine::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

void ProgressLine::Show(const BatchProgress& p) {
  if (!enabled_ || Clock::now() - shown_ < kInterval) return;
  shown_ = Clock::now();
  const double elapsed = std::max(seconds(), 1e-3);
  const auto filled =
      static_cast<size_t>(p.total > 0 ? p.done * kBarWidth / p.total : int64_t{kBarWidth});
  const int64_t done_now = p.done - p.done_before;
  std::string left = "--:--";
  if (done_now > 0) {
    left =
        Duration(elapsed / static_cast<double>(done_now) * static_cast<double>(p.total - p.done));
  }
  fmt::print(stderr, "\r[{}{}] {}/{} lines  prompt {:.0f} tok/s  reply {:.0f} tok/s  {} left\x1b[K",
             std::string(filled, '='), std::string(kBarWidth - filled, ' '), p.done, p.total,
             static_cast<double>(p.prompt_tokens) / elapsed,
             static_cast<double>(p.reply_tokens) / elapsed, left);
  std::fflush(stderr);
  visible_ = true;
}

void ProgressLine::Clear() {
  if (visible_) fmt::print(stderr, "\r\x1b[K");
  visible_ = false;
}

}  // namespace lucid::cli
