// Template source to tokens, with Jinja's white space rules as transformers sets them (trim_blocks,
// lstrip_blocks, one trailing newline dropped). Entry point: Lex. Neighbour: jinja_parse.cc.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_value.h"

namespace lucid::jinja {

enum class Tok : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEof,
};

struct Token {
  Tok type = Tok::kEof;
  int line = 1;
  std::string text;  // data, name, operator, or the unescaped string
  Value number;      // kInteger and kFloat
};

// kSyntax TemplateError with a line for source that is no template. The last token is kEof.
std::vector<Token> Lex(std::string_view source);

}  // namespace lucid::jinja
