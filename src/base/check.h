// LUCID_CHECK: invariants of our own code. A failed check is a bug; it prints the place and stops.
// No input, file or client may be able to reach one: those errors are Results (base/result.h).
#pragma once

#include <fmt/format.h>

#include <string>

namespace lucid {

[[noreturn]] void CheckFailed(const char* condition, const char* file, int line,
                              const std::string& note);

}  // namespace lucid

#define LUCID_CHECK(condition, ...)                                                        \
  do {                                                                                     \
    if (!(condition)) [[unlikely]] {                                                       \
      ::lucid::CheckFailed(#condition, __FILE__, __LINE__, ::fmt::format("" __VA_ARGS__)); \
    }                                                                                      \
  } while (false)

#ifdef NDEBUG
#define LUCID_DCHECK(condition, ...) \
  do {                               \
  } while (false)
#else
#define LUCID_DCHECK(condition, ...) LUCID_CHECK(condition, __VA_ARGS__)
#endif
