// See jinja_methods.h. Methods of list, tuple, dict, range and numbers, and of Jinja's cycler.
#include "text/jinja_methods.h"

#include <algorithm>
#include <cmath>

#include "text/jinja_args.h"
#include "text/jinja_eval.h"

namespace lucid::jinja {
namespace {

Value IndexIn(Interp& interp, const Value& self, CallArgs& args) {
  Params params(args, "index", {"value", "start", "stop"}, 1);
  std::vector<Value> items = interp.ToVector(self);
  auto length = static_cast<Int>(items.size());
  auto position = [&](size_t i, Int fallback) {
    Int at = params.IntOr(i, fallback);
    return at < 0 ? std::max<Int>(at + length, 0) : at;
  };
  Int stop = std::min(position(2, length), length);
  for (Int i = position(1, 0); i < stop; ++i) {
    if (Equal(items[static_cast<size_t>(i)], *params[0], interp.budget())) return Value::OfInt(i);
  }
  Fail(ErrorKind::kValue, "the value is not in the {}", TypeName(self));
}

Value CountIn(Interp& interp, const Value& self, CallArgs& args) {
  Params params(args, "count", {"value"}, 1);
  Int count = 0;
  for (const Value& item : interp.ToVector(self)) {
    count += Equal(item, *params[0], interp.budget()) ? 1 : 0;
  }
  return Value::OfInt(count);
}

Value CopyList(Interp&, const Value& self, CallArgs& args) {
  Params params(args, "copy", {});
  return Value::List(self.items());
}

template <ViewObj::Mode kMode>
Value View(Interp&, const Value& self, CallArgs& args) {
  Params params(args, "dict view", {});
  auto view = std::make_shared<ViewObj>();
  view->dict = std::static_pointer_cast<DictObj>(self.object());
  view->mode = kMode;
  view->depth = self.depth();
  return Value::Of(Kind::kView, std::move(view));
}

Value Get(Interp& interp, const Value& self, CallArgs& args) {
  if (!args.kw.empty()) Fail(ErrorKind::kType, "dict.get() takes no keyword arguments");
  Params params(args, "get", {"key", "default"}, 1);
  const Value* found = self.dict().Find(*params[0], interp.budget());
  return found != nullptr ? *found : params.Get(1, Value::None());
}

Value CopyDict(Interp& interp, const Value& self, CallArgs& args) {
  Params params(args, "copy", {});
  auto copy = std::make_shared<DictObj>();
  for (const auto& [key, value] : self.dict().items) copy->Set(key, value, interp.budget());
  return Value::Dict(std::move(copy));
}

Value FromKeys(Interp& interp, const Value&, CallArgs& args) {
  Params params(args, "fromkeys", {"iterable", "value"}, 1);
  auto dict = std::make_shared<DictObj>();
  for (const Value& key : interp.ToVector(*params[0])) {
    dict->Set(key, params.Get(1, Value::None()), interp.budget());
  }
  return Value::Dict(std::move(dict));
}

Value BitLength(Interp&, const Value& self, CallArgs& args) {
  Params params(args, "bit_length", {});
  Int value = self.int_value();
  Int bits = 0;
  for (value = value < 0 ? -value : value; value != 0; value /= 2) ++bits;
  return Value::OfInt(bits);
}

Value IsInteger(Interp&, const Value& self, CallArgs& args) {
  Params params(args, "is_integer", {});
  return Value::Bool(std::isfinite(self.AsDouble()) &&
                     self.AsDouble() == std::floor(self.AsDouble()));
}

Value NextOf(Interp&, const Value& self, CallArgs& args) {
  Params params(args, "next", {});
  auto& cycler = self.as<CyclerObj>();
  Value item = cycler.items[cycler.pos];
  cycler.pos = (cycler.pos + 1) % cycler.items.size();
  return item;
}

Value Reset(Interp&, const Value& self, CallArgs& args) {
  Params params(args, "reset", {});
  self.as<CyclerObj>().pos = 0;
  return Value::None();
}

constexpr MethodRow kListRows[] = {{"index", IndexIn}, {"count", CountIn}, {"copy", CopyList}};
constexpr MethodRow kTupleRows[] = {{"index", IndexIn}, {"count", CountIn}};
constexpr MethodRow kDictRows[] = {{"get", Get},
                                   {"items", View<ViewObj::kItems>},
                                   {"keys", View<ViewObj::kKeys>},
                                   {"values", View<ViewObj::kValues>},
                                   {"copy", CopyDict},
                                   {"fromkeys", FromKeys}};
constexpr MethodRow kIntRows[] = {{"bit_length", BitLength}};
constexpr MethodRow kFloatRows[] = {{"is_integer", IsInteger}};
constexpr MethodRow kCyclerRows[] = {{"next", NextOf}, {"reset", Reset}};

template <size_t kCount>
MethodFn FindIn(const MethodRow (&rows)[kCount], std::string_view name) {
  for (const MethodRow& row : rows) {
    if (row.name == name) return row.fn;
  }
  return nullptr;
}

constexpr std::string_view kListMutators[] = {"append", "clear", "pop",    "reverse",
                                              "insert", "sort",  "extend", "remove"};
constexpr std::string_view kDictMutators[] = {"clear", "pop", "popitem", "setdefault", "update"};

}  // namespace

MethodFn FindMethod(const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Kind::kString:
      return FindStringMethod(name);
    case Kind::kList:
      return FindIn(kListRows, name);
    case Kind::kTuple:
    case Kind::kRange:
      return FindIn(kTupleRows, name);
    case Kind::kDict:
      return FindIn(kDictRows, name);
    case Kind::kBool:
    case Kind::kInt:
      return FindIn(kIntRows, name);
    case Kind::kFloat:
      return FindIn(kFloatRows, name);
    case Kind::kCycler:
      return FindIn(kCyclerRows, name);
    case Kind::kFunction:  // the global dict
      return object.as<FunctionObj>().name == "dict" && name == "fromkeys" ? FromKeys : nullptr;
    default:
      return nullptr;
  }
}

bool IsMutator(const Value& object, std::string_view name) {
  auto in = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  if (object.is(Kind::kList)) return in(kListMutators);
  return object.is(Kind::kDict) && in(kDictMutators);
}

bool PlainAttr(const Value& object, std::string_view name, Value* result) {
  if (object.is(Kind::kTuple) && object.as<ListObj>().is_group) {
    if (name != "grouper" && name != "list") return false;
    *result = object.items()[name == "list" ? 1 : 0];
    return true;
  }
  if (object.IsIntegral() && (name == "real" || name == "numerator")) {
    *result = Value::OfInt(object.int_value());
    return true;
  }
  if (object.IsIntegral() && (name == "imag" || name == "denominator")) {
    *result = Value::OfInt(name == "imag" ? 0 : 1);
    return true;
  }
  if (object.is(Kind::kFloat) && (name == "real" || name == "imag")) {
    *result = name == "real" ? object : Value::Float(0.0);
    return true;
  }
  if (object.is(Kind::kCycler) && name == "current") {
    const auto& cycler = object.as<CyclerObj>();
    *result = cycler.items[cycler.pos];
    return true;
  }
  if (object.is(Kind::kRange) && (name == "start" || name == "stop" || name == "step")) {
    const auto& range = object.as<RangeObj>();
    *result = Value::OfInt(name == "start"  ? range.start
                           : name == "stop" ? range.stop
                                            : range.step);
    return true;
  }
  return false;
}

}  // namespace lucid::jinja
