// The syntax tree of a template: one node type for expressions, one for statements, with the fields
// that the kinds share. Built by jinja_parse.cc, annotated by jinja_scope.cc, walked by
// jinja_eval.cc and jinja_expr.cc. Immutable after that, so that threads can render one template at
// the same time.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace lucid::jinja {

using NameId = int;  // index into Template names

enum class ExprKind : uint8_t {
  kConst,     // value
  kName,      // name
  kList,      // kids
  kTuple,     // kids
  kDict,      // kids: key, value, key, value, ...
  kGetAttr,   // kids[0] . text
  kGetItem,   // kids[0] [ kids[1] ]
  kSlice,     // kids[0] [ kids[1] : kids[2] : kids[3] ], absent ones null
  kSliceArg,  // kids[0..2]: a slice inside a tuple subscript, or passed on; never valid on our
              // types
  kCall,      // kids[0] ( kids[1..], kwargs, *star, **star_star )
  kFilter,    // kids[0] (null in a filter block) | text (kids[1..], kwargs, ...)
  kTest,      // kids[0] is text(kids[1..], kwargs, ...)
  kNot,
  kNeg,
  kPos,
  kAnd,
  kOr,
  kCond,     // kids: condition, then, else or null
  kConcat,   // kids
  kBinary,   // kids[0] text kids[1]
  kCompare,  // kids[0] ops[0] kids[1] ops[1] kids[2] ...
  kNsRef,    // assignment target name.text
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

enum class BinaryOp : uint8_t { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };
enum class CompareOp : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

struct Expr {
  ExprKind kind;
  int line;
  uint32_t depth = 1;
  NameId name = -1;
  BinaryOp op = BinaryOp::kAdd;
  Value value;
  std::string text;
  std::vector<ExprPtr> kids;
  std::vector<std::pair<std::string, ExprPtr>> kwargs;
  ExprPtr star, star_star;
  std::vector<CompareOp> ops;
};

enum class StmtKind : uint8_t {
  kData,      // data
  kPrint,     // expr
  kIf,        // branches: (test or null for else, body)
  kFor,       // target, expr, test, body, else_body, recursive
  kSet,       // target = expr
  kSetBlock,  // target, expr: filter chain or null, body
  kMacro,     // name, params, defaults, body
  kCall,      // expr: the call, params, defaults, body
  kFilter,    // expr: filter chain, body
  kWith,      // targets, values, body
  kBlock,     // body: {% block %}, and {% generation %} as a scope of its own
  kBreak,
  kContinue,
};

struct Stmt;
using StmtPtr = std::unique_ptr<Stmt>;
using Body = std::vector<StmtPtr>;

struct Branch {
  ExprPtr test;
  Body body;
};

struct Stmt {
  StmtKind kind;
  int line;
  bool recursive = false;
  NameId name = -1;
  std::string data;
  ExprPtr target, expr, test;
  Body body, else_body;
  std::vector<Branch> branches;
  std::vector<ExprPtr> targets, values;
  // Macros and call blocks: parameter names, and defaults of the last ones.
  std::vector<NameId> params;
  std::vector<ExprPtr> defaults;
  bool uses_caller = false, uses_kwargs = false, uses_varargs = false;
  // Names that the scope of body (else_body) assigns and that have no value on entry. They hide
  // names of the context, as Jinja's compiler decides it.
  std::vector<NameId> unset, else_unset;
};

struct Program {
  std::vector<std::string> names;
  Body body;
  std::vector<NameId> unset;
};

}  // namespace lucid::jinja
