// See jinja_template.h.
#include "text/jinja_template.h"

#include <nlohmann/json.hpp>

#include "text/jinja_parse.h"
#include "text/jinja_print.h"

namespace lucid::jinja {
namespace {

std::string Describe(const TemplateError& error) {
  if (error.kind == ErrorKind::kRaised) {
    return fmt::format("the chat template refused the messages at line {}: {}", error.line,
                       error.message);
  }
  return fmt::format("chat template, line {}: {}", error.line, error.message);
}

}  // namespace

Result<Template> Template::Parse(std::string_view source) {
  try {
    return Template(std::make_shared<const Program>(ParseTemplate(source)));
  } catch (const TemplateError& error) {
    return Err(ErrorCode::kInvalidFile, "{}", Describe(error));
  }
}

Result<std::string> Template::Render(const nlohmann::ordered_json& context, const Limits& limits,
                                     std::optional<std::time_t> now) const {
  try {
    std::vector<std::pair<std::string, Value>> variables;
    for (const auto& [name, value] : context.items()) variables.emplace_back(name, FromJson(value));
    return Interp(*program_, limits, now).Render(variables);
  } catch (const TemplateError& error) {
    return Err(ErrorCode::kInvalidArgument, "{}", Describe(error));
  }
}

Result<std::string> DumpJson(const nlohmann::ordered_json& json) {
  try {
    Limits limits;
    Budget budget(limits.steps, limits.bytes);
    return ToJson(FromJson(json), {}, budget);
  } catch (const TemplateError& error) {
    return Err(ErrorCode::kInvalidArgument, "{}", error.message);
  }
}

}  // namespace lucid::jinja
