#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>

#include <memory>

#include "base/env.h"

namespace lucid {

spdlog::logger& Log() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto made = std::make_shared<spdlog::logger>("lucid",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("lucid %l: %v");
    const std::string level = Env("LUCID_LOG").value_or("warn");
    made->set_level(spdlog::level::from_str(level));
    // from_str answers "off" for a word it does not know; silence must be asked for.
    if (made->level() == spdlog::level::off && level != "off") {
      made->set_level(spdlog::level::warn);
      made->warn("LUCID_LOG is '{}', but must be debug, info, warn, error or off", level);
    }
    return made;
  }();
  return *logger;
}

}  // namespace lucid
