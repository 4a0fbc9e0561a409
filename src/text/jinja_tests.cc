// The tests of Jinja (`value is NAME`), one row each (jinja_filters.h).
#include <algorithm>
#include <cmath>

#include "text/jinja_args.h"
#include "text/jinja_eval.h"
#include "text/jinja_filters.h"
#include "text/jinja_ops.h"
#include "text/jinja_print.h"
#include "text/jinja_text.h"

namespace lucid::jinja {
namespace {

void NoArguments(const CallArgs& args, const char* name) {
  Params(args, name, {});
}

bool Remainder(Interp& interp, const Value& input, const Value& divisor, Int wanted) {
  Value rest = Arithmetic(interp, BinaryOp::kMod, input, divisor);
  return Equal(rest, Value::OfInt(wanted), interp.budget());
}

bool Odd(Interp& interp, const Value& input, CallArgs& args) {
  NoArguments(args, "odd");
  return Remainder(interp, input, Value::OfInt(2), 1);
}

bool Even(Interp& interp, const Value& input, CallArgs& args) {
  NoArguments(args, "even");
  return Remainder(interp, input, Value::OfInt(2), 0);
}

bool DivisibleBy(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "divisibleby", {"num"}, 1);
  return Remainder(interp, input, *params[0], 0);
}

template <bool (*kTest)(const Value&)>
bool Simple(Interp&, const Value& input, CallArgs& args) {
  NoArguments(args, "test");
  return kTest(input);
}

bool IsDefined(const Value& v) {
  return !v.IsUndefined();
}
bool IsUndefinedValue(const Value& v) {
  return v.IsUndefined();
}
bool IsNone(const Value& v) {
  return v.is(Kind::kNone);
}
bool IsBoolean(const Value& v) {
  return v.is(Kind::kBool);
}
bool IsFalse(const Value& v) {
  return v.is(Kind::kBool) && !v.bool_value();
}
bool IsTrue(const Value& v) {
  return v.is(Kind::kBool) && v.bool_value();
}
bool IsIntegerValue(const Value& v) {
  return v.is(Kind::kInt);
}
bool IsFloatValue(const Value& v) {
  return v.is(Kind::kFloat);
}
bool IsStringValue(const Value& v) {
  return v.IsString();
}
bool IsMapping(const Value& v) {
  return v.is(Kind::kDict);
}
bool IsNumberValue(const Value& v) {
  return v.IsNumber();
}
bool IsEscaped(const Value& v) {
  return v.IsString() && v.str().markup;
}
bool IsSequenceValue(const Value& v) {
  return v.IsUndefined() || v.IsString() || v.IsSequence() || v.is(Kind::kDict) ||
         v.is(Kind::kRange);
}
bool IsIterable(const Value& v) {
  return IsSequenceValue(v) || v.is(Kind::kView) || v.is(Kind::kIterator) || v.is(Kind::kLoop);
}
bool IsCallable(const Value& v) {
  return v.IsUndefined() || v.is(Kind::kFunction) || v.is(Kind::kMacro) || v.is(Kind::kJoiner) ||
         v.is(Kind::kLoop);
}

template <bool kUpper>
bool Cased(Interp& interp, const Value& input, CallArgs& args) {
  NoArguments(args, kUpper ? "upper" : "lower");
  bool any = false;
  std::string text = Str(input, interp.budget());
  for (size_t i = 0, n = 0; i < text.size(); i += n) {
    int32_t c = DecodeAt(text, i, &n);
    if (IsTitle(c) || (kUpper ? IsLower(c) : IsUpper(c))) return false;
    any = any || (kUpper ? IsUpper(c) : IsLower(c));
  }
  return any;
}

template <CompareOp kOp>
bool Compared(Interp& interp, const Value& input, CallArgs& args) {
  if (!args.kw.empty() || args.pos.size() != 1) {
    Fail(ErrorKind::kType, "a comparison test takes one argument");
  }
  return Compare(interp, kOp, input, args.pos[0]);
}

bool SameAs(Interp&, const Value& input, CallArgs& args) {
  Params params(args, "sameas", {"other"}, 1);
  const Value& other = *params[0];
  if (input.kind() != other.kind()) return false;
  if (input.object() || other.object()) return input.object() == other.object();
  if (input.is(Kind::kFloat)) return input.AsDouble() == other.AsDouble();
  return input.int_value() == other.int_value();
}

bool InTest(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "in", {"seq"}, 1);
  return Contains(interp, *params[0], input);
}

bool FilterExists(Interp& interp, const Value& input, CallArgs& args) {
  NoArguments(args, "filter");
  Hash(input, interp.budget());  // Jinja looks it up in a dict
  return input.IsString() && HasFilter(input.text());
}

bool TestExists(Interp& interp, const Value& input, CallArgs& args) {
  NoArguments(args, "test");
  Hash(input, interp.budget());
  return input.IsString() && HasTest(input.text());
}

struct TestRow {
  std::string_view name;
  TestFn fn;
};

constexpr TestRow kRows[] = {
    {"defined", Simple<IsDefined>},
    {"undefined", Simple<IsUndefinedValue>},
    {"none", Simple<IsNone>},
    {"string", Simple<IsStringValue>},
    {"mapping", Simple<IsMapping>},
    {"iterable", Simple<IsIterable>},
    {"sequence", Simple<IsSequenceValue>},
    {"number", Simple<IsNumberValue>},
    {"integer", Simple<IsIntegerValue>},
    {"float", Simple<IsFloatValue>},
    {"boolean", Simple<IsBoolean>},
    {"true", Simple<IsTrue>},
    {"false", Simple<IsFalse>},
    {"escaped", Simple<IsEscaped>},
    {"callable", Simple<IsCallable>},
    {"odd", Odd},
    {"even", Even},
    {"divisibleby", DivisibleBy},
    {"lower", Cased<false>},
    {"upper", Cased<true>},
    {"sameas", SameAs},
    {"in", InTest},
    {"filter", FilterExists},
    {"test", TestExists},
    {"==", Compared<CompareOp::kEq>},
    {"eq", Compared<CompareOp::kEq>},
    {"equalto", Compared<CompareOp::kEq>},
    {"!=", Compared<CompareOp::kNe>},
    {"ne", Compared<CompareOp::kNe>},
    {">", Compared<CompareOp::kGt>},
    {"gt", Compared<CompareOp::kGt>},
    {"greaterthan", Compared<CompareOp::kGt>},
    {">=", Compared<CompareOp::kGe>},
    {"ge", Compared<CompareOp::kGe>},
    {"<", Compared<CompareOp::kLt>},
    {"lt", Compared<CompareOp::kLt>},
    {"lessthan", Compared<CompareOp::kLt>},
    {"<=", Compared<CompareOp::kLe>},
    {"le", Compared<CompareOp::kLe>},
};

}  // namespace

TestFn FindTest(std::string_view name) {
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows),
                                 [&](const TestRow& r) { return r.name == name; });
  return row == std::end(kRows) ? nullptr : row->fn;
}

}  // namespace lucid::jinja
