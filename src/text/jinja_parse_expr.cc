// Expressions of the grammar, one function per precedence level, loosest first.
#include "text/jinja_parse_expr.h"

#include <algorithm>

#include "text/jinja_parse.h"

namespace lucid::jinja {

ExprParser::Nested::Nested(ExprParser* parser) : parser_(parser) {
  if (++parser_->nesting_ > kMaxNesting) {
    --parser_->nesting_;
    throw TemplateError{ErrorKind::kLimit,
                        fmt::format("the template nests more than {} levels deep", kMaxNesting),
                        parser_->cur().line};
  }
}

void ExprParser::Error(std::string message, int line) const {
  throw TemplateError{ErrorKind::kSyntax, std::move(message), line != 0 ? line : cur().line};
}

std::string ExprParser::Describe(const Token& token) const {
  switch (token.type) {
    case Tok::kEof:
      return "end of template";
    case Tok::kData:
      return "template text";
    case Tok::kBlockEnd:
      return "end of statement block";
    case Tok::kVariableEnd:
      return "end of print statement";
    case Tok::kString:
      return "string";
    default:
      return fmt::format("'{}'", token.text);
  }
}

bool ExprParser::SkipOp(std::string_view op) {
  if (!IsOp(op)) return false;
  Next();
  return true;
}

bool ExprParser::SkipName(std::string_view name) {
  if (!IsName(name)) return false;
  Next();
  return true;
}

void ExprParser::ExpectOp(std::string_view op) {
  if (!SkipOp(op)) Error(fmt::format("expected '{}', got {}", op, Describe(cur())));
}

std::string ExprParser::ExpectName() {
  if (cur().type != Tok::kName) Error(fmt::format("expected a name, got {}", Describe(cur())));
  return Next().text;
}

void ExprParser::Expect(Tok type, std::string_view what) {
  if (cur().type != type) Error(fmt::format("expected {}, got {}", what, Describe(cur())));
  Next();
}

ExprPtr ExprParser::Make(ExprKind kind, int line) const {
  auto node = std::make_unique<Expr>();
  node->kind = kind;
  node->line = line;
  return node;
}

ExprPtr ExprParser::Seal(ExprPtr node) const {
  uint32_t below = 0;
  for (const ExprPtr& kid : node->kids) below = std::max(below, kid ? kid->depth : 0);
  for (const auto& [key, kid] : node->kwargs) below = std::max(below, kid->depth);
  if (node->star) below = std::max(below, node->star->depth);
  if (node->star_star) below = std::max(below, node->star_star->depth);
  node->depth = below + 1;
  if (node->depth > kMaxExprDepth) {
    throw TemplateError{ErrorKind::kLimit,
                        fmt::format("an expression chains more than {} operations", kMaxExprDepth),
                        node->line};
  }
  return node;
}

NameId ExprParser::Intern(const std::string& name) {
  auto [it, added] = name_ids_.emplace(name, static_cast<NameId>(names_.size()));
  if (added) names_.push_back(name);
  return it->second;
}

ExprPtr ExprParser::Binary(BinaryOp op, ExprPtr left, ExprPtr right, int line) const {
  ExprPtr node = Make(ExprKind::kBinary, line);
  node->op = op;
  node->kids.push_back(std::move(left));
  node->kids.push_back(std::move(right));
  return Seal(std::move(node));
}

ExprPtr ExprParser::ParseExpression(bool with_cond) {
  Nested nested(this);
  return with_cond ? ParseCond() : ParseOr();
}

ExprPtr ExprParser::ParseCond() {
  Nested nested(this);
  int line = cur().line;
  ExprPtr result = ParseOr();
  while (SkipName("if")) {
    ExprPtr node = Make(ExprKind::kCond, line);
    node->kids.push_back(ParseOr());
    node->kids.push_back(std::move(result));
    node->kids.push_back(SkipName("else") ? ParseCond() : nullptr);
    result = Seal(std::move(node));
    line = cur().line;
  }
  return result;
}

ExprPtr ExprParser::ParseOr() {
  int line = cur().line;
  ExprPtr left = ParseAnd();
  while (SkipName("or")) {
    ExprPtr node = Make(ExprKind::kOr, line);
    node->kids.push_back(std::move(left));
    node->kids.push_back(ParseAnd());
    left = Seal(std::move(node));
  }
  return left;
}

ExprPtr ExprParser::ParseAnd() {
  int line = cur().line;
  ExprPtr left = ParseNot();
  while (SkipName("and")) {
    ExprPtr node = Make(ExprKind::kAnd, line);
    node->kids.push_back(std::move(left));
    node->kids.push_back(ParseNot());
    left = Seal(std::move(node));
  }
  return left;
}

ExprPtr ExprParser::ParseNot() {
  if (!IsName("not")) return ParseCompare();
  Nested nested(this);
  ExprPtr node = Make(ExprKind::kNot, Next().line);
  node->kids.push_back(ParseNot());
  return Seal(std::move(node));
}

ExprPtr ExprParser::ParseCompare() {
  constexpr std::pair<std::string_view, CompareOp> kOps[] = {
      {"==", CompareOp::kEq}, {"!=", CompareOp::kNe}, {"<", CompareOp::kLt},
      {"<=", CompareOp::kLe}, {">", CompareOp::kGt},  {">=", CompareOp::kGe}};
  int line = cur().line;
  ExprPtr first = ParseMath1();
  ExprPtr node;
  while (true) {
    const auto* op = std::find_if(std::begin(kOps), std::end(kOps),
                                  [&](const auto& row) { return IsOp(row.first); });
    CompareOp kind = CompareOp::kIn;
    if (op != std::end(kOps)) {
      kind = op->second;
      Next();
    } else if (IsName("not") && Look().type == Tok::kName && Look().text == "in") {
      kind = CompareOp::kNotIn;
      Next();
      Next();
    } else if (!SkipName("in")) {
      break;
    }
    if (!node) {
      node = Make(ExprKind::kCompare, line);
      node->kids.push_back(std::move(first));
    }
    node->ops.push_back(kind);
    node->kids.push_back(ParseMath1());
  }
  return node ? Seal(std::move(node)) : std::move(first);
}

ExprPtr ExprParser::ParseMath1() {
  int line = cur().line;
  ExprPtr left = ParseConcat();
  while (IsOp("+") || IsOp("-")) {
    BinaryOp op = Next().text == "+" ? BinaryOp::kAdd : BinaryOp::kSub;
    left = Binary(op, std::move(left), ParseConcat(), line);
    line = cur().line;
  }
  return left;
}

ExprPtr ExprParser::ParseConcat() {
  int line = cur().line;
  ExprPtr first = ParseMath2();
  if (!IsOp("~")) return first;
  ExprPtr node = Make(ExprKind::kConcat, line);
  node->kids.push_back(std::move(first));
  while (SkipOp("~")) node->kids.push_back(ParseMath2());
  return Seal(std::move(node));
}

ExprPtr ExprParser::ParseMath2() {
  int line = cur().line;
  ExprPtr left = ParsePow();
  while (true) {
    BinaryOp op = BinaryOp::kMul;
    if (IsOp("/")) {
      op = BinaryOp::kDiv;
    } else if (IsOp("//")) {
      op = BinaryOp::kFloorDiv;
    } else if (IsOp("%")) {
      op = BinaryOp::kMod;
    } else if (!IsOp("*")) {
      return left;
    }
    Next();
    left = Binary(op, std::move(left), ParsePow(), line);
    line = cur().line;
  }
}

ExprPtr ExprParser::ParsePow() {
  int line = cur().line;
  ExprPtr left = ParseUnary();
  while (SkipOp("**")) {
    left = Binary(BinaryOp::kPow, std::move(left), ParseUnary(), line);
    line = cur().line;
  }
  return left;
}

ExprPtr ExprParser::ParseUnary(bool with_filter) {
  Nested nested(this);
  ExprPtr node;
  if (IsOp("-") || IsOp("+")) {
    node = Make(IsOp("-") ? ExprKind::kNeg : ExprKind::kPos, cur().line);
    Next();
    node->kids.push_back(ParseUnary(false));
    node = Seal(std::move(node));
  } else {
    node = ParsePrimary(false);
  }
  node = ParsePostfix(std::move(node));
  return with_filter ? ParseFilterExpr(std::move(node)) : std::move(node);
}

ExprPtr ExprParser::ParsePrimary(bool with_namespace) {
  const Token& token = cur();
  int line = token.line;
  if (token.type == Tok::kName) {
    std::string name = Next().text;
    ExprPtr node = Make(ExprKind::kConst, line);
    if (name == "true" || name == "True" || name == "false" || name == "False") {
      node->value = Value::Bool(name == "true" || name == "True");
    } else if (name != "none" && name != "None") {
      node->kind = ExprKind::kName;
      node->name = Intern(name);
      if (with_namespace && SkipOp(".")) {
        node->kind = ExprKind::kNsRef;
        node->text = ExpectName();
      }
    }
    return node;
  }
  if (token.type == Tok::kString) {
    std::string text;
    while (cur().type == Tok::kString) text += Next().text;
    ExprPtr node = Make(ExprKind::kConst, line);
    node->value = Value::String(std::move(text));
    return node;
  }
  if (token.type == Tok::kInteger || token.type == Tok::kFloat) {
    ExprPtr node = Make(ExprKind::kConst, line);
    node->value = Next().number;
    return node;
  }
  if (SkipOp("(")) {
    ExprPtr node = ParseTuple({.parentheses = true});
    ExpectOp(")");
    return node;
  }
  if (IsOp("[")) return ParseList();
  if (IsOp("{")) return ParseDict();
  Error(fmt::format("unexpected {}", Describe(token)));
}

bool ExprParser::AtTupleEnd(std::string_view end_name) const {
  if (cur().type == Tok::kVariableEnd || cur().type == Tok::kBlockEnd || IsOp(")")) return true;
  return !end_name.empty() && IsName(end_name);
}

ExprPtr ExprParser::ParseTuple(const TupleMode& mode) {
  int line = cur().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) ExpectOp(",");
    if (AtTupleEnd(mode.end_name)) break;
    if (mode.simplified) {
      Nested nested(this);
      items.push_back(ParsePrimary(mode.with_namespace));
    } else {
      items.push_back(ParseExpression(mode.with_cond));
    }
    if (!IsOp(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return std::move(items[0]);
  if (!is_tuple && !mode.parentheses) {
    Error(fmt::format("expected an expression, got {}", Describe(cur())));
  }
  ExprPtr node = Make(ExprKind::kTuple, line);
  node->kids = std::move(items);
  return Seal(std::move(node));
}

ExprPtr ExprParser::ParseTarget(bool with_namespace, std::string_view end_name) {
  ExprPtr target =
      ParseTuple({.simplified = true, .with_namespace = with_namespace, .end_name = end_name});
  auto assignable = [](const auto& self, const Expr& node) -> bool {
    if (node.kind == ExprKind::kName || node.kind == ExprKind::kNsRef) return true;
    if (node.kind != ExprKind::kTuple) return false;
    return std::all_of(node.kids.begin(), node.kids.end(),
                       [&](const ExprPtr& kid) { return self(self, *kid); });
  };
  if (!assignable(assignable, *target)) Error("can't assign to this expression", target->line);
  return target;
}

ExprPtr ExprParser::ParseList() {
  ExprPtr node = Make(ExprKind::kList, Next().line);
  while (!IsOp("]")) {
    if (!node->kids.empty()) ExpectOp(",");
    if (IsOp("]")) break;
    node->kids.push_back(ParseExpression());
  }
  ExpectOp("]");
  return Seal(std::move(node));
}

ExprPtr ExprParser::ParseDict() {
  ExprPtr node = Make(ExprKind::kDict, Next().line);
  while (!IsOp("}")) {
    if (!node->kids.empty()) ExpectOp(",");
    if (IsOp("}")) break;
    node->kids.push_back(ParseExpression());
    ExpectOp(":");
    node->kids.push_back(ParseExpression());
  }
  ExpectOp("}");
  return Seal(std::move(node));
}

ExprPtr ExprParser::ParsePostfix(ExprPtr node) {
  while (true) {
    if (IsOp(".") || IsOp("[")) {
      node = ParseSubscript(std::move(node));
    } else if (IsOp("(")) {
      node = ParseCall(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr ExprParser::ParseFilterExpr(ExprPtr node) {
  while (true) {
    if (IsOp("|")) {
      node = ParseFilter(std::move(node), false);
    } else if (IsName("is")) {
      node = ParseTest(std::move(node));
    } else if (IsOp("(")) {
      node = ParseCall(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr ExprParser::ParseSubscript(ExprPtr node) {
  int line = cur().line;
  if (SkipOp(".")) {
    ExprPtr result = Make(ExprKind::kGetAttr, line);
    result->kids.push_back(std::move(node));
    if (cur().type == Tok::kName) {
      result->text = Next().text;
    } else if (cur().type == Tok::kInteger) {
      result->kind = ExprKind::kGetItem;
      ExprPtr index = Make(ExprKind::kConst, line);
      index->value = Next().number;
      result->kids.push_back(std::move(index));
    } else {
      Error("expected name or number after '.'");
    }
    return Seal(std::move(result));
  }
  ExpectOp("[");
  std::vector<ExprPtr> args;
  while (!IsOp("]")) {
    if (!args.empty()) ExpectOp(",");
    args.push_back(ParseSubscribed());
  }
  ExpectOp("]");
  if (args.size() == 1 && args[0]->kind == ExprKind::kSliceArg) {
    ExprPtr slice = Make(ExprKind::kSlice, line);
    slice->kids.push_back(std::move(node));
    for (ExprPtr& part : args[0]->kids) slice->kids.push_back(std::move(part));
    return Seal(std::move(slice));
  }
  ExprPtr result = Make(ExprKind::kGetItem, line);
  result->kids.push_back(std::move(node));
  if (args.size() == 1) {
    result->kids.push_back(std::move(args[0]));
  } else {
    ExprPtr tuple = Make(ExprKind::kTuple, line);
    tuple->kids = std::move(args);
    result->kids.push_back(Seal(std::move(tuple)));
  }
  return Seal(std::move(result));
}

ExprPtr ExprParser::ParseSubscribed() {
  int line = cur().line;
  ExprPtr first;
  if (!IsOp(":")) {
    first = ParseExpression();
    if (!IsOp(":")) return first;
  }
  Next();
  ExprPtr node = Make(ExprKind::kSliceArg, line);
  node->kids.push_back(std::move(first));
  auto at_end = [&] { return IsOp("]") || IsOp(","); };
  node->kids.push_back(IsOp(":") || at_end() ? nullptr : ParseExpression());
  node->kids.push_back(SkipOp(":") && !at_end() ? ParseExpression() : nullptr);
  return Seal(std::move(node));
}

ExprPtr ExprParser::ParseCall(ExprPtr node) {
  ExprPtr call = Make(ExprKind::kCall, cur().line);
  call->kids.push_back(std::move(node));
  ParseCallArgs(call.get());
  return Seal(std::move(call));
}

void ExprParser::ParseCallArgs(Expr* call) {
  int line = cur().line;
  auto ensure = [&](bool ok) {
    if (!ok) Error("invalid syntax for function call expression", line);
  };
  ExpectOp("(");
  bool first = true;
  while (!IsOp(")")) {
    if (!first) {
      ExpectOp(",");
      if (IsOp(")")) break;
    }
    first = false;
    if (SkipOp("*")) {
      ensure(!call->star && !call->star_star);
      call->star = ParseExpression();
    } else if (SkipOp("**")) {
      ensure(!call->star_star);
      call->star_star = ParseExpression();
    } else if (cur().type == Tok::kName && Look().type == Tok::kOperator && Look().text == "=") {
      ensure(!call->star_star);
      std::string key = Next().text;
      Next();
      for (const auto& [used, value] : call->kwargs) {
        if (used == key) Error(fmt::format("keyword argument repeated: {}", key), line);
      }
      call->kwargs.emplace_back(std::move(key), ParseExpression());
    } else {
      ensure(!call->star && !call->star_star && call->kwargs.empty());
      call->kids.push_back(ParseExpression());
    }
  }
  ExpectOp(")");
}

ExprPtr ExprParser::ParseFilter(ExprPtr node, bool start_inline) {
  while (IsOp("|") || start_inline) {
    if (!start_inline) Next();
    start_inline = false;
    ExprPtr filter = Make(ExprKind::kFilter, cur().line);
    filter->text = ExpectName();
    while (SkipOp(".")) filter->text += "." + ExpectName();
    filter->kids.push_back(std::move(node));
    if (IsOp("(")) ParseCallArgs(filter.get());
    node = Seal(std::move(filter));
  }
  return node;
}

ExprPtr ExprParser::ParseTest(ExprPtr node) {
  int line = Next().line;
  bool negated = SkipName("not");
  ExprPtr test = Make(ExprKind::kTest, line);
  test->text = ExpectName();
  while (SkipOp(".")) test->text += "." + ExpectName();
  test->kids.push_back(std::move(node));
  Tok type = cur().type;
  bool starts_value = type == Tok::kName || type == Tok::kString || type == Tok::kInteger ||
                      type == Tok::kFloat || IsOp("[") || IsOp("{");
  if (IsOp("(")) {
    ParseCallArgs(test.get());
  } else if (starts_value && !IsName("else") && !IsName("or") && !IsName("and")) {
    if (IsName("is")) Error("you cannot chain multiple tests with is");
    Nested nested(this);
    test->kids.push_back(ParsePostfix(ParsePrimary(false)));
  }
  test = Seal(std::move(test));
  if (!negated) return test;
  ExprPtr inverse = Make(ExprKind::kNot, line);
  inverse->kids.push_back(std::move(test));
  return Seal(std::move(inverse));
}

}  // namespace lucid::jinja
