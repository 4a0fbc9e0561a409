#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace lucid {

void CheckFailed(const char* condition, const char* file, int line, const std::string& note) {
  fmt::print(stderr, "lucid: internal error at {}:{}: {} does not hold. {}\n", file, line,
             condition, note);
  std::abort();
}

}  // namespace lucid
