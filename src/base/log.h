// The log: levelled messages on stderr through spdlog, quiet unless something is wrong. LUCID_LOG
// (debug, info, warn, error, off) sets the level; nothing is ever logged to stdout.
//
//   LogInfo("loaded {} tensors in {:.2f} s", n, seconds);
#pragma once

#include <spdlog/spdlog.h>

#include <utility>

namespace lucid {

// The one logger, made on first use.
spdlog::logger& Log();

template <typename... Args>
void LogDebug(fmt::format_string<Args...> format, Args&&... args) {
  Log().debug(format, std::forward<Args>(args)...);
}
template <typename... Args>
void LogInfo(fmt::format_string<Args...> format, Args&&... args) {
  Log().info(format, std::forward<Args>(args)...);
}
template <typename... Args>
void LogWarn(fmt::format_string<Args...> format, Args&&... args) {
  Log().warn(format, std::forward<Args>(args)...);
}
}  // namespace lucid
