// The values a template computes with: Python's None, bool, int, float, str, list, tuple, dict and
// the few objects Jinja adds, plus the budget that bounds what a template may use. Entry points:
// Value and FromJson. Neighbours: jinja_text.h (strings), jinja_print.h (str, repr, tojson),
// jinja_ops.h (operators), jinja_eval.h (the interpreter).
//
// Inside namespace lucid::jinja errors travel as TemplateError exceptions, because nearly every
// operation of a template language can fail; jinja_template.cc turns them into Results at the edge
// of the module.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lucid::jinja {

// Python integers have no bound. These have 126 bits, enough for every number of JSON; a result
// that does not fit is an error, never a wrapped value.
__extension__ using Int = __int128;
inline constexpr Int kIntLimit = (Int{1} << 126) - 1;

enum class ErrorKind { kSyntax, kUndefined, kSecurity, kRaised, kType, kValue, kLimit, kRuntime };

struct TemplateError {
  ErrorKind kind = ErrorKind::kRuntime;
  std::string message;
  int line = 0;  // 0: filled in by the interpreter
};

template <typename... Args>
[[noreturn]] void Fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw TemplateError{kind, fmt::format(format, std::forward<Args>(args)...), 0};
}

// What one rendering may use. Bytes are counted as they are made and never given back, so the total
// also bounds the peak.
class Budget {
 public:
  Budget(uint64_t max_steps, uint64_t max_bytes) : steps_(max_steps), bytes_(max_bytes) {}
  void Step(uint64_t n = 1);
  void Bytes(uint64_t n);

 private:
  uint64_t steps_, bytes_;
};

enum class Kind : uint8_t {
  kMissing,  // internal: a name of this scope that has no value yet
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kView,  // dict.keys(), dict.values(), dict.items()
  kRange,
  kIterator,
  kNamespace,
  kFunction,
  kMacro,
  kLoop,
  kCycler,
  kJoiner,
};

// Containers nested deeper than this are refused, so that no recursion over a value can exhaust the
// stack.
inline constexpr uint32_t kMaxValueDepth = 150;

struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
  uint32_t depth = 0;  // nesting of containers below and including this one
};

class Value;
struct StringObj;
struct ListObj;
struct DictObj;
struct IteratorObj;
class Interp;

struct CallArgs {
  std::vector<Value> pos;
  std::vector<std::pair<std::string, Value>> kw;
};

class Value {
 public:
  Value() : Value(Kind::kNone) {}
  static Value None() { return Value(Kind::kNone); }
  static Value Missing() { return Value(Kind::kMissing); }
  static Value Bool(bool b);
  static Value OfInt(Int i);  // kLimit error beyond kIntLimit
  static Value Float(double f);
  static Value String(std::string text, bool markup = false);
  static Value List(std::vector<Value> items);
  static Value Tuple(std::vector<Value> items);
  static Value Dict(std::shared_ptr<DictObj> dict);
  static Value Of(Kind kind, std::shared_ptr<Object> object);
  // An undefined value that says "'NAME' is undefined", or of which object it is no attribute.
  static Value Undefined(std::string_view name);
  static Value UndefinedAttr(const Value& object, const Value& name);
  static Value UndefinedHint(std::string hint, ErrorKind kind = ErrorKind::kUndefined);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool IsUndefined() const { return kind_ == Kind::kUndefined; }
  bool IsString() const { return kind_ == Kind::kString; }
  bool IsNumber() const {
    return kind_ == Kind::kBool || kind_ == Kind::kInt || kind_ == Kind::kFloat;
  }
  bool IsIntegral() const { return kind_ == Kind::kBool || kind_ == Kind::kInt; }
  bool IsSequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }

  bool bool_value() const { return scalar_.i != 0; }
  Int int_value() const { return scalar_.i; }  // kBool or kInt
  double AsDouble() const {
    return kind_ == Kind::kFloat ? scalar_.f : static_cast<double>(scalar_.i);
  }

  const StringObj& str() const;
  const std::string& text() const;  // of a kString
  const std::vector<Value>& items() const;
  DictObj& dict() const;
  template <typename T>
  T& as() const {
    return static_cast<T&>(*object_);
  }
  const std::shared_ptr<Object>& object() const { return object_; }
  uint32_t depth() const { return object_ ? object_->depth : 0; }

 private:
  explicit Value(Kind kind) : kind_(kind) { scalar_.i = 0; }
  union {
    Int i;
    double f;
  } scalar_;
  std::shared_ptr<Object> object_;
  Kind kind_;
};

struct StringObj : Object {
  std::string text;  // UTF-8
  size_t code_points = 0;
  bool markup = false;  // result of |safe or |escape: concatenation escapes the other side
  bool ascii() const { return code_points == text.size(); }
};

struct ListObj : Object {  // list and tuple; never changed after it is made (immutable sandbox)
  std::vector<Value> items;
  Value grouper;  // of the pairs that groupby makes
  bool is_group = false;
};

// Keeps insertion order. Keys compare as in Python (1, 1.0 and true are one key).
struct DictObj : Object {
  const Value* Find(const Value& key, Budget& budget) const;
  const Value* Find(std::string_view key) const;
  void Set(const Value& key, Value value, Budget& budget);  // kType error if unhashable

  std::vector<std::pair<Value, Value>> items;

 private:
  size_t Position(const Value& key, size_t hash, Budget& budget) const;
  std::unordered_multimap<size_t, size_t> index_;  // hash to position, once there are many
};

struct UndefinedObj : Object {
  std::string Message() const;
  std::string hint, name, owner;  // owner: "dict object"; empty for a plain name
  bool element = false;           // "list object has no element 0"
  ErrorKind error = ErrorKind::kUndefined;
};

struct ViewObj : Object {
  enum Mode { kKeys, kValues, kItems };
  std::shared_ptr<DictObj> dict;
  Mode mode = kKeys;
  Value At(size_t i) const;
};

// Bounds of a range, far enough from those of Int that its arithmetic cannot overflow.
inline constexpr Int kRangeLimit = Int{1} << 62;

struct RangeObj : Object {
  Int start = 0, stop = 0, step = 1;
  size_t Length() const;
  Value At(size_t i) const { return Value::OfInt(start + static_cast<Int>(i) * step); }
};

// A one-shot Python iterator. Next is false at the end.
struct IteratorObj : Object {
  std::function<bool(Value*)> next;
  const char* type_name = "generator";
};

struct NamespaceObj : Object {
  DictObj attrs;
};

struct FunctionObj : Object {
  std::string name;
  std::function<Value(Interp&, CallArgs&)> call;
};

struct CyclerObj : Object {
  std::vector<Value> items;
  size_t pos = 0;
};

struct JoinerObj : Object {
  Value separator;
  bool used = false;
};

// Python's type(v).__name__, e.g. "str", "NoneType".
const char* TypeName(const Value& value);
// How error messages of Jinja name an object, e.g. "dict object", "None".
std::string ObjectName(const Value& value);
bool Truth(const Value& value);
// Python ==; never fails except on the budget.
bool Equal(const Value& a, const Value& b, Budget& budget);
// Python <; kType error for types without an order.
bool Less(const Value& a, const Value& b, Budget& budget, const char* op = "<");
size_t Hash(const Value& value, Budget& budget);
[[noreturn]] void FailUndefined(const Value& value);

// JSON to values; kLimit error if nested too deeply.
Value FromJson(const nlohmann::ordered_json& json, uint32_t depth = 0);

}  // namespace lucid::jinja
