// Names after parsing: which scope owns a name, decided the way Jinja's compiler does
// (jinja2/idtracking.py documents it), and the errors that need no data: unknown filters and tests,
// a break outside a loop. Entry point: AnalyzeScopes. Neighbours: jinja_parse.cc calls it;
// jinja_eval.cc uses the marks it leaves.
#pragma once

#include "text/jinja_ast.h"

namespace lucid::jinja {

void AnalyzeScopes(Program* program);

}  // namespace lucid::jinja
