#include "cli/chat_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/json.h"
#include "decode/stop.h"

namespace lucid::cli {
namespace {

using Json = nlohmann::ordered_json;

// A row of the table: where the value lies, and how it is called.
struct Setting {
  std::string_view name;
  std::variant<float*, int32_t*, int64_t*, bool*, std::string*, std::vector<std::string>*> value;
  std::string_view help;
};

std::vector<Setting> Table(ChatSettings& s) {
  SamplerParams& p = s.sampling.params;
  return {
      {"temperature", &p.temperature, "how freely to choose; 0: always the most likely token"},
      {"top_k", &p.top_k, "keep the k most likely tokens; 0: all"},
      {"top_p", &p.top_p, "keep the smallest set of at least this probability; 1: all"},
      {"min_p", &p.min_p,
       "keep tokens of at least this share of the best one's probability; 0: all"},
      {"typical_p", &p.typical_p, "keep locally typical tokens of this probability; 1: all"},
      {"repetition_penalty", &p.repetition_penalty,
       "divide the logits of tokens that occurred; 1: off"},
      {"frequency_penalty", &p.frequency_penalty, "subtract this for each time a token occurred"},
      {"presence_penalty", &p.presence_penalty, "subtract this once a token occurred"},
      {"repeat_last_n", &p.repeat_last_n, "the penalties look at this many last tokens; -1: all"},
      {"samplers", &s.sampling.samplers,
       "the stages in order, separated by ';'; empty: the default"},
      {"logit_bias", &s.sampling.logit_bias, "TOKEN_ID+BIAS or TOKEN_ID-BIAS, e.g. [\"15-inf\"]"},
      {"seed", &s.sampling.seed, "seed of the sampler; negative: a fresh one for each reply"},
      {"n", &s.max_tokens, "most tokens of a reply; -1: until the model ends it"},
      {"stop", &s.stop, "a reply ends before any of these texts, e.g. [\"\\n\\n\"]"},
      {"system", &s.system, "the system message"},
      {"stats", &s.stats, "a line of figures after each reply: on or off"},
  };
}

// The name of the table that was meant: the flags' spellings are understood too.
std::string CanonicalName(std::string_view name) {
  while (name.starts_with('-')) name.remove_prefix(1);
  std::string key(name);
  std::replace(key.begin(), key.end(), '-', '_');
  static constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
      {"temp", "temperature"},
      {"typical", "typical_p"},
      {"repeat_penalty", "repetition_penalty"},
      {"s", "seed"},
      {"n_predict", "n"},
      {"max_tokens", "n"},
      {"reverse_prompt", "stop"},
  };
  for (const auto& [alias, meant] : kAliases) {
    if (key == alias) return std::string(meant);
  }
  return key;
}

Result<Setting> Find(ChatSettings& settings, std::string_view name) {
  const std::string key = CanonicalName(name);
  for (const Setting& setting : Table(settings)) {
    if (setting.name == key) return setting;
  }
  return Err(ErrorCode::kInvalidArgument, "there is no setting '{}'; /set lists them", name);
}

// Text from the user as it may be shown: a string with its control characters escaped.
std::string Quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string ValueText(const Setting& setting) {
  return std::visit(
      [](const auto* value) -> std::string {
        using T = std::remove_cvref_t<decltype(*value)>;
        if constexpr (std::is_same_v<T, bool>) {
          return *value ? "on" : "off";
        } else if constexpr (std::is_arithmetic_v<T>) {
          return fmt::format("{}", *value);
        } else {
          return Json(*value).dump(-1, ' ', false, Json::error_handler_t::replace);
        }
      },
      setting.value);
}

template <typename Number>
Status ParseNumber(const Setting& setting, std::string_view text, Number& value) {
  constexpr bool kWhole = std::is_integral_v<Number>;
  Number parsed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
  if (error != std::errc() || end != text.data() + text.size()) {
    return Err(ErrorCode::kInvalidArgument, "{} cannot be {}, it is a {}", setting.name,
               Quoted(std::string(text)), kWhole ? "whole number" : "number");
  }
  value = parsed;
  return {};
}

Status ParseBool(const Setting& setting, std::string_view text, bool& value) {
  const bool on = text == "on" || text == "true" || text == "1" || text == "yes";
  const bool off = text == "off" || text == "false" || text == "0" || text == "no";
  if (!on && !off) {
    return Err(ErrorCode::kInvalidArgument, "{} cannot be {}, it is on or off", setting.name,
               Quoted(std::string(text)));
  }
  value = on;
  return {};
}

Status ParseList(const Setting& setting, const Json& json, std::vector<std::string>& value) {
  const bool strings = json.is_array() && std::all_of(json.begin(), json.end(),
                                                      [](const Json& e) { return e.is_string(); });
  if (!strings) {
    return Err(ErrorCode::kInvalidArgument, "{} is not an array of strings", setting.name);
  }
  value = json.get<std::vector<std::string>>();
  return {};
}

// Text in double quotes is JSON, so that line ends and leading spaces can be written.
Status ParseString(const Setting& setting, std::string_view text, std::string& value) {
  if (!text.starts_with('"')) {
    value = text;
    return {};
  }
  const Result<Json> json = ParseJson(text, setting.name);
  if (!json || !json->is_string()) {
    return Err(ErrorCode::kInvalidArgument, "{} begins with a quote but is not a JSON string",
               setting.name);
  }
  value = json->get<std::string>();
  return {};
}

Status ParseListText(const Setting& setting, std::string_view text,
                     std::vector<std::string>& value) {
  if (text.starts_with('[')) {
    const Result<Json> json = ParseJson(text, setting.name);
    if (json) return ParseList(setting, *json, value);
    // Not JSON: a stop text may begin with a bracket.
  }
  std::string element;
  LUCID_RETURN_IF_ERROR(ParseString(setting, text, element));
  value = {std::move(element)};
  return {};
}

Status SetFromText(const Setting& setting, std::string_view text) {
  return std::visit(
      [&](auto* value) -> Status {
        using T = std::remove_cvref_t<decltype(*value)>;
        if constexpr (std::is_same_v<T, bool>) {
          return ParseBool(setting, text, *value);
        } else if constexpr (std::is_arithmetic_v<T>) {
          return ParseNumber(setting, text, *value);
        } else if constexpr (std::is_same_v<T, std::string>) {
          return ParseString(setting, text, *value);
        } else {
          return ParseListText(setting, text, *value);
        }
      },
      setting.value);
}

Status SetFromJson(const Setting& setting, const Json& json) {
  return std::visit(
      [&](auto* value) -> Status {
        using T = std::remove_cvref_t<decltype(*value)>;
        if constexpr (std::is_arithmetic_v<T>) {
          return SetFromText(setting, json.dump(-1, ' ', false, Json::error_handler_t::replace));
        } else if constexpr (std::is_same_v<T, std::string>) {
          if (!json.is_string()) {
            return Err(ErrorCode::kInvalidArgument, "{} is not a string", setting.name);
          }
          *value = json.get<std::string>();
          return {};
        } else {
          return ParseList(setting, json, *value);
        }
      },
      setting.value);
}

std::string SettingLine(const Setting& setting) {
  return fmt::format("{} = {}", setting.name, ValueText(setting));
}

}  // namespace

Status CheckSettings(const ChatSettings& settings) {
  LUCID_ASSIGN_OR_RETURN(const SamplerParams params, ToSamplerParams(settings.sampling));
  LUCID_RETURN_IF_ERROR(SamplerChain::Create(params));
  LUCID_RETURN_IF_ERROR(StopMatcher::Create(settings.stop));
  if (settings.max_tokens < -1 || settings.max_tokens == 0) {
    return Err(ErrorCode::kInvalidArgument,
               "n is {}, but must be -1 (until the model ends) or at least 1", settings.max_tokens);
  }
  return {};
}

Status SetSetting(ChatSettings& settings, std::string_view name, std::string_view value) {
  ChatSettings changed = settings;
  LUCID_ASSIGN_OR_RETURN(const Setting setting, Find(changed, name));
  LUCID_RETURN_IF_ERROR(SetFromText(setting, value));
  LUCID_RETURN_IF_ERROR(CheckSettings(changed));
  settings = std::move(changed);
  return {};
}

Result<std::string> DescribeSetting(const ChatSettings& settings, std::string_view name) {
  ChatSettings copy = settings;  // the table points into settings that may be changed
  LUCID_ASSIGN_OR_RETURN(const Setting setting, Find(copy, name));
  return SettingLine(setting);
}

std::string DescribeSettings(const ChatSettings& settings) {
  ChatSettings copy = settings;
  std::string text;
  for (const Setting& setting : Table(copy)) {
    text += fmt::format("  {:<26}  {}\n", SettingLine(setting), setting.help);
  }
  return text;
}

Json SettingsToJson(const ChatSettings& settings) {
  ChatSettings copy = settings;
  Json json = Json::object();
  for (const Setting& setting : Table(copy)) {
    json[std::string(setting.name)] = std::visit(
        [&setting](const auto* value) -> Json {
          using T = std::remove_cvref_t<decltype(*value)>;
          // The shortest text that gives the same float, so that 0.8 is not saved as 0.800000012.
          if constexpr (std::is_same_v<T, float>) {
            return ParseJson(fmt::format("{}", *value), setting.name).value_or(Json(*value));
          }
          return Json(*value);
        },
        setting.value);
  }
  return json;
}

Result<ChatSettings> SettingsFromJson(const Json& json, ChatSettings settings) {
  if (!json.is_object()) {
    return Err(ErrorCode::kInvalidArgument, "the settings are not an object");
  }
  for (const auto& [name, value] : json.items()) {
    LUCID_ASSIGN_OR_RETURN(const Setting setting, Find(settings, name));
    LUCID_RETURN_IF_ERROR(SetFromJson(setting, value));
  }
  LUCID_RETURN_IF_ERROR(CheckSettings(settings));
  return settings;
}

}  // namespace lucid::cli
