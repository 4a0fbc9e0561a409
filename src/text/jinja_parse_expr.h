// The expression half of the parser; jinja_parse.cc holds the statements. Internal to the parser.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_lex.h"

namespace lucid::jinja {

class ExprParser {
 protected:
  explicit ExprParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& cur() const { return tokens_[at_]; }
  const Token& Look() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  const Token& Next() { return tokens_[cur().type == Tok::kEof ? at_ : at_++]; }
  bool IsOp(std::string_view op) const { return cur().type == Tok::kOperator && cur().text == op; }
  bool IsName(std::string_view name) const {
    return cur().type == Tok::kName && cur().text == name;
  }
  bool SkipOp(std::string_view op);
  bool SkipName(std::string_view name);
  void ExpectOp(std::string_view op);
  std::string ExpectName();
  void Expect(Tok type, std::string_view what);
  [[noreturn]] void Error(std::string message, int line = 0) const;
  std::string Describe(const Token& token) const;

  ExprPtr Make(ExprKind kind, int line) const;
  // The node with its depth set from its children; every composite node passes through here.
  ExprPtr Seal(ExprPtr node) const;
  NameId Intern(const std::string& name);

  // One expression; without `with_cond` no trailing "if" is taken (as after "for x in").
  ExprPtr ParseExpression(bool with_cond = true);
  struct TupleMode {
    bool simplified = false;  // names and literals only: an assignment target
    bool with_cond = true;
    bool parentheses = false;  // "()" is the empty tuple
    bool with_namespace = false;
    std::string_view end_name = {};  // a name that ends the tuple ("in", "recursive")
  };
  ExprPtr ParseTuple(const TupleMode& mode);
  ExprPtr ParseTarget(bool with_namespace, std::string_view end_name);
  ExprPtr ParseFilter(ExprPtr node, bool start_inline);
  bool AtTupleEnd(std::string_view end_name) const;

  // Counts nesting for the lifetime of one parse function.
  class Nested {
   public:
    explicit Nested(ExprParser* parser);
    ~Nested() { --parser_->nesting_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    ExprParser* parser_;
  };

  std::vector<std::string> names_;

 private:
  ExprPtr ParseCond();
  ExprPtr ParseOr();
  ExprPtr ParseAnd();
  ExprPtr ParseNot();
  ExprPtr ParseCompare();
  ExprPtr ParseMath1();
  ExprPtr ParseConcat();
  ExprPtr ParseMath2();
  ExprPtr ParsePow();
  ExprPtr ParseUnary(bool with_filter = true);
  ExprPtr ParsePrimary(bool with_namespace);
  ExprPtr ParsePostfix(ExprPtr node);
  ExprPtr ParseFilterExpr(ExprPtr node);
  ExprPtr ParseSubscript(ExprPtr node);
  ExprPtr ParseSubscribed();
  ExprPtr ParseCall(ExprPtr node);
  void ParseCallArgs(Expr* call);
  ExprPtr ParseTest(ExprPtr node);
  ExprPtr ParseList();
  ExprPtr ParseDict();
  ExprPtr Binary(BinaryOp op, ExprPtr left, ExprPtr right, int line) const;

  std::vector<Token> tokens_;
  std::unordered_map<std::string, NameId> name_ids_;
  size_t at_ = 0;
  uint32_t nesting_ = 0;
};

}  // namespace lucid::jinja
