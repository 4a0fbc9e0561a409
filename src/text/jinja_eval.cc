// See jinja_eval.h. This file runs statements, loops and macros.
#include "text/jinja_eval.h"

#include <algorithm>

#include "text/jinja_filters.h"
#include "text/jinja_methods.h"
#include "text/jinja_print.h"
#include "text/jinja_text.h"

namespace lucid::jinja {
namespace {

constexpr uint32_t kMaxFrameLevel = 600;  // scopes around scopes, through macros kept in namespaces

// Puts a variable back on leaving a scope, also by an exception.
template <typename T>
class Restore {
 public:
  explicit Restore(T& variable) : variable_(variable), saved_(variable) {}
  ~Restore() { variable_ = std::move(saved_); }
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;

 private:
  T& variable_;
  T saved_;
};

}  // namespace

Interp::Deeper::Deeper(Interp* interp) : interp_(interp) {
  if (++interp_->depth_ > interp_->max_depth_) {
    --interp_->depth_;
    Fail(ErrorKind::kLimit, "the template recurses too deeply");
  }
}

const Value* Frame::Find(NameId name) const {
  for (const auto& [id, value] : vars) {
    if (id == name) return &value;
  }
  return nullptr;
}

void Frame::Set(NameId name, Value value) {
  for (auto& [id, old] : vars) {
    if (id == name) {
      old = std::move(value);
      return;
    }
  }
  vars.emplace_back(name, std::move(value));
}

bool LoopObj::Peek() {
  if (!has_after && !ended) {
    has_after = iterator->next(&after);
    ended = !has_after;
  }
  return has_after;
}

bool LoopObj::Next(Value* item) {
  if (!Peek()) return false;
  before = std::move(current);
  current = std::move(after);
  has_after = false;
  ++index0;
  *item = current;
  return true;
}

size_t LoopObj::Length() {
  if (!length) {  // a generator: read it to its end, as Jinja does
    std::vector<Value> rest;
    Value item;
    while (!ended && iterator->next(&item)) rest.push_back(item);
    length = rest.size() + static_cast<size_t>(index0 + 1) + (has_after ? 1 : 0);
    auto list = std::make_shared<std::vector<Value>>(std::move(rest));
    iterator = std::make_shared<IteratorObj>();
    iterator->next = [list, at = size_t{0}](Value* out) mutable {
      if (at >= list->size()) return false;
      *out = (*list)[at++];
      return true;
    };
  }
  return *length;
}

Interp::Interp(const Program& program, const Limits& limits, std::optional<std::time_t> now)
    : program_(program), budget_(limits.steps, limits.bytes), max_depth_(limits.depth), now_(now) {
  auto find = [&](std::string_view name) {
    auto it = std::find(program.names.begin(), program.names.end(), name);
    return it == program.names.end() ? -1 : static_cast<NameId>(it - program.names.begin());
  };
  loop_name_ = find("loop");
  caller_name_ = find("caller");
  kwargs_name_ = find("kwargs");
  varargs_name_ = find("varargs");
}

Interp::~Interp() {
  // Scopes hold macros and macros their scopes; namespaces can hold anything. Cut these cycles.
  for (auto& space : namespaces_) space->attrs.items.clear();
  for (auto& loop : changed_loops_) loop->last_changed = Value();
  for (auto& frame : captured_) {
    frame->vars.clear();
    frame->parent.reset();
  }
}

std::string Interp::Render(const std::vector<std::pair<std::string, Value>>& context) {
  for (const std::string& name : program_.names) {
    auto it = std::find_if(context.rbegin(), context.rend(),
                           [&](const auto& entry) { return entry.first == name; });
    context_.push_back(it != context.rend() ? it->second : FindGlobal(name));
  }
  std::string out;
  out_ = &out;
  frame_ = NewFrame(program_.unset);
  try {
    RunBody(program_.body);
  } catch (TemplateError& error) {
    if (error.line == 0) error.line = line_;
    throw;
  }
  return out;
}

Value Interp::MakeString(std::string text, bool markup) {
  budget_.Bytes(text.size() + sizeof(StringObj));
  return Value::String(std::move(text), markup);
}

Value Interp::MakeList(std::vector<Value> items) {
  budget_.Bytes(items.size() * sizeof(Value) + sizeof(ListObj));
  return Value::List(std::move(items));
}

Value Interp::MakeIterator(std::function<bool(Value*)> next, const char* type_name,
                           uint32_t source_depth) {
  budget_.Bytes(sizeof(IteratorObj));
  if (source_depth + 1 > kMaxValueDepth) {
    Fail(ErrorKind::kLimit, "filters are chained more than {} levels deep", kMaxValueDepth);
  }
  auto iterator = std::make_shared<IteratorObj>();
  iterator->next = std::move(next);
  iterator->type_name = type_name;
  iterator->depth = source_depth + 1;
  return Value::Of(Kind::kIterator, std::move(iterator));
}

Value Interp::MakeNamespace() {
  budget_.Bytes(sizeof(NamespaceObj));
  namespaces_.push_back(std::make_shared<NamespaceObj>());
  return Value::Of(Kind::kNamespace, namespaces_.back());
}

void Interp::Write(std::string_view text) {
  budget_.Bytes(text.size());
  out_->append(text);
}

// The output of a filter or call block. Unlike {{ }}, Jinja does not convert it, so it must be
// text.
void Interp::WriteText(const Value& value) {
  if (!value.IsString()) {
    Fail(ErrorKind::kType, "a filter or call block gives {} where text is needed", TypeName(value));
  }
  Write(value.text());
}

std::shared_ptr<Frame> Interp::NewFrame(const std::vector<NameId>& unset) {
  budget_.Bytes(sizeof(Frame));
  auto frame = std::make_shared<Frame>();
  frame->parent = frame_;
  frame->level = frame_ ? frame_->level + 1 : 0;
  if (frame->level > kMaxFrameLevel) Fail(ErrorKind::kLimit, "the template nests too many scopes");
  for (NameId name : unset) frame->vars.emplace_back(name, Value::Missing());
  return frame;
}

Interp::Flow Interp::RunBody(const Body& body) {
  for (const StmtPtr& stmt : body) {
    Flow flow = Run(*stmt);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Interp::Flow Interp::Run(const Stmt& stmt) {
  Deeper deeper(this);
  budget_.Step();
  line_ = stmt.line;
  Flow flow = Flow::kNormal;
  switch (stmt.kind) {
    case StmtKind::kData:
      Write(stmt.data);
      return flow;
    case StmtKind::kPrint: {
      Value value = Eval(*stmt.expr);
      if (value.IsString()) {
        Write(value.text());
      } else {
        Write(Str(value, budget_));
      }
      return flow;
    }
    case StmtKind::kIf:
      return RunIf(stmt);
    case StmtKind::kFor: {
      Value items = Eval(*stmt.expr);
      if (!stmt.recursive) return RunFor(stmt, items, nullptr);
      Write(RenderRecursive(stmt, frame_, items, 0));
      return flow;
    }
    case StmtKind::kSet:
      CheckNamespaces(*stmt.target);
      Assign(*stmt.target, Eval(*stmt.expr));
      return flow;
    case StmtKind::kSetBlock: {
      std::string text = Capture(stmt.body, stmt.unset, &flow);
      if (flow != Flow::kNormal) return flow;
      Value value = MakeString(std::move(text));
      if (stmt.expr) value = EvalFilter(*stmt.expr, &value);
      Assign(*stmt.target, value);
      return flow;
    }
    case StmtKind::kFilter: {
      std::string text = Capture(stmt.body, stmt.unset, &flow);
      if (flow != Flow::kNormal) return flow;
      Value value = MakeString(std::move(text));
      WriteText(EvalFilter(*stmt.expr, &value));
      return flow;
    }
    case StmtKind::kMacro: {
      Value macro = MakeMacro(stmt, program_.names[static_cast<size_t>(stmt.name)]);
      frame_->Set(stmt.name, std::move(macro));
      return flow;
    }
    case StmtKind::kCall:
      RunCall(stmt);
      return flow;
    case StmtKind::kWith:
    case StmtKind::kBlock: {
      Restore<std::shared_ptr<Frame>> restore(frame_);
      RunWith(stmt);
      return RunBody(stmt.body);
    }
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return flow;
}

// Enters the scope of a with (or block) statement; the values belong to the scope around it.
void Interp::RunWith(const Stmt& stmt) {
  std::shared_ptr<Frame> inner = NewFrame(stmt.unset);
  for (size_t i = 0; i < stmt.targets.size(); ++i) {
    Value value = Eval(*stmt.values[i]);
    Restore<std::shared_ptr<Frame>> restore(frame_);
    frame_ = inner;
    Assign(*stmt.targets[i], value);
  }
  frame_ = std::move(inner);
}

Interp::Flow Interp::RunIf(const Stmt& stmt) {
  for (const Branch& branch : stmt.branches) {
    if (!branch.test || Truth(Eval(*branch.test))) return RunBody(branch.body);
  }
  return Flow::kNormal;
}

std::string Interp::Capture(const Body& body, const std::vector<NameId>& unset, Flow* flow) {
  Restore<std::shared_ptr<Frame>> restore_frame(frame_);
  Restore<std::string*> restore_out(out_);
  std::string out;
  frame_ = NewFrame(unset);
  out_ = &out;
  *flow = RunBody(body);
  return out;
}

Interp::Flow Interp::RunFor(const Stmt& stmt, const Value& items, std::shared_ptr<LoopObj> given) {
  auto loop = given ? std::move(given) : std::make_shared<LoopObj>();
  std::shared_ptr<Frame> outer = frame_;
  Restore<std::shared_ptr<Frame>> restore(frame_);
  loop->iterator = Iterate(items);
  if (stmt.test) {
    loop->iterator = FilteredItems(stmt, loop->iterator, outer);
  } else if (!items.is(Kind::kIterator)) {
    loop->length = items.is(Kind::kLoop) ? items.as<LoopObj>().Length() : LengthOf(items);
  }
  Value loop_value = Value::Of(Kind::kLoop, loop);
  bool completed = false;  // Jinja runs the else part unless some iteration reached its end
  std::shared_ptr<Frame> frame;
  Value item;
  while (loop->Next(&item)) {
    frame_ = outer;
    if (!frame || frame.use_count() > 1 || frame->captured) {
      frame = NewFrame(stmt.unset);
    } else {
      frame->vars.clear();
      for (NameId name : stmt.unset) frame->vars.emplace_back(name, Value::Missing());
    }
    budget_.Step();
    frame_ = frame;
    if (loop_name_ >= 0) frame->Set(loop_name_, loop_value);
    Assign(*stmt.target, item);
    Flow flow = RunBody(stmt.body);
    if (flow == Flow::kBreak) break;
    if (flow == Flow::kNormal) completed = true;
  }
  frame_ = outer;
  if (completed || stmt.else_body.empty()) return Flow::kNormal;
  frame_ = NewFrame(stmt.else_unset);
  return RunBody(stmt.else_body);
}

// The items that pass the test of "for x in items if test", each tested when the loop gets to it.
std::shared_ptr<IteratorObj> Interp::FilteredItems(const Stmt& stmt,
                                                   std::shared_ptr<IteratorObj> source,
                                                   std::shared_ptr<Frame> outer) {
  auto filtered = std::make_shared<IteratorObj>();
  filtered->next = [this, &stmt, source = std::move(source), outer = std::move(outer)](Value* out) {
    while (source->next(out)) {
      budget_.Step();
      Restore<std::shared_ptr<Frame>> restore(frame_);
      frame_ = outer;
      frame_ = NewFrame({});
      Assign(*stmt.target, *out);
      if (Truth(Eval(*stmt.test))) return true;
    }
    return false;
  };
  return filtered;
}

std::string Interp::RenderRecursive(const Stmt& stmt, const std::shared_ptr<Frame>& scope,
                                    const Value& items, Int depth) {
  Deeper deeper(this);
  Restore<std::shared_ptr<Frame>> restore_frame(frame_);
  Restore<std::string*> restore_out(out_);
  std::string out;
  frame_ = scope;
  out_ = &out;
  auto loop = std::make_shared<LoopObj>();
  loop->depth0 = depth;
  loop->stmt = &stmt;
  loop->scope = scope;
  RunFor(stmt, items, std::move(loop));
  return out;
}

Value Interp::CallLoop(LoopObj& loop, CallArgs args) {
  if (loop.stmt == nullptr) {
    Fail(ErrorKind::kType, "The loop must have the 'recursive' marker to be called recursively.");
  }
  if (args.pos.size() != 1 || !args.kw.empty()) Fail(ErrorKind::kType, "loop() takes one argument");
  return MakeString(RenderRecursive(*loop.stmt, loop.scope, args.pos[0], loop.depth0 + 1));
}

void Interp::CheckNamespaces(const Expr& target) {
  if (target.kind == ExprKind::kNsRef && !EvalName(target.name).is(Kind::kNamespace)) {
    Fail(ErrorKind::kRuntime, "cannot assign attribute on non-namespace object");
  }
  for (const ExprPtr& kid : target.kids) CheckNamespaces(*kid);
}

void Interp::Assign(const Expr& target, const Value& value) {
  if (target.kind == ExprKind::kName) return frame_->Set(target.name, value);
  if (target.kind == ExprKind::kNsRef) {
    if (target.text[0] == '_') {
      Fail(ErrorKind::kSecurity, "a namespace cannot store the underscore-prefixed attribute '{}'",
           target.text);
    }
    EvalName(target.name).as<NamespaceObj>().attrs.Set(Value::String(target.text), value, budget_);
    return;
  }
  std::vector<Value> items = ToVector(value);
  if (items.size() != target.kids.size()) {
    Fail(ErrorKind::kValue, "cannot unpack {} values into {} names", items.size(),
         target.kids.size());
  }
  for (size_t i = 0; i < items.size(); ++i) Assign(*target.kids[i], items[i]);
}

Value Interp::MakeMacro(const Stmt& stmt, std::string name) {
  budget_.Bytes(sizeof(MacroObj));
  for (auto frame = frame_; frame && !frame->captured; frame = frame->parent) {
    frame->captured = true;
    captured_.push_back(frame);
  }
  auto macro = std::make_shared<MacroObj>();
  macro->stmt = &stmt;
  macro->scope = frame_;
  macro->name = std::move(name);
  return Value::Of(Kind::kMacro, std::move(macro));
}

void Interp::RunCall(const Stmt& stmt) {
  CallArgs extra;
  extra.kw.emplace_back("caller", MakeMacro(stmt, {}));
  WriteText(EvalCall(*stmt.expr, std::move(extra)));
}

// Fills the parameters of the macro in the current frame; the ones not given stay missing.
void Interp::BindMacro(const MacroObj& macro, CallArgs* args) {
  const Stmt& stmt = *macro.stmt;
  auto take = [&](std::string_view name, Value* value) {
    auto it = std::find_if(args->kw.begin(), args->kw.end(),
                           [&](const auto& entry) { return entry.first == name; });
    if (it == args->kw.end()) return false;
    *value = it->second;
    args->kw.erase(it);
    return true;
  };
  size_t count = stmt.params.size();
  for (size_t i = 0; i < count; ++i) {
    Value value = Value::Missing();
    if (i < args->pos.size()) {
      value = args->pos[i];
    } else {
      take(program_.names[static_cast<size_t>(stmt.params[i])], &value);
    }
    frame_->Set(stmt.params[i], std::move(value));
  }
  if (stmt.uses_caller) {
    Value caller;
    if (!take("caller", &caller) || caller.is(Kind::kNone)) {
      caller = Value::UndefinedHint("No caller defined");
    }
    frame_->Set(caller_name_, std::move(caller));
  }
  if (stmt.uses_kwargs) {
    auto rest = std::make_shared<DictObj>();
    for (const auto& [key, value] : args->kw) rest->Set(Value::String(key), value, budget_);
    frame_->Set(kwargs_name_, Value::Dict(std::move(rest)));
  } else if (!args->kw.empty()) {
    Fail(ErrorKind::kType, "macro '{}' takes no keyword argument '{}'", macro.name,
         args->kw[0].first);
  }
  if (stmt.uses_varargs) {
    auto first = args->pos.begin() + static_cast<std::ptrdiff_t>(std::min(count, args->pos.size()));
    frame_->Set(varargs_name_, Value::Tuple({first, args->pos.end()}));
  } else if (args->pos.size() > count) {
    Fail(ErrorKind::kType, "macro '{}' takes not more than {} argument(s)", macro.name, count);
  }
}

Value Interp::CallMacro(const MacroObj& macro, CallArgs args) {
  Deeper deeper(this);
  Restore<std::shared_ptr<Frame>> restore_frame(frame_);
  Restore<std::string*> restore_out(out_);
  const Stmt& stmt = *macro.stmt;
  frame_ = macro.scope;
  frame_ = NewFrame(stmt.unset);
  BindMacro(macro, &args);
  size_t first_default = stmt.params.size() - stmt.defaults.size();
  for (size_t i = 0; i < stmt.params.size(); ++i) {
    if (!frame_->Find(stmt.params[i])->is(Kind::kMissing)) continue;
    Value value = i >= first_default ? Eval(*stmt.defaults[i - first_default])
                                     : Value::UndefinedHint(fmt::format(
                                           "parameter '{}' was not provided",
                                           program_.names[static_cast<size_t>(stmt.params[i])]));
    frame_->Set(stmt.params[i], std::move(value));
  }
  std::string out;
  out_ = &out;
  RunBody(stmt.body);
  return MakeString(std::move(out));
}

Value Interp::Call(const Value& callee, CallArgs args) {
  Deeper deeper(this);
  switch (callee.kind()) {
    case Kind::kFunction:
      return callee.as<FunctionObj>().call(*this, args);
    case Kind::kMacro:
      return CallMacro(callee.as<MacroObj>(), std::move(args));
    case Kind::kLoop:
      return CallLoop(callee.as<LoopObj>(), std::move(args));
    case Kind::kJoiner: {
      auto& joiner = callee.as<JoinerObj>();
      if (joiner.used) return joiner.separator;
      joiner.used = true;
      return Value::String({});
    }
    case Kind::kUndefined:
      FailUndefined(callee);
    default:
      Fail(ErrorKind::kType, "'{}' object is not callable", TypeName(callee));
  }
}

}  // namespace lucid::jinja
