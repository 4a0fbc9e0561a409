// What /set of lucid chat can change: one table of names, values and meanings, read and written as
// text
// (/set) and as JSON (/save, /load). The flags of the command line give the first values.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/sampling_flags.h"

namespace lucid::cli {

struct ChatSettings {
  SamplingFlags sampling;
  int64_t max_tokens = -1;        // of a reply; -1: until the model ends it
  std::vector<std::string> stop;  // a reply ends before any of these
  std::string system;             // the system message; empty: none
  bool stats = false;             // a line of figures after each reply
};

// kInvalidArgument, naming the setting, for values with which no reply could be made.
Status CheckSettings(const ChatSettings& settings);

// Changes one setting. Text in double quotes is read as a JSON string, a list as a JSON array or as
// its one element. kInvalidArgument for an unknown name or a value that is none; the settings are
// then as before.
Status SetSetting(ChatSettings& settings, std::string_view name, std::string_view value);

// "temperature = 0.8". kInvalidArgument for an unknown name.
Result<std::string> DescribeSetting(const ChatSettings& settings, std::string_view name);

// All settings, one a line, with their meaning.
std::string DescribeSettings(const ChatSettings& settings);

nlohmann::ordered_json SettingsToJson(const ChatSettings& settings);

// The settings with the members of a JSON object in place of their own. kInvalidArgument names the
// member that is unknown or has a wrong value.
Result<ChatSettings> SettingsFromJson(const nlohmann::ordered_json& json, ChatSettings settings);

}  // namespace lucid::cli
