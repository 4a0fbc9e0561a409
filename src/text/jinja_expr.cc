// The expression half of the interpreter (jinja_eval.h): evaluation, calls, attributes, iteration.
#include <algorithm>

#include "text/jinja_eval.h"
#include "text/jinja_filters.h"
#include "text/jinja_methods.h"
#include "text/jinja_ops.h"
#include "text/jinja_print.h"
#include "text/jinja_text.h"

namespace lucid::jinja {
namespace {

Value UnsafeAttr(const Value& object, std::string_view name) {
  return Value::UndefinedHint(
      fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, TypeName(object)),
      ErrorKind::kSecurity);
}

bool IsDunder(std::string_view name) {
  return name.size() > 4 && name.substr(0, 2) == "__" && name.substr(name.size() - 2) == "__";
}

template <typename At>
std::shared_ptr<IteratorObj> Indexed(const Value& owner, size_t count, At at, const char* type) {
  auto iterator = std::make_shared<IteratorObj>();
  iterator->type_name = type;
  iterator->depth = owner.depth();
  iterator->next = [owner, count, at, i = size_t{0}](Value* out) mutable {
    if (i >= count) return false;
    *out = at(owner, i++);
    return true;
  };
  return iterator;
}

std::shared_ptr<IteratorObj> Characters(const Value& value) {
  auto iterator = std::make_shared<IteratorObj>();
  iterator->type_name = "str_iterator";
  iterator->next = [value, at = size_t{0}](Value* out) mutable {
    const std::string& text = value.text();
    if (at >= text.size()) return false;
    size_t n = 0;
    DecodeAt(text, at, &n);
    *out = Value::String(text.substr(at, n));
    at += n;
    return true;
  };
  return iterator;
}

}  // namespace

std::optional<size_t> LengthOf(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return value.str().code_points;
    case Kind::kList:
    case Kind::kTuple:
      return value.items().size();
    case Kind::kDict:
      return value.dict().items.size();
    case Kind::kView:
      return value.as<ViewObj>().dict->items.size();
    case Kind::kRange:
      return value.as<RangeObj>().Length();
    case Kind::kLoop:
      return value.as<LoopObj>().Length();
    default:
      return std::nullopt;
  }
}

Value MakeFunction(std::string name, std::function<Value(Interp&, CallArgs&)> call,
                   uint32_t depth) {
  auto function = std::make_shared<FunctionObj>();
  function->name = std::move(name);
  function->call = std::move(call);
  function->depth = depth;
  return Value::Of(Kind::kFunction, std::move(function));
}

std::shared_ptr<IteratorObj> Interp::Iterate(const Value& value) {
  using V = const Value&;
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
      return Indexed(
          Value::None(), 0, [](V owner, size_t) { return owner; }, "generator");
    case Kind::kString:
      return Characters(value);
    case Kind::kList:
    case Kind::kTuple:
      return Indexed(
          value, value.items().size(), [](V v, size_t i) { return v.items()[i]; },
          value.is(Kind::kList) ? "list_iterator" : "tuple_iterator");
    case Kind::kDict:
      return Indexed(
          value, value.dict().items.size(), [](V v, size_t i) { return v.dict().items[i].first; },
          "dict_keyiterator");
    case Kind::kView:
      return Indexed(
          value, value.as<ViewObj>().dict->items.size(),
          [](V v, size_t i) { return v.as<ViewObj>().At(i); }, "dict_itemiterator");
    case Kind::kRange:
      return Indexed(
          value, value.as<RangeObj>().Length(),
          [](V v, size_t i) { return v.as<RangeObj>().At(i); }, "range_iterator");
    case Kind::kIterator:
      return std::static_pointer_cast<IteratorObj>(value.object());
    case Kind::kLoop: {  // items are pairs (item, loop), as Jinja's loop object gives them
      auto iterator = std::make_shared<IteratorObj>();
      iterator->next = [value](Value* out) {
        Value item;
        if (!value.as<LoopObj>().Next(&item)) return false;
        *out = Value::Tuple({item, value});
        return true;
      };
      return iterator;
    }
    default:
      Fail(ErrorKind::kType, "'{}' object is not iterable", TypeName(value));
  }
}

std::vector<Value> Interp::ToVector(const Value& value) {
  std::vector<Value> items;
  auto iterator = Iterate(value);
  Value item;
  while (iterator->next(&item)) {
    budget_.Bytes(sizeof(Value) * (item.IsString() ? 3 : 1));
    budget_.Step();
    items.push_back(item);
  }
  return items;
}

Value Interp::EvalName(NameId name) {
  for (const Frame* frame = frame_.get(); frame != nullptr; frame = frame->parent.get()) {
    if (const Value* value = frame->Find(name)) {
      if (value->is(Kind::kMissing)) break;
      return *value;
    }
    if (frame->parent == nullptr) {
      const Value& value_of_context = context_[static_cast<size_t>(name)];
      if (!value_of_context.is(Kind::kMissing)) return value_of_context;
    }
  }
  return Value::Undefined(program_.names[static_cast<size_t>(name)]);
}

std::vector<Value> Interp::EvalAll(const Expr& node, size_t first) {
  std::vector<Value> values;
  values.reserve(node.kids.size() - first);
  for (size_t i = first; i < node.kids.size(); ++i) values.push_back(Eval(*node.kids[i]));
  return values;
}

Value Interp::Eval(const Expr& node) {
  Deeper deeper(this);
  budget_.Step();
  line_ = node.line;
  switch (node.kind) {
    case ExprKind::kConst:
      return node.value;
    case ExprKind::kName:
    case ExprKind::kNsRef:
      return EvalName(node.name);
    case ExprKind::kList:
      return MakeList(EvalAll(node, 0));
    case ExprKind::kTuple:
      budget_.Bytes(node.kids.size() * sizeof(Value));
      return Value::Tuple(EvalAll(node, 0));
    case ExprKind::kDict:
      return EvalDict(node);
    case ExprKind::kGetAttr:
      return GetAttr(Eval(*node.kids[0]), node.text);
    case ExprKind::kGetItem: {
      Value object = Eval(*node.kids[0]);
      return GetItem(object, Eval(*node.kids[1]));
    }
    case ExprKind::kSlice:
      return EvalSlice(node);
    case ExprKind::kSliceArg:
      return Value::Undefined("slice");
    case ExprKind::kCall:
      return EvalCall(node, {});
    case ExprKind::kFilter:
      return EvalFilter(node, nullptr);
    case ExprKind::kTest:
      return EvalTest(node);
    case ExprKind::kNot:
      return Value::Bool(!Truth(Eval(*node.kids[0])));
    case ExprKind::kNeg:
      return Negate(Eval(*node.kids[0]));
    case ExprKind::kPos: {
      Value value = Eval(*node.kids[0]);
      if (value.IsUndefined()) FailUndefined(value);
      if (value.IsIntegral()) return Value::OfInt(value.int_value());
      if (value.is(Kind::kFloat)) return value;
      Fail(ErrorKind::kType, "bad operand type for unary +: '{}'", TypeName(value));
    }
    case ExprKind::kAnd: {
      Value left = Eval(*node.kids[0]);
      return Truth(left) ? Eval(*node.kids[1]) : left;
    }
    case ExprKind::kOr: {
      Value left = Eval(*node.kids[0]);
      return Truth(left) ? left : Eval(*node.kids[1]);
    }
    case ExprKind::kCond:
      if (Truth(Eval(*node.kids[0]))) return Eval(*node.kids[1]);
      if (node.kids[2]) return Eval(*node.kids[2]);
      return Value::UndefinedHint(fmt::format(
          "the inline if-expression on line {} evaluated to false and no else section was defined.",
          node.line));
    case ExprKind::kConcat: {
      std::string text;
      for (const ExprPtr& kid : node.kids) text += Str(Eval(*kid), budget_);
      return MakeString(std::move(text));
    }
    case ExprKind::kBinary: {
      Value left = Eval(*node.kids[0]);
      Value right = Eval(*node.kids[1]);
      line_ = node.line;
      return Arithmetic(*this, node.op, left, right);
    }
    case ExprKind::kCompare:
      return EvalCompare(node);
  }
  return Value::None();
}

Value Interp::EvalDict(const Expr& node) {
  auto dict = std::make_shared<DictObj>();
  for (size_t i = 0; i + 1 < node.kids.size(); i += 2) {
    Value key = Eval(*node.kids[i]);
    dict->Set(key, Eval(*node.kids[i + 1]), budget_);
  }
  return Value::Dict(std::move(dict));
}

Value Interp::EvalCompare(const Expr& node) {
  Value left = Eval(*node.kids[0]);
  bool result = true;
  for (size_t i = 0; i < node.ops.size() && result; ++i) {
    Value right = Eval(*node.kids[i + 1]);
    line_ = node.line;
    result = Compare(*this, node.ops[i], left, right);
    left = std::move(right);
  }
  return Value::Bool(result);
}

Value Interp::EvalSlice(const Expr& node) {
  Value object = Eval(*node.kids[0]);
  Value parts[3];
  for (size_t i = 0; i < 3; ++i) {
    if (node.kids[i + 1]) parts[i] = Eval(*node.kids[i + 1]);
  }
  return SliceOf(*this, object, parts[0], parts[1], parts[2]);
}

CallArgs Interp::EvalArgs(const Expr& node, size_t first) {
  CallArgs args;
  args.pos = EvalAll(node, first);
  if (node.star) {
    for (Value& item : ToVector(Eval(*node.star))) args.pos.push_back(std::move(item));
  }
  for (const auto& [key, kid] : node.kwargs) args.kw.emplace_back(key, Eval(*kid));
  if (node.star_star) {
    Value extra = Eval(*node.star_star);
    if (!extra.is(Kind::kDict)) {
      Fail(ErrorKind::kType, "argument after ** must be a mapping, not {}", TypeName(extra));
    }
    for (const auto& [key, value] : extra.dict().items) {
      if (!key.IsString()) Fail(ErrorKind::kType, "keywords must be strings");
      for (const auto& [used, old] : args.kw) {
        if (used == key.text()) {
          Fail(ErrorKind::kType, "got multiple values for keyword argument '{}'", used);
        }
      }
      args.kw.emplace_back(key.text(), value);
    }
  }
  return args;
}

Value Interp::EvalCall(const Expr& node, CallArgs extra) {
  const Expr& callee = *node.kids[0];
  Value object, function;
  MethodFn method = nullptr;
  if (callee.kind == ExprKind::kGetAttr) {
    object = Eval(*callee.kids[0]);
    method = FindMethod(object, callee.text);  // called without making a bound method of it
    if (method == nullptr) function = GetAttr(object, callee.text);
  } else {
    function = Eval(callee);
  }
  CallArgs args = EvalArgs(node, 1);
  for (auto& entry : extra.kw) args.kw.push_back(std::move(entry));
  line_ = node.line;
  return method != nullptr ? method(*this, object, args) : Call(function, std::move(args));
}

Value Interp::EvalFilter(const Expr& node, const Value* input) {
  // A filter block (or set block) puts its text in where the innermost filter of the chain has no
  // operand.
  Value value = node.kids[0]
                    ? (node.kids[0]->kind == ExprKind::kFilter ? EvalFilter(*node.kids[0], input)
                                                               : Eval(*node.kids[0]))
                    : *input;
  FilterFn filter = FindFilter(node.text);
  line_ = node.line;
  if (filter == nullptr) Fail(ErrorKind::kRuntime, "no filter named '{}'", node.text);
  CallArgs args = EvalArgs(node, 1);
  line_ = node.line;
  Deeper deeper(this);
  return filter(*this, value, args);
}

Value Interp::EvalTest(const Expr& node) {
  Value value = Eval(*node.kids[0]);
  CallArgs args = EvalArgs(node, 1);
  line_ = node.line;
  return Value::Bool(CallTest(node.text, value, std::move(args)));
}

Value Interp::CallFilter(const std::string& name, const Value& input, CallArgs args) {
  Deeper deeper(this);
  FilterFn filter = FindFilter(name);
  if (filter == nullptr) Fail(ErrorKind::kRuntime, "no filter named '{}'", name);
  return filter(*this, input, args);
}

bool Interp::CallTest(const std::string& name, const Value& input, CallArgs args) {
  Deeper deeper(this);
  TestFn test = FindTest(name);
  if (test == nullptr) Fail(ErrorKind::kRuntime, "no test named '{}'", name);
  return test(*this, input, args);
}

bool Interp::LoopAttr(const Value& value, std::string_view name, Value* result) {
  auto& loop = value.as<LoopObj>();
  auto length = [&] { return static_cast<Int>(loop.Length()); };
  if (name == "index")
    *result = Value::OfInt(loop.index0 + 1);
  else if (name == "index0")
    *result = Value::OfInt(loop.index0);
  else if (name == "first")
    *result = Value::Bool(loop.index0 == 0);
  else if (name == "last")
    *result = Value::Bool(!loop.Peek());
  else if (name == "length")
    *result = Value::OfInt(length());
  else if (name == "revindex")
    *result = Value::OfInt(length() - loop.index0);
  else if (name == "revindex0")
    *result = Value::OfInt(length() - loop.index0 - 1);
  else if (name == "depth")
    *result = Value::OfInt(loop.depth0 + 1);
  else if (name == "depth0")
    *result = Value::OfInt(loop.depth0);
  else if (name == "previtem") {
    *result = loop.index0 > 0 ? loop.before : Value::UndefinedHint("there is no previous item");
  } else if (name == "nextitem") {
    *result = loop.Peek() ? loop.after : Value::UndefinedHint("there is no next item");
  } else if (name == "cycle") {
    *result = MakeFunction("cycle", [value](Interp&, CallArgs& args) {
      if (args.pos.empty()) Fail(ErrorKind::kType, "no items for cycling given");
      auto at = static_cast<size_t>(value.as<LoopObj>().index0) % args.pos.size();
      return args.pos[at];
    });
  } else if (name == "changed") {
    *result = MakeFunction("changed", [this, value](Interp&, CallArgs& args) {
      auto& state = value.as<LoopObj>();
      Value now = Value::Tuple(args.pos);
      if (state.has_changed && Equal(state.last_changed, now, budget_)) return Value::Bool(false);
      if (!state.has_changed) {
        changed_loops_.push_back(std::static_pointer_cast<LoopObj>(value.object()));
      }
      state.has_changed = true;
      state.last_changed = std::move(now);
      return Value::Bool(true);
    });
  } else {
    return false;
  }
  return true;
}

// Python's getattr(object, name) as the sandbox lets it through; false for AttributeError.
bool Interp::ObjectAttr(const Value& object, const std::string& name, Value* result) {
  if (IsDunder(name) || IsMutator(object, name)) {
    *result = UnsafeAttr(object, name);
    return true;
  }
  if (MethodFn method = FindMethod(object, name)) {
    *result = MakeFunction(
        name,
        [object, method](Interp& interp, CallArgs& args) { return method(interp, object, args); },
        object.depth());
    return true;
  }
  if (object.is(Kind::kNamespace)) {
    const Value* value = object.as<NamespaceObj>().attrs.Find(name);
    if (value != nullptr) *result = *value;
    return value != nullptr;
  }
  if (object.is(Kind::kLoop)) return LoopAttr(object, name, result);
  if (object.is(Kind::kMacro)) {
    const auto& macro = object.as<MacroObj>();
    if (name == "name")
      *result = macro.name.empty() ? Value::None() : Value::String(macro.name);
    else if (name == "catch_kwargs")
      *result = Value::Bool(macro.stmt->uses_kwargs);
    else if (name == "catch_varargs")
      *result = Value::Bool(macro.stmt->uses_varargs);
    else if (name == "caller")
      *result = Value::Bool(macro.stmt->uses_caller);
    else if (name == "arguments") {
      std::vector<Value> names;
      for (NameId id : macro.stmt->params) {
        names.push_back(Value::String(program_.names[static_cast<size_t>(id)]));
      }
      *result = Value::Tuple(std::move(names));
    } else {
      return false;
    }
    return true;
  }
  return PlainAttr(object, name, result);
}

Value Interp::GetAttr(const Value& object, const std::string& name) {
  if (object.IsUndefined()) FailUndefined(object);
  Value result;
  if (ObjectAttr(object, name, &result)) return result;
  if (object.is(Kind::kDict)) {
    if (const Value* value = object.dict().Find(Value::String(name), budget_)) return *value;
  }
  return Value::UndefinedAttr(object, Value::String(name));
}

Value Interp::GetItem(const Value& object, const Value& index) {
  if (object.IsUndefined()) FailUndefined(object);
  Value result;
  if (Subscript(*this, object, index, &result)) return result;
  if (index.IsString() && ObjectAttr(object, index.text(), &result)) return result;
  return Value::UndefinedAttr(object, index);
}

}  // namespace lucid::jinja
