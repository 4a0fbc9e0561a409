// Result<T>: how every fallible function reports input, file and capacity errors.
//
// An Error is one clear sentence for the person who gave the input; it names the tensor, key, flag
// or limit. Broken invariants of our own are not Errors: they stop the program through
// base/check.h.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

#include <fmt/format.h>

namespace lucid {

enum class ErrorCode {
  kInvalidArgument,  // a flag, request field or prompt that cannot be served as given (HTTP 400)
  kNotFound,         // a file, model name, tensor or key that is not there (HTTP 404)
  kInvalidFile,      // bytes that are not what the format promises
  kUnsupported,      // well-formed, but not something this build can run
  kContextLength,    // the prompt does not fit the context (HTTP 400, context_length_exceeded)
  kCapacity,         // memory, queue or another limit of this machine is reached (HTTP 429 / 503)
  kIo,               // the operating system refused a read, write, map or connection
  kCancelled,        // the caller asked to stop
};

struct Error {
  ErrorCode code = ErrorCode::kInvalidArgument;
  std::string message;
};

template <typename T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

// Err(code, "tensor {} ...", name): an unexpected Error, convertible to any Result<T>.
template <typename... Args>
tl::unexpected<Error> Err(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected<Error>(Error{code, fmt::format(format, std::forward<Args>(args)...)});
}

}  // namespace lucid

// Returns the error of `expr` (a Status or Result) from the enclosing function, if there is one.
#define LUCID_RETURN_IF_ERROR(expr)                                 \
  do {                                                              \
    if (auto&& lucid_status_ = (expr); !lucid_status_) {            \
      return tl::unexpected<::lucid::Error>(lucid_status_.error()); \
    }                                                               \
  } while (false)

#define LUCID_CONCAT_INNER_(a, b) a##b
#define LUCID_CONCAT_(a, b) LUCID_CONCAT_INNER_(a, b)

// LUCID_ASSIGN_OR_RETURN(auto x, F()): the value of F(), or its error returned from here.
#define LUCID_ASSIGN_OR_RETURN(decl, expr) \
  LUCID_ASSIGN_OR_RETURN_IMPL_(LUCID_CONCAT_(lucid_result_, __LINE__), decl, expr)
#define LUCID_ASSIGN_OR_RETURN_IMPL_(tmp, decl, expr)                      \
  auto tmp = (expr);                                                       \
  if (!tmp) return tl::unexpected<::lucid::Error>(std::move(tmp).error()); \
  decl = *std::move(tmp)
