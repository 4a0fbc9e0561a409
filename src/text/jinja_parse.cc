// See jinja_parse.h. This file has the statements; jinja_parse_expr.cc has the expressions.
#include "text/jinja_parse.h"

#include <algorithm>

#include "text/jinja_parse_expr.h"
#include "text/jinja_scope.h"

namespace lucid::jinja {
namespace {

using Names = std::initializer_list<std::string_view>;

class Parser : private ExprParser {
 public:
  explicit Parser(std::vector<Token> tokens) : ExprParser(std::move(tokens)) {}

  Program Run() {
    Program program;
    program.body = ParseBody({});
    program.names = std::move(names_);
    return program;
  }

 private:
  StmtPtr MakeStmt(StmtKind kind, int line) const {
    auto stmt = std::make_unique<Stmt>();
    stmt->kind = kind;
    stmt->line = line;
    return stmt;
  }

  bool AtAny(Names names) const {
    return std::any_of(names.begin(), names.end(), [&](auto name) { return IsName(name); });
  }

  // Text and tags up to a tag of `ends`, whose name is then the current token; to the end of the
  // template if there are none.
  Body ParseBody(Names ends) {
    Nested nested(this);
    Body body;
    while (cur().type != Tok::kEof) {
      int line = cur().line;
      if (cur().type == Tok::kData) {
        body.push_back(MakeStmt(StmtKind::kData, line));
        body.back()->data = Next().text;
      } else if (cur().type == Tok::kVariableBegin) {
        Next();
        body.push_back(MakeStmt(StmtKind::kPrint, line));
        body.back()->expr = ParseTuple({});
        Expect(Tok::kVariableEnd, "'}}'");
      } else {
        Expect(Tok::kBlockBegin, "a tag");
        if (AtAny(ends)) return body;
        ParseStatement(ends, &body);
        Expect(Tok::kBlockEnd, "'%}'");
      }
    }
    if (ends.size() != 0) {
      Error(
          fmt::format("unexpected end of template: '{}' was expected to close the '{}' of line {}",
                      fmt::join(ends, "' or '"), open_tag_, open_line_));
    }
    return body;
  }

  // The body after a tag, through the tag of `ends`; with `drop` that tag's name is consumed too.
  Body ParseBlock(const Stmt& owner, std::string_view tag, Names ends, bool drop) {
    SkipOp(":");
    Expect(Tok::kBlockEnd, "'%}'");
    auto saved = std::make_pair(open_tag_, open_line_);
    open_tag_ = tag;
    open_line_ = owner.line;
    Body body = ParseBody(ends);
    std::tie(open_tag_, open_line_) = saved;
    if (drop) Next();
    return body;
  }

  void ParseStatement(Names ends, Body* body) {
    if (cur().type != Tok::kName) Error("tag name expected");
    using Parse = StmtPtr (Parser::*)(int);
    struct Row {
      std::string_view tag;
      Parse parse;
    };
    static constexpr Row kRows[] = {
        {"if", &Parser::ParseIf},           {"for", &Parser::ParseFor},
        {"set", &Parser::ParseSet},         {"macro", &Parser::ParseMacro},
        {"call", &Parser::ParseCallBlock},  {"filter", &Parser::ParseFilterBlock},
        {"with", &Parser::ParseWith},       {"generation", &Parser::ParseGeneration},
        {"block", &Parser::ParseNamedBlock}};
    std::string tag = cur().text;
    int line = cur().line;
    for (const Row& row : kRows) {
      if (row.tag == tag) {
        Next();
        body->push_back((this->*row.parse)(line));
        return;
      }
    }
    if (tag == "print") {
      Next();
      ParsePrint(line, body);
    } else if (tag == "break" || tag == "continue") {
      Next();
      body->push_back(MakeStmt(tag == "break" ? StmtKind::kBreak : StmtKind::kContinue, line));
    } else {
      Unknown(tag, ends);
    }
  }

  [[noreturn]] void Unknown(const std::string& tag, Names ends) const {
    for (std::string_view name : {"include", "import", "from", "extends", "autoescape"}) {
      if (tag == name) Error(fmt::format("the tag '{}' is not supported in chat templates", tag));
    }
    if (ends.size() == 0) Error(fmt::format("unknown tag '{}'", tag));
    Error(fmt::format("unknown tag '{}'; '{}' was expected to close the '{}' of line {}", tag,
                      fmt::join(ends, "' or '"), open_tag_, open_line_));
  }

  StmtPtr ParseIf(int line) {
    StmtPtr stmt = MakeStmt(StmtKind::kIf, line);
    while (true) {
      Branch branch;
      branch.test = ParseTuple({.with_cond = false});
      branch.body = ParseBlock(*stmt, "if", {"elif", "else", "endif"}, false);
      stmt->branches.push_back(std::move(branch));
      std::string tag = Next().text;
      if (tag == "elif") continue;
      if (tag == "else") {
        stmt->branches.push_back({nullptr, ParseBlock(*stmt, "if", {"endif"}, true)});
      }
      return stmt;
    }
  }

  StmtPtr ParseFor(int line) {
    StmtPtr stmt = MakeStmt(StmtKind::kFor, line);
    stmt->target = ParseTarget(false, "in");
    if (!SkipName("in")) Error(fmt::format("expected 'in', got {}", Describe(cur())));
    stmt->expr = ParseTuple({.with_cond = false, .end_name = "recursive"});
    if (SkipName("if")) stmt->test = ParseExpression();
    stmt->recursive = SkipName("recursive");
    stmt->body = ParseBlock(*stmt, "for", {"endfor", "else"}, false);
    if (Next().text == "else") stmt->else_body = ParseBlock(*stmt, "for", {"endfor"}, true);
    return stmt;
  }

  StmtPtr ParseSet(int line) {
    StmtPtr stmt = MakeStmt(StmtKind::kSet, line);
    stmt->target = ParseTarget(true, {});
    if (SkipOp("=")) {
      stmt->expr = ParseTuple({});
      return stmt;
    }
    stmt->kind = StmtKind::kSetBlock;
    if (IsOp("|")) stmt->expr = ParseFilter(nullptr, false);
    stmt->body = ParseBlock(*stmt, "set", {"endset"}, true);
    return stmt;
  }

  void ParseSignature(Stmt* stmt) {
    ExpectOp("(");
    while (!IsOp(")")) {
      if (!stmt->params.empty()) ExpectOp(",");
      NameId name = Intern(ExpectName());
      if (std::count(stmt->params.begin(), stmt->params.end(), name) != 0) {
        Error("a parameter is named twice");
      }
      stmt->params.push_back(name);
      if (SkipOp("=")) {
        stmt->defaults.push_back(ParseExpression());
      } else if (!stmt->defaults.empty()) {
        Error("non-default argument follows default argument");
      }
    }
    ExpectOp(")");
  }

  StmtPtr ParseMacro(int line) {
    StmtPtr stmt = MakeStmt(StmtKind::kMacro, line);
    stmt->name = Intern(ExpectName());
    ParseSignature(stmt.get());
    stmt->body = ParseBlock(*stmt, "macro", {"endmacro"}, true);
    return stmt;
  }

  StmtPtr ParseCallBlock(int line) {
    StmtPtr stmt = MakeStmt(StmtKind::kCall, line);
    if (IsOp("(")) ParseSignature(stmt.get());
    stmt->expr = ParseExpression();
    if (stmt->expr->kind != ExprKind::kCall) Error("expected a call", line);
    stmt->body = ParseBlock(*stmt, "call", {"endcall"}, true);
    return stmt;
  }

  StmtPtr ParseFilterBlock(int line) {
    StmtPtr stmt = MakeStmt(StmtKind::kFilter, line);
    stmt->expr = ParseFilter(nullptr, true);
    stmt->body = ParseBlock(*stmt, "filter", {"endfilter"}, true);
    return stmt;
  }

  StmtPtr ParseWith(int line) {
    StmtPtr stmt = MakeStmt(StmtKind::kWith, line);
    while (cur().type != Tok::kBlockEnd) {
      if (!stmt->targets.empty()) ExpectOp(",");
      stmt->targets.push_back(ParseTarget(false, {}));
      ExpectOp("=");
      stmt->values.push_back(ParseExpression());
    }
    stmt->body = ParseBlock(*stmt, "with", {"endwith"}, true);
    return stmt;
  }

  StmtPtr ParseGeneration(int line) {
    StmtPtr stmt = MakeStmt(StmtKind::kBlock, line);
    stmt->body = ParseBlock(*stmt, "generation", {"endgeneration"}, true);
    return stmt;
  }

  StmtPtr ParseNamedBlock(int line) {
    StmtPtr stmt = MakeStmt(StmtKind::kBlock, line);
    std::string name = ExpectName();
    SkipName("scoped");
    stmt->body = ParseBlock(*stmt, "block", {"endblock"}, true);
    SkipName(name);
    return stmt;
  }

  void ParsePrint(int line, Body* body) {
    bool first = true;
    while (cur().type != Tok::kBlockEnd) {
      if (!first) ExpectOp(",");
      first = false;
      body->push_back(MakeStmt(StmtKind::kPrint, line));
      body->back()->expr = ParseExpression();
    }
  }

  std::string open_tag_;  // the innermost open tag, for error messages
  int open_line_ = 0;
};

}  // namespace

Program ParseTemplate(std::string_view source) {
  Program program = Parser(Lex(source)).Run();
  AnalyzeScopes(&program);
  return program;
}

}  // namespace lucid::jinja
