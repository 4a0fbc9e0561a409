// What the measuring programs share.
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/result.h"

namespace lucid {

[[noreturn]] inline void Fail(const Error& error) {
  fmt::print(stderr, "{}: {}\n", program_invocation_short_name, error.message);
  std::exit(1);
}

// The value, or the end of the program with the error's sentence.
template <typename T>
T Get(Result<T> result) {
  if (!result) Fail(result.error());
  return *std::move(result);
}

}  // namespace lucid
