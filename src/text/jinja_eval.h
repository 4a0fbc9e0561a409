// The interpreter: walks a Program and writes text. Entry points: Interp::Render for statements,
// Interp::Eval for expressions. jinja_eval.cc has the statements, macros and loops, jinja_expr.cc
// the expressions; jinja_ops.h the operators, jinja_filters.h and jinja_methods.h what templates
// can call.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_value.h"

namespace lucid::jinja {

// Limits of one rendering; the defaults serve conversations of millions of characters.
struct Limits {
  uint64_t steps = 50'000'000;
  uint64_t bytes = uint64_t{1} << 30;  // text and containers made, in total
  uint32_t depth = 1200;               // nested evaluations, about 100 nested macro calls
};

// One scope at run time: few names, searched linearly, then the scopes around it.
struct Frame : Object {
  std::shared_ptr<Frame> parent;
  std::vector<std::pair<NameId, Value>> vars;
  uint32_t level = 0;
  bool captured = false;  // a macro refers to it

  const Value* Find(NameId name) const;
  void Set(NameId name, Value value);
};

struct MacroObj : Object {
  const Stmt* stmt = nullptr;
  std::shared_ptr<Frame> scope;
  std::string name;
};

struct LoopObj : Object {
  bool Next(Value* item);  // advances; false at the end
  bool Peek();             // whether another item follows
  size_t Length();

  std::shared_ptr<IteratorObj> iterator;
  std::optional<size_t> length;
  Value current, before, after, last_changed;
  bool has_after = false, ended = false, has_changed = false;
  Int index0 = -1;
  Int depth0 = 0;
  // Of a recursive loop: what loop(items) runs.
  const Stmt* stmt = nullptr;
  std::shared_ptr<Frame> scope;
};

// len(value) where Python has it.
std::optional<size_t> LengthOf(const Value& value);
// A callable value.
Value MakeFunction(std::string name, std::function<Value(Interp&, CallArgs&)> call,
                   uint32_t depth = 0);

class Interp {
 public:
  Interp(const Program& program, const Limits& limits, std::optional<std::time_t> now);
  ~Interp();
  Interp(const Interp&) = delete;
  Interp& operator=(const Interp&) = delete;

  // Renders with the names of `context`. Throws TemplateError with a line.
  std::string Render(const std::vector<std::pair<std::string, Value>>& context);

  Budget& budget() { return budget_; }
  std::optional<std::time_t> now() const { return now_; }

  Value MakeString(std::string text, bool markup = false);  // charges the budget
  Value MakeList(std::vector<Value> items);
  Value MakeIterator(std::function<bool(Value*)> next, const char* type_name = "generator",
                     uint32_t source_depth = 0);
  // Registers an object whose references could form a cycle, to be cleared at the end.
  Value MakeNamespace();

  // iter(value); kType error if it is not iterable.
  std::shared_ptr<IteratorObj> Iterate(const Value& value);
  std::vector<Value> ToVector(const Value& value);

  Value Call(const Value& callee, CallArgs args);
  Value CallFilter(const std::string& name, const Value& input, CallArgs args);
  bool CallTest(const std::string& name, const Value& input, CallArgs args);
  Value GetAttr(const Value& object, const std::string& name);
  Value GetItem(const Value& object, const Value& index);

 private:
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };
  // One level of recursion for as long as it lives.
  class Deeper {
   public:
    explicit Deeper(Interp* interp);
    ~Deeper() { --interp_->depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    Interp* interp_;
  };

  void Write(std::string_view text);
  void WriteText(const Value& value);
  Flow RunBody(const Body& body);
  Flow Run(const Stmt& stmt);
  // `given` is the loop object of a recursive loop, else null.
  Flow RunFor(const Stmt& stmt, const Value& items, std::shared_ptr<LoopObj> given);
  std::shared_ptr<IteratorObj> FilteredItems(const Stmt& stmt, std::shared_ptr<IteratorObj> source,
                                             std::shared_ptr<Frame> outer);
  Flow RunIf(const Stmt& stmt);
  void RunCall(const Stmt& stmt);
  void RunWith(const Stmt& stmt);
  void Assign(const Expr& target, const Value& value);
  void CheckNamespaces(const Expr& target);
  // Runs `body` in a new scope and returns what it wrote; a break inside ends through `flow`.
  std::string Capture(const Body& body, const std::vector<NameId>& unset, Flow* flow);
  std::shared_ptr<Frame> NewFrame(const std::vector<NameId>& unset);
  Value MakeMacro(const Stmt& stmt, std::string name);
  Value CallMacro(const MacroObj& macro, CallArgs args);
  void BindMacro(const MacroObj& macro, CallArgs* args);
  std::string RenderRecursive(const Stmt& stmt, const std::shared_ptr<Frame>& scope,
                              const Value& items, Int depth);
  Value CallLoop(LoopObj& loop, CallArgs args);
  bool LoopAttr(const Value& value, std::string_view name, Value* result);
  bool ObjectAttr(const Value& object, const std::string& name, Value* result);

  Value Eval(const Expr& node);
  Value EvalName(NameId name);
  Value EvalCall(const Expr& node, CallArgs extra);
  Value EvalSlice(const Expr& node);
  Value EvalFilter(const Expr& node, const Value* input);
  Value EvalTest(const Expr& node);
  Value EvalCompare(const Expr& node);
  Value EvalDict(const Expr& node);
  CallArgs EvalArgs(const Expr& node, size_t first);
  std::vector<Value> EvalAll(const Expr& node, size_t first);

  const Program& program_;
  Budget budget_;
  uint32_t depth_ = 0, max_depth_;
  int line_ = 1;
  std::optional<std::time_t> now_;
  std::vector<Value>
      context_;  // by NameId; kMissing where neither context nor globals have the name
  std::shared_ptr<Frame> frame_;
  std::string* out_ = nullptr;
  NameId loop_name_ = -1, caller_name_ = -1, kwargs_name_ = -1, varargs_name_ = -1;
  std::vector<std::shared_ptr<Frame>> captured_;
  std::vector<std::shared_ptr<LoopObj>> changed_loops_;
  std::vector<std::shared_ptr<NamespaceObj>> namespaces_;
};

}  // namespace lucid::jinja
