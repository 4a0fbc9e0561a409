// See jinja_value.h.
#include "text/jinja_value.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "text/jinja_print.h"
#include "text/jinja_text.h"

namespace lucid::jinja {
namespace {

constexpr size_t kIndexFrom = 9;  // below this a linear scan is faster than hashing
constexpr size_t kNotFound = static_cast<size_t>(-1);

uint32_t DepthAbove(uint32_t below) {
  if (below + 1 > kMaxValueDepth) {
    Fail(ErrorKind::kLimit, "a value is nested more than {} levels deep", kMaxValueDepth);
  }
  return below + 1;
}

Value MakeSequence(Kind kind, std::vector<Value> items) {
  auto list = std::make_shared<ListObj>();
  uint32_t below = 0;
  for (const Value& item : items) below = std::max(below, item.depth());
  list->depth = DepthAbove(below);
  list->items = std::move(items);
  return Value::Of(kind, std::move(list));
}

// Int against double without rounding the integer first.
int CompareIntDouble(Int i, double d) {
  if (d >= 1e38) return -1;
  if (d <= -1e38) return 1;
  double whole = std::floor(d);
  Int w = static_cast<Int>(whole);
  if (i != w) return i < w ? -1 : 1;
  return d > whole ? -1 : 0;
}

bool NumbersEqual(const Value& a, const Value& b) {
  if (a.IsIntegral() && b.IsIntegral()) return a.int_value() == b.int_value();
  if (a.is(Kind::kFloat) && b.is(Kind::kFloat)) return a.AsDouble() == b.AsDouble();
  const Value& whole = a.is(Kind::kFloat) ? b : a;
  double d = a.is(Kind::kFloat) ? a.AsDouble() : b.AsDouble();
  return !std::isnan(d) && CompareIntDouble(whole.int_value(), d) == 0;
}

bool NumberLess(const Value& a, const Value& b) {
  if (a.IsIntegral() && b.IsIntegral()) return a.int_value() < b.int_value();
  double x = a.AsDouble();
  double y = b.AsDouble();
  if (std::isnan(x) || std::isnan(y)) return false;
  if (a.IsIntegral()) return CompareIntDouble(a.int_value(), y) < 0;
  if (b.IsIntegral()) return CompareIntDouble(b.int_value(), x) > 0;
  return x < y;
}

bool DictsEqual(const DictObj& a, const DictObj& b, Budget& budget) {
  if (a.items.size() != b.items.size()) return false;
  for (const auto& [key, value] : a.items) {
    const Value* other = b.Find(key, budget);
    if (other == nullptr || !Equal(value, *other, budget)) return false;
  }
  return true;
}

bool RangesEqual(const RangeObj& a, const RangeObj& b) {
  size_t n = a.Length();
  if (n != b.Length()) return false;
  return n == 0 || (a.start == b.start && (n == 1 || a.step == b.step));
}

}  // namespace

void Budget::Step(uint64_t n) {
  if (n > steps_) Fail(ErrorKind::kLimit, "the template takes too many steps");
  steps_ -= n;
}

void Budget::Bytes(uint64_t n) {
  if (n > bytes_) Fail(ErrorKind::kLimit, "the template produces too much text");
  bytes_ -= n;
  Step(n / 256);
}

Value Value::Bool(bool b) {
  Value v(Kind::kBool);
  v.scalar_.i = b ? 1 : 0;
  return v;
}

Value Value::OfInt(Int i) {
  if (i > kIntLimit || i < -kIntLimit) {
    Fail(ErrorKind::kLimit, "an integer is larger than the 126 bits that templates can use here");
  }
  Value v(Kind::kInt);
  v.scalar_.i = i;
  return v;
}

Value Value::Float(double f) {
  Value v(Kind::kFloat);
  v.scalar_.f = f;
  return v;
}

Value Value::String(std::string text, bool markup) {
  auto object = std::make_shared<StringObj>();
  object->code_points = CountCodePoints(text);
  object->text = std::move(text);
  object->markup = markup;
  return Of(Kind::kString, std::move(object));
}

Value Value::List(std::vector<Value> items) {
  return MakeSequence(Kind::kList, std::move(items));
}
Value Value::Tuple(std::vector<Value> items) {
  return MakeSequence(Kind::kTuple, std::move(items));
}

Value Value::Dict(std::shared_ptr<DictObj> dict) {
  uint32_t below = 0;
  for (const auto& [key, value] : dict->items) {
    below = std::max({below, key.depth(), value.depth()});
  }
  dict->depth = DepthAbove(below);
  return Of(Kind::kDict, std::move(dict));
}

Value Value::Of(Kind kind, std::shared_ptr<Object> object) {
  Value v(kind);
  v.object_ = std::move(object);
  return v;
}

Value Value::Undefined(std::string_view name) {
  auto object = std::make_shared<UndefinedObj>();
  object->name = name;
  return Of(Kind::kUndefined, std::move(object));
}

Value Value::UndefinedAttr(const Value& owner, const Value& name) {
  auto object = std::make_shared<UndefinedObj>();
  object->owner = ObjectName(owner);
  object->element = !name.IsString();
  if (name.IsString()) {
    object->name = name.text();
  } else {
    object->name = name.depth() == 0 ? ShortRepr(name) : TypeName(name);
  }
  return Of(Kind::kUndefined, std::move(object));
}

Value Value::UndefinedHint(std::string hint, ErrorKind kind) {
  auto object = std::make_shared<UndefinedObj>();
  object->hint = std::move(hint);
  object->error = kind;
  return Of(Kind::kUndefined, std::move(object));
}

const StringObj& Value::str() const {
  return as<StringObj>();
}
const std::string& Value::text() const {
  return as<StringObj>().text;
}
const std::vector<Value>& Value::items() const {
  return as<ListObj>().items;
}
DictObj& Value::dict() const {
  return as<DictObj>();
}

std::string UndefinedObj::Message() const {
  if (!hint.empty()) return hint;
  if (owner.empty()) return fmt::format("'{}' is undefined", name);
  if (element) return fmt::format("{} has no element {}", owner, name);
  return fmt::format("'{}' has no attribute '{}'", owner, name);
}

void FailUndefined(const Value& value) {
  const auto& undefined = value.as<UndefinedObj>();
  throw TemplateError{undefined.error, undefined.Message(), 0};
}

Value ViewObj::At(size_t i) const {
  const auto& [key, value] = dict->items[i];
  if (mode == kKeys) return key;
  if (mode == kValues) return value;
  return Value::Tuple({key, value});
}

size_t RangeObj::Length() const {
  Int n = step > 0 ? (stop - start + step - 1) / step : (start - stop - step - 1) / -step;
  return n > 0 ? static_cast<size_t>(n) : 0;
}

size_t DictObj::Position(const Value& key, size_t hash, Budget& budget) const {
  if (items.size() < kIndexFrom) {
    for (size_t i = 0; i < items.size(); ++i) {
      if (Equal(items[i].first, key, budget)) return i;
    }
    return kNotFound;
  }
  auto [begin, end] = index_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (Equal(items[it->second].first, key, budget)) return it->second;
  }
  return kNotFound;
}

const Value* DictObj::Find(const Value& key, Budget& budget) const {
  size_t at = Position(key, Hash(key, budget), budget);
  return at == kNotFound ? nullptr : &items[at].second;
}

const Value* DictObj::Find(std::string_view key) const {
  for (const auto& [k, v] : items) {
    if (k.IsString() && k.text() == key) return &v;
  }
  return nullptr;
}

void DictObj::Set(const Value& key, Value value, Budget& budget) {
  size_t hash = Hash(key, budget);
  size_t at = Position(key, hash, budget);
  if (at != kNotFound) {
    items[at].second = std::move(value);
    return;
  }
  budget.Bytes(sizeof(std::pair<Value, Value>));
  items.emplace_back(key, std::move(value));
  if (items.size() == kIndexFrom) {
    for (size_t i = 0; i < items.size(); ++i) index_.emplace(Hash(items[i].first, budget), i);
  } else if (items.size() > kIndexFrom) {
    index_.emplace(hash, items.size() - 1);
  }
}

const char* TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return value.str().markup ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kView: {
      constexpr const char* kNames[] = {"dict_keys", "dict_values", "dict_items"};
      return kNames[value.as<ViewObj>().mode];
    }
    case Kind::kRange:
      return "range";
    case Kind::kIterator:
      return value.as<IteratorObj>().type_name;
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kFunction:
      return "function";
    case Kind::kMacro:
      return "Macro";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kCycler:
      return "Cycler";
    case Kind::kJoiner:
      return "Joiner";
  }
  return "object";
}

std::string ObjectName(const Value& value) {
  return value.is(Kind::kNone) ? "None" : fmt::format("{} object", TypeName(value));
}

bool Truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.int_value() != 0;
    case Kind::kFloat:
      return value.AsDouble() != 0;
    case Kind::kString:
      return !value.text().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !value.items().empty();
    case Kind::kDict:
      return !value.dict().items.empty();
    case Kind::kView:
      return !value.as<ViewObj>().dict->items.empty();
    case Kind::kRange:
      return value.as<RangeObj>().Length() != 0;
    default:
      return true;
  }
}

bool Equal(const Value& a, const Value& b, Budget& budget) {
  budget.Step();
  if (a.IsNumber() && b.IsNumber()) return NumbersEqual(a, b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      return a.object() == b.object() || a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple: {
      if (a.object() == b.object()) return true;
      const auto& x = a.items();
      const auto& y = b.items();
      if (x.size() != y.size()) return false;
      for (size_t i = 0; i < x.size(); ++i) {
        if (!Equal(x[i], y[i], budget)) return false;
      }
      return true;
    }
    case Kind::kDict:
      return a.object() == b.object() || DictsEqual(a.dict(), b.dict(), budget);
    case Kind::kRange:
      return RangesEqual(a.as<RangeObj>(), b.as<RangeObj>());
    default:
      return a.object() == b.object();
  }
}

bool Less(const Value& a, const Value& b, Budget& budget, const char* op) {
  budget.Step();
  if (a.IsNumber() && b.IsNumber()) return NumberLess(a, b);
  if (a.IsUndefined()) FailUndefined(a);
  if (b.IsUndefined()) FailUndefined(b);
  if (a.IsString() && b.IsString()) return a.text() < b.text();  // UTF-8 order is code point order
  if (a.IsSequence() && a.kind() == b.kind()) {
    const auto& x = a.items();
    const auto& y = b.items();
    for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
      if (!Equal(x[i], y[i], budget)) return Less(x[i], y[i], budget, op);
    }
    return x.size() < y.size();
  }
  Fail(ErrorKind::kType, "'{}' not supported between instances of '{}' and '{}'", op, TypeName(a),
       TypeName(b));
}

size_t Hash(const Value& value, Budget& budget) {
  budget.Step();
  switch (value.kind()) {
    case Kind::kBool:
    case Kind::kInt:
      return std::hash<double>{}(static_cast<double>(value.int_value()));
    case Kind::kFloat:
      return std::hash<double>{}(value.AsDouble());
    case Kind::kString:
      return std::hash<std::string>{}(value.text());
    case Kind::kTuple: {
      size_t hash = 0x345678;
      for (const Value& item : value.items()) hash = hash * 1000003 ^ Hash(item, budget);
      return hash;
    }
    case Kind::kList:
    case Kind::kDict:
      Fail(ErrorKind::kType, "unhashable type: '{}'", TypeName(value));
    default:
      return std::hash<int>{}(static_cast<int>(value.kind()));
  }
}

Value FromJson(const nlohmann::ordered_json& json, uint32_t depth) {
  if (depth >= kMaxValueDepth) {
    Fail(ErrorKind::kLimit, "the messages or tools are nested more than {} levels deep",
         kMaxValueDepth);
  }
  using Type = nlohmann::ordered_json::value_t;
  switch (json.type()) {
    case Type::boolean:
      return Value::Bool(json.get<bool>());
    case Type::number_integer:
      return Value::OfInt(json.get<int64_t>());
    case Type::number_unsigned:
      return Value::OfInt(static_cast<Int>(json.get<uint64_t>()));
    case Type::number_float:
      return Value::Float(json.get<double>());
    case Type::string:
      return Value::String(json.get_ref<const std::string&>());
    case Type::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(FromJson(item, depth + 1));
      return Value::List(std::move(items));
    }
    case Type::object: {
      auto dict = std::make_shared<DictObj>();
      Budget unbounded(UINT64_MAX, UINT64_MAX);  // the size is that of the caller's own JSON
      for (const auto& [key, item] : json.items()) {
        dict->Set(Value::String(key), FromJson(item, depth + 1), unbounded);
      }
      return Value::Dict(std::move(dict));
    }
    default:
      return Value::None();
  }
}

}  // namespace lucid::jinja
