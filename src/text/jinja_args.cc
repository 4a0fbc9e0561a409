// See jinja_args.h.
#include "text/jinja_args.h"

#include <algorithm>

namespace lucid::jinja {

Params::Params(const CallArgs& args, const char* function, std::initializer_list<const char*> names,
               size_t required)
    : function_(function), values_(names.size(), nullptr) {
  if (args.pos.size() > names.size()) {
    Fail(ErrorKind::kType, "{}() takes at most {} arguments ({} given)", function, names.size(),
         args.pos.size());
  }
  for (size_t i = 0; i < args.pos.size(); ++i) values_[i] = &args.pos[i];
  for (const auto& [key, value] : args.kw) {
    const auto* it = std::find_if(names.begin(), names.end(),
                                  [&, &name = key](const char* n) { return name == n; });
    if (it == names.end()) {
      Fail(ErrorKind::kType, "{}() got an unexpected keyword argument '{}'", function, key);
    }
    auto at = static_cast<size_t>(it - names.begin());
    if (values_[at] != nullptr) {
      Fail(ErrorKind::kType, "{}() got multiple values for argument '{}'", function, key);
    }
    values_[at] = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (values_[i] == nullptr) {
      Fail(ErrorKind::kType, "{}() is missing the argument '{}'", function, names.begin()[i]);
    }
  }
}

Int Params::IntOr(size_t i, Int fallback) const {
  return values_[i] != nullptr ? AsInt(*values_[i], function_) : fallback;
}

bool Params::TruthOr(size_t i, bool fallback) const {
  return values_[i] != nullptr ? Truth(*values_[i]) : fallback;
}

const std::string& Params::Text(size_t i) const {
  return AsText(*values_[i], function_);
}

Int AsInt(const Value& value, const char* function) {
  if (value.IsUndefined()) FailUndefined(value);
  if (!value.IsIntegral()) {
    Fail(ErrorKind::kType, "{}: '{}' object cannot be interpreted as an integer", function,
         TypeName(value));
  }
  return value.int_value();
}

const std::string& AsText(const Value& value, const char* function) {
  if (!value.IsString()) {
    Fail(ErrorKind::kType, "{}() argument must be str, not {}", function, TypeName(value));
  }
  return value.text();
}

uint64_t ClampSize(Int value) {
  if (value <= 0) return 0;
  constexpr Int kMost = Int{1} << 62;
  return static_cast<uint64_t>(std::min(value, kMost));
}

}  // namespace lucid::jinja
