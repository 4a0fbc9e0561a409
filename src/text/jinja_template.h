// A parsed template: source in, text out. Entry point of the Jinja evaluator for the rest of the
// program; chat_template.h is its user.
#pragma once

#include <ctime>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/jinja_eval.h"

namespace lucid::jinja {

class Template {
 public:
  // kInvalidFile with line and cause if `source` is not a template.
  static Result<Template> Parse(std::string_view source);

  // Renders with the members of `context` (an object) as variables. kInvalidArgument with line
  // and cause, which for raise_exception is its message. `now` is the time strftime_now sees; the
  // clock's if it is not given. Threads may render one Template at the same time.
  Result<std::string> Render(const nlohmann::ordered_json& context, const Limits& limits = {},
                             std::optional<std::time_t> now = std::nullopt) const;

 private:
  explicit Template(std::shared_ptr<const Program> program) : program_(std::move(program)) {}
  std::shared_ptr<const Program> program_;
};

// JSON text as the tojson filter writes it. kInvalidArgument if `json` is nested too deeply.
Result<std::string> DumpJson(const nlohmann::ordered_json& json);

}  // namespace lucid::jinja
