// Arguments of a call bound to parameter names, with Python's errors, and typed access to them.
// Entry point: Params.
#pragma once

#include <initializer_list>
#include <string>

#include "text/jinja_value.h"

namespace lucid::jinja {

class Params {
 public:
  // `function` is what errors call it. The first `required` parameters must be given.
  Params(const CallArgs& args, const char* function, std::initializer_list<const char*> names,
         size_t required = 0);

  const Value* operator[](size_t i) const { return values_[i]; }  // null if not given
  const Value& Get(size_t i, const Value& fallback) const {
    return values_[i] != nullptr ? *values_[i] : fallback;
  }
  // Typed values; kType error for another type.
  Int IntOr(size_t i, Int fallback) const;
  bool TruthOr(size_t i, bool fallback) const;
  const std::string& Text(size_t i) const;  // must be given

 private:
  const char* function_;
  std::vector<const Value*> values_;
};

// An int or bool as an index or count; kType error otherwise.
Int AsInt(const Value& value, const char* function);
const std::string& AsText(const Value& value, const char* function);
// An int as a size for building text: negative is 0; the caller charges the budget.
uint64_t ClampSize(Int value);

}  // namespace lucid::jinja
