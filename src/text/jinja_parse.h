// Tokens to a syntax tree: Jinja's grammar, with the tags of transformers (generation, break,
// continue). Entry point: ParseTemplate. Neighbours: jinja_lex.h before it, jinja_scope.h after it.
#pragma once

#include <string_view>

#include "text/jinja_ast.h"

namespace lucid::jinja {

// Nesting of expressions and of blocks beyond this is refused, since parser and evaluator recurse
// over it.
inline constexpr uint32_t kMaxNesting = 300;
// Length of a left-leaning chain (a + b + c ..., a.b.c ...), over which only the evaluator
// recurses.
inline constexpr uint32_t kMaxExprDepth = 300;

// kSyntax TemplateError with a line if `source` is not a template.
Program ParseTemplate(std::string_view source);

}  // namespace lucid::jinja
