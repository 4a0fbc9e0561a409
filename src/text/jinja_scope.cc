// See jinja_scope.h.
//
// Jinja compiles each scope to Python variables. When a scope assigns a name that no outer scope
// mentions, the name starts without a value there, even where the context has one. Inner scopes see
// that variable and not the context. The walk below decides, per scope, which names start that way
// (Stmt::unset); at run time the interpreter enters them as "missing" and otherwise looks names up
// dynamically, which gives the same result.
#include "text/jinja_scope.h"

#include <algorithm>
#include <map>
#include <set>

#include "text/jinja_filters.h"
#include "text/jinja_parse.h"

namespace lucid::jinja {
namespace {

enum class Load : uint8_t { kParam, kResolve, kAlias, kUnset };

// The names of one scope, as far as the walk has come.
struct Symbols {
  const Symbols* parent = nullptr;
  std::map<NameId, Load> refs;
  std::set<NameId> stores;

  bool Known(NameId name) const {
    return refs.count(name) != 0 || (parent != nullptr && parent->Known(name));
  }
  bool KnownOutside(NameId name) const { return parent != nullptr && parent->Known(name); }
  void Param(NameId name) {
    stores.insert(name);
    refs[name] = Load::kParam;
  }
  void Store(NameId name) {
    stores.insert(name);
    if (refs.count(name) == 0) refs[name] = KnownOutside(name) ? Load::kAlias : Load::kUnset;
  }
  void Use(NameId name) {
    if (!Known(name)) refs[name] = Load::kResolve;
  }
  // After the branches of an "if": a name that only some of them assign keeps what it had before.
  void Merge(const std::vector<Symbols>& branches) {
    std::set<NameId> stored;
    for (const Symbols& branch : branches) {
      stored.insert(branch.stores.begin(), branch.stores.end());
    }
    for (NameId name : stores) stored.erase(name);
    for (const Symbols& branch : branches) {
      for (const auto& [name, load] : branch.refs) refs[name] = load;
      stores.insert(branch.stores.begin(), branch.stores.end());
    }
    for (NameId name : stored) refs[name] = KnownOutside(name) ? Load::kAlias : Load::kResolve;
  }
};

template <typename Fn>
void ForEachKid(const Expr& node, const Fn& fn) {
  for (const ExprPtr& kid : node.kids) {
    if (kid) fn(*kid);
  }
  for (const auto& [key, kid] : node.kwargs) fn(*kid);
  if (node.star) fn(*node.star);
  if (node.star_star) fn(*node.star_star);
}

void UseNames(const Expr& node, Symbols* symbols) {
  if (node.kind == ExprKind::kName) symbols->Use(node.name);
  ForEachKid(node, [&](const Expr& kid) { UseNames(kid, symbols); });
}

void AssignNames(const Expr& target, Symbols* symbols, bool as_param) {
  if (target.kind == ExprKind::kNsRef) return symbols->Use(target.name);
  if (target.kind == ExprKind::kName) {
    return as_param ? symbols->Param(target.name) : symbols->Store(target.name);
  }
  for (const ExprPtr& kid : target.kids) AssignNames(*kid, symbols, as_param);
}

// What a statement does to the names of the scope it stands in; inner scopes are not entered.
void Visit(const Stmt& stmt, Symbols* symbols);

void VisitAll(const Body& body, Symbols* symbols) {
  for (const StmtPtr& stmt : body) Visit(*stmt, symbols);
}

// Jinja treats `elif` as an if of its own inside the list of alternatives.
Symbols VisitBranches(const Stmt& stmt, const Symbols& before) {
  Symbols body = before;
  VisitAll(stmt.branches[0].body, &body);
  Symbols elifs = before;
  Symbols otherwise = before;
  for (size_t i = 1; i < stmt.branches.size(); ++i) {
    const Branch& branch = stmt.branches[i];
    if (!branch.test) {
      VisitAll(branch.body, &otherwise);
      continue;
    }
    UseNames(*branch.test, &elifs);
    Symbols inner = elifs;
    VisitAll(branch.body, &inner);
    elifs.Merge({inner, elifs, elifs});
  }
  Symbols after = before;
  after.Merge({body, elifs, otherwise});
  return after;
}

void Visit(const Stmt& stmt, Symbols* symbols) {
  switch (stmt.kind) {
    case StmtKind::kPrint:
      return UseNames(*stmt.expr, symbols);
    case StmtKind::kIf:
      UseNames(*stmt.branches[0].test, symbols);
      *symbols = VisitBranches(stmt, *symbols);
      return;
    case StmtKind::kSet:
      UseNames(*stmt.expr, symbols);
      return AssignNames(*stmt.target, symbols, false);
    case StmtKind::kSetBlock:
      return AssignNames(*stmt.target, symbols, false);
    case StmtKind::kMacro:
      return symbols->Store(stmt.name);
    case StmtKind::kFor:
    case StmtKind::kCall:
    case StmtKind::kFilter:
      return UseNames(*stmt.expr, symbols);
    case StmtKind::kWith:
      for (const ExprPtr& value : stmt.values) UseNames(*value, symbols);
      return;
    default:
      return;
  }
}

std::vector<NameId> Unset(const Symbols& symbols) {
  std::vector<NameId> names;
  for (const auto& [name, load] : symbols.refs) {
    if (load == Load::kUnset) names.push_back(name);
  }
  return names;
}

class Analyzer {
 public:
  explicit Analyzer(Program* program) : program_(program) {
    auto find = [&](std::string_view name) {
      auto it = std::find(program->names.begin(), program->names.end(), name);
      return it == program->names.end() ? -1 : static_cast<NameId>(it - program->names.begin());
    };
    loop_ = find("loop");
    caller_ = find("caller");
    kwargs_ = find("kwargs");
    varargs_ = find("varargs");
  }

  void Run() {
    Symbols root;
    VisitAll(program_->body, &root);
    program_->unset = Unset(root);
    Walk(&program_->body, root, {});
  }

 private:
  struct State {
    bool in_loop = false;
    bool soft = false;  // inside an if: Jinja reports unknown filters only when they run
  };

  // Gives `body` a scope of its own below `outer` and analyses what is inside.
  std::vector<NameId> Enter(Body* body, Symbols* symbols, State state) {
    VisitAll(*body, symbols);
    state.soft = false;
    Walk(body, *symbols, state);
    return Unset(*symbols);
  }

  void Walk(Body* body, const Symbols& symbols, State state) {
    for (StmtPtr& stmt : *body) WalkStmt(stmt.get(), symbols, state);
  }

  void WalkStmt(Stmt* stmt, const Symbols& symbols, State state) {
    if (stmt->expr) CheckNames(*stmt->expr, state.soft);
    if (stmt->test) CheckNames(*stmt->test, false);
    for (const ExprPtr& value : stmt->values) CheckNames(*value, state.soft);
    for (const ExprPtr& value : stmt->defaults) CheckNames(*value, false);
    Symbols inner;
    inner.parent = &symbols;
    switch (stmt->kind) {
      case StmtKind::kBreak:
      case StmtKind::kContinue:
        if (!state.in_loop) {
          throw TemplateError{ErrorKind::kSyntax, "break and continue need a loop around them",
                              stmt->line};
        }
        return;
      case StmtKind::kIf:
        return WalkIf(stmt, symbols, state);
      case StmtKind::kFor:
        return WalkFor(stmt, symbols, state);
      case StmtKind::kMacro:
      case StmtKind::kCall:
        return WalkMacro(stmt, &inner);
      case StmtKind::kBlock:
        stmt->unset = Enter(&stmt->body, &inner, {});
        return;
      case StmtKind::kWith:
        for (const ExprPtr& target : stmt->targets) AssignNames(*target, &inner, true);
        stmt->unset = Enter(&stmt->body, &inner, state);
        return;
      case StmtKind::kFilter:
        UseNames(*stmt->expr, &inner);
        stmt->unset = Enter(&stmt->body, &inner, state);
        return;
      case StmtKind::kSetBlock:
        stmt->unset = Enter(&stmt->body, &inner, state);
        return;
      default:
        return;
    }
  }

  void WalkIf(Stmt* stmt, const Symbols& symbols, State state) {
    state.soft = true;
    for (Branch& branch : stmt->branches) {
      if (branch.test) CheckNames(*branch.test, true);
      Walk(&branch.body, symbols, state);
    }
  }

  void WalkFor(Stmt* stmt, const Symbols& symbols, State state) {
    CheckLoopName(*stmt);
    Symbols body;
    body.parent = &symbols;
    if (loop_ >= 0) body.Param(loop_);
    AssignNames(*stmt->target, &body, true);
    stmt->unset = Enter(&stmt->body, &body, {.in_loop = true});
    Symbols otherwise;
    otherwise.parent = &symbols;
    // The else part of a recursive loop is not inside the Python loop around it.
    stmt->else_unset =
        Enter(&stmt->else_body, &otherwise, {.in_loop = state.in_loop && !stmt->recursive});
  }

  void WalkMacro(Stmt* stmt, Symbols* inner) {
    for (NameId param : stmt->params) inner->Param(param);
    for (const ExprPtr& value : stmt->defaults) UseNames(*value, inner);
    auto is_param = [&](NameId name) {
      return std::find(stmt->params.begin(), stmt->params.end(), name) != stmt->params.end();
    };
    stmt->uses_caller = Mentions(stmt->body, caller_);
    stmt->uses_kwargs = Mentions(stmt->body, kwargs_) && !is_param(kwargs_);
    stmt->uses_varargs = Mentions(stmt->body, varargs_) && !is_param(varargs_);
    if (stmt->uses_caller && is_param(caller_)) {
      auto at = std::find(stmt->params.begin(), stmt->params.end(), caller_) - stmt->params.begin();
      if (static_cast<size_t>(at) + stmt->defaults.size() < stmt->params.size()) {
        throw TemplateError{ErrorKind::kSyntax,
                            "the parameter 'caller' of a macro must be left out or have a default",
                            stmt->line};
      }
      stmt->uses_caller = false;  // an ordinary parameter with that name
    }
    if (stmt->uses_caller) inner->Param(caller_);
    if (stmt->uses_kwargs) inner->Param(kwargs_);
    if (stmt->uses_varargs) inner->Param(varargs_);
    stmt->unset = Enter(&stmt->body, inner, {});
  }

  // Whether `name` is read anywhere below before it is assigned there.
  static bool Mentions(const Body& body, NameId name) {
    bool declared = false;
    return name >= 0 && MentionsIn(body, name, &declared);
  }

  static bool MentionsIn(const Body& body, NameId name, bool* declared) {
    return std::any_of(body.begin(), body.end(),
                       [&](const StmtPtr& stmt) { return MentionsIn(*stmt, name, declared); });
  }

  static bool Reads(const Expr* node, NameId name, bool declared) {
    if (node == nullptr || declared) return false;
    if (node->kind == ExprKind::kName && node->name == name) return true;
    bool found = false;
    ForEachKid(*node, [&](const Expr& kid) { found = found || Reads(&kid, name, declared); });
    return found;
  }

  static bool Assigns(const Expr* target, NameId name) {
    if (target == nullptr) return false;
    if (target->kind == ExprKind::kName) return target->name == name;
    return std::any_of(target->kids.begin(), target->kids.end(),
                       [&](const ExprPtr& kid) { return kid && Assigns(kid.get(), name); });
  }

  static bool MentionsIn(const Stmt& stmt, NameId name, bool* declared) {
    auto reads = [&](const ExprPtr& node) { return Reads(node.get(), name, *declared); };
    if (stmt.kind == StmtKind::kFor && Assigns(stmt.target.get(), name)) *declared = true;
    if (stmt.kind == StmtKind::kSet && Assigns(stmt.target.get(), name)) *declared = true;
    if (stmt.kind == StmtKind::kSetBlock && Assigns(stmt.target.get(), name)) *declared = true;
    if (reads(stmt.expr) || reads(stmt.test)) return true;
    if (std::any_of(stmt.values.begin(), stmt.values.end(), reads)) return true;
    if (std::any_of(stmt.defaults.begin(), stmt.defaults.end(), reads)) return true;
    for (const Branch& branch : stmt.branches) {
      if (reads(branch.test) || MentionsIn(branch.body, name, declared)) return true;
    }
    return MentionsIn(stmt.body, name, declared) || MentionsIn(stmt.else_body, name, declared);
  }

  // "loop" is taken inside a for, at any depth.
  void CheckLoopName(const Stmt& stmt) const {
    if (loop_ < 0) return;
    auto fail = [](int line) {
      throw TemplateError{ErrorKind::kSyntax, "can't assign to the special loop variable", line};
    };
    if (Assigns(stmt.target.get(), loop_)) fail(stmt.line);
    auto check = [&](const auto& self, const Body& body) -> void {
      for (const StmtPtr& inner : body) {
        if (Assigns(inner->target.get(), loop_)) fail(inner->line);
        self(self, inner->body);
        self(self, inner->else_body);
        for (const Branch& branch : inner->branches) self(self, branch.body);
      }
    };
    check(check, stmt.body);
    check(check, stmt.else_body);
  }

  void CheckNames(const Expr& node, bool soft) {
    if (!soft && node.kind == ExprKind::kFilter && !HasFilter(node.text)) {
      throw TemplateError{ErrorKind::kSyntax, fmt::format("no filter named '{}'", node.text),
                          node.line};
    }
    if (!soft && node.kind == ExprKind::kTest && !HasTest(node.text)) {
      throw TemplateError{ErrorKind::kSyntax, fmt::format("no test named '{}'", node.text),
                          node.line};
    }
    bool inner_soft = soft || node.kind == ExprKind::kCond;
    ForEachKid(node, [&](const Expr& kid) { CheckNames(kid, inner_soft); });
  }

  Program* program_;
  NameId loop_, caller_, kwargs_, varargs_;
};

}  // namespace

void AnalyzeScopes(Program* program) {
  Analyzer(program).Run();
}

}  // namespace lucid::jinja
