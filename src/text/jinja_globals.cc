// The functions every template can call: range, dict, namespace, cycler, joiner of Jinja,
// raise_exception and strftime_now of transformers (jinja_filters.h).
#include <algorithm>
#include <clocale>
#include <ctime>
#include <memory>

#include "text/jinja_args.h"
#include "text/jinja_eval.h"
#include "text/jinja_filters.h"
#include "text/jinja_methods.h"
#include "text/jinja_print.h"
#include "text/jinja_text.h"

namespace lucid::jinja {
namespace {

constexpr size_t kMaxRange = 100'000;  // MAX_RANGE of Jinja's sandbox

Value Range(Interp&, CallArgs& args) {
  if (!args.kw.empty() || args.pos.empty() || args.pos.size() > 3) {
    Fail(ErrorKind::kType, "range() takes 1 to 3 positional arguments");
  }
  auto number = [&](size_t i) {
    Int value = AsInt(args.pos[i], "range");
    if (value > kRangeLimit || value < -kRangeLimit) {
      Fail(ErrorKind::kLimit, "a bound of range() is too large");
    }
    return value;
  };
  auto range = std::make_shared<RangeObj>();
  range->start = args.pos.size() > 1 ? number(0) : 0;
  range->stop = number(args.pos.size() > 1 ? 1 : 0);
  range->step = args.pos.size() > 2 ? number(2) : 1;
  if (range->step == 0) Fail(ErrorKind::kValue, "range() arg 3 must not be zero");
  if (range->Length() > kMaxRange) {
    Fail(ErrorKind::kLimit, "Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).",
         kMaxRange);
  }
  return Value::Of(Kind::kRange, std::move(range));
}

// dict(mapping or pairs, **more).
void FillDict(Interp& interp, const CallArgs& args, DictObj* dict) {
  Budget& budget = interp.budget();
  if (args.pos.size() > 1) Fail(ErrorKind::kType, "dict expected at most 1 argument");
  if (args.pos.size() == 1 && args.pos[0].is(Kind::kDict)) {
    for (const auto& [key, value] : args.pos[0].dict().items) dict->Set(key, value, budget);
  } else if (args.pos.size() == 1) {
    for (const Value& pair : interp.ToVector(args.pos[0])) {
      std::vector<Value> parts = interp.ToVector(pair);
      if (parts.size() != 2) Fail(ErrorKind::kValue, "dict() needs pairs of key and value");
      dict->Set(parts[0], parts[1], budget);
    }
  }
  for (const auto& [key, value] : args.kw) dict->Set(Value::String(key), value, budget);
}

Value Dict(Interp& interp, CallArgs& args) {
  auto dict = std::make_shared<DictObj>();
  FillDict(interp, args, dict.get());
  return Value::Dict(std::move(dict));
}

Value Namespace(Interp& interp, CallArgs& args) {
  Value space = interp.MakeNamespace();
  DictObj& attrs = space.as<NamespaceObj>().attrs;
  FillDict(interp, args, &attrs);
  for (const auto& [key, value] : attrs.items) {
    if (key.IsString() && key.text().starts_with("_")) {
      Fail(ErrorKind::kSecurity, "a namespace cannot store the underscore-prefixed attribute '{}'",
           key.text());
    }
  }
  return space;
}

uint32_t DepthOf(const std::vector<Value>& items) {
  uint32_t depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  if (depth + 1 > kMaxValueDepth) Fail(ErrorKind::kLimit, "a value is nested too deeply");
  return depth + 1;
}

Value Cycler(Interp&, CallArgs& args) {
  if (!args.kw.empty() || args.pos.empty()) {
    Fail(ErrorKind::kRuntime, "cycler needs at least one item and no keyword arguments");
  }
  auto cycler = std::make_shared<CyclerObj>();
  cycler->depth = DepthOf(args.pos);
  cycler->items = args.pos;
  return Value::Of(Kind::kCycler, std::move(cycler));
}

Value Joiner(Interp&, CallArgs& args) {
  Params params(args, "joiner", {"sep"});
  auto joiner = std::make_shared<JoinerObj>();
  joiner->separator = params.Get(0, Value::String(", "));
  joiner->depth = DepthOf({joiner->separator});
  return Value::Of(Kind::kJoiner, std::move(joiner));
}

Value RaiseException(Interp& interp, CallArgs& args) {
  Params params(args, "raise_exception", {"message"}, 1);
  throw TemplateError{ErrorKind::kRaised, Str(*params[0], interp.budget()), 0};
}

// Local time in the format of strftime, with English names whatever the locale of the program.
Value StrftimeNow(Interp& interp, CallArgs& args) {
  Params params(args, "strftime_now", {"format"}, 1);
  const std::string& format = params.Text(0);
  if (format.empty()) return Value::String({});
  std::time_t now = interp.now().value_or(std::time(nullptr));
  std::tm local{};
  localtime_r(&now, &local);
  constexpr size_t kMaxText = 1024;
  char buffer[kMaxText];
  static const locale_t kEnglish = newlocale(LC_ALL_MASK, "C", nullptr);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  size_t n = strftime_l(buffer, sizeof buffer, format.c_str(), &local, kEnglish);
#pragma GCC diagnostic pop
  if (n == 0 && format != "%p" && format != "%P") {
    Fail(ErrorKind::kLimit, "strftime_now: the format gives more than {} bytes", kMaxText);
  }
  return interp.MakeString(std::string(buffer, n));
}

struct GlobalRow {
  std::string_view name;
  Value (*fn)(Interp&, CallArgs&);
};

constexpr GlobalRow kRows[] = {
    {"range", Range},
    {"dict", Dict},
    {"namespace", Namespace},
    {"cycler", Cycler},
    {"joiner", Joiner},
    {"raise_exception", RaiseException},
    {"strftime_now", StrftimeNow},
};

}  // namespace

Value FindGlobal(std::string_view name) {
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows),
                                 [&](const GlobalRow& r) { return r.name == name; });
  return row == std::end(kRows) ? Value::Missing() : MakeFunction(std::string(name), row->fn);
}

}  // namespace lucid::jinja
