#include "cli/config_file.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <sstream>
#include <utility>

#include "base/env.h"

namespace lucid::cli {
namespace {

struct Setting {
  std::string key;
  std::vector<std::string> values;
};

bool IsYaml(const std::string& path) {
  return path.ends_with(".yaml") || path.ends_with(".yml");
}

Result<std::vector<Setting>> ParseYaml(const std::string& text, const std::string& path) {
  std::vector<Setting> settings;
  try {
    const YAML::Node root = YAML::Load(text);
    if (root.IsNull()) return settings;
    if (!root.IsMap()) {
      return Err(ErrorCode::kInvalidArgument, "{} must hold keys and values", path);
    }
    for (const auto& entry : root) {
      Setting setting = {entry.first.as<std::string>(), {}};
      const YAML::Node& value = entry.second;
      if (value.IsScalar()) {
        setting.values.push_back(value.as<std::string>());
      } else if (value.IsSequence()) {
        for (const YAML::Node& element : value) {
          setting.values.push_back(element.as<std::string>());
        }
      } else {
        return Err(ErrorCode::kInvalidArgument, "{}: {} must have a value or a list of values",
                   path, setting.key);
      }
      settings.push_back(std::move(setting));
    }
  } catch (const YAML::Exception& error) {
    return Err(ErrorCode::kInvalidArgument, "{} is no YAML as it is wanted: {}", path,
               error.what());
  }
  return settings;
}

Result<std::vector<Setting>> ParseToml(const std::string& text, const std::string& path) {
  std::vector<Setting> settings;
  std::istringstream stream(text);
  for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_config(stream)) {
    if (!item.parents.empty() || item.name == "++" || item.name == "--") {
      return Err(ErrorCode::kInvalidArgument, "{}: there are no sections, and [{}] is one", path,
                 item.parents.empty() ? "" : item.parents.front());
    }
    settings.push_back({item.name, item.inputs});
  }
  return settings;
}

// The option that a key of a file means; nullptr if there is none.
const CLI::Option* OptionOf(const CLI::App& command, std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return command.get_option_no_throw("--" + key);
}

// A flag without value is given or not; others get theirs.
Status Append(const CLI::Option& option, const std::string& value, const std::string& where,
              std::vector<std::string>& arguments) {
  const std::string name = "--" + option.get_lnames().front();
  if (option.get_items_expected_max() > 0) {
    arguments.push_back(name + "=" + value);
    return {};
  }
  std::string lower = value;
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const bool yes = lower == "true" || lower == "1" || lower == "yes" || lower == "on";
  const bool no = lower == "false" || lower == "0" || lower == "no" || lower == "off";
  if (!yes && !no) {
    return Err(ErrorCode::kInvalidArgument, "{} is {}, must be true or false", where, value);
  }
  if (yes) arguments.push_back(name);
  return {};
}

// The file that `given` or the environment names; nothing if neither does.
std::optional<std::string> NamedFile(const std::string& prefix,
                                     const std::vector<std::string>& given) {
  constexpr std::string_view kFlag = "--config";
  std::optional<std::string> file;
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i] == kFlag && i + 1 < given.size()) file = given[i + 1];
    if (given[i].starts_with(std::string(kFlag) + "=")) file = given[i].substr(kFlag.size() + 1);
  }
  if (file) return file;
  return Env(prefix + "CONFIG");
}

// "LUCID_SERVE_API_KEY" for --api-key.
std::string VariableOf(const std::string& prefix, const std::string& flag) {
  std::string name = prefix;
  for (const char c : flag) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

}  // namespace

Result<std::vector<std::string>> SettingsBefore(const CLI::App& command, const std::string& prefix,
                                                const std::vector<std::string>& given) {
  std::vector<std::string> arguments;
  if (const std::optional<std::string> file = NamedFile(prefix, given)) {
    LUCID_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(*file));
    LUCID_ASSIGN_OR_RETURN(const std::vector<Setting> settings,
                           IsYaml(*file) ? ParseYaml(text, *file) : ParseToml(text, *file));
    for (const Setting& setting : settings) {
      const CLI::Option* option = OptionOf(command, setting.key);
      if (option == nullptr || option->get_lnames().front() == "config") {
        return Err(ErrorCode::kInvalidArgument, "{}: there is no setting {}", *file, setting.key);
      }
      for (const std::string& value : setting.values) {
        LUCID_RETURN_IF_ERROR(
            Append(*option, value, fmt::format("{}: {}", *file, setting.key), arguments));
      }
    }
  }
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& flag : option->get_lnames()) {
      if (flag == "config" || flag == "help") continue;
      const std::string variable = VariableOf(prefix, flag);
      const std::optional<std::string> value = Env(variable);
      if (!value) continue;
      LUCID_RETURN_IF_ERROR(Append(*option, *value, variable, arguments));
    }
  }
  return arguments;
}

}  // namespace lucid::cli
