#include "plan/dim.h"

#include <fmt/format.h>

namespace lucid {

int64_t Dim::Bind(const Sizes& sizes) const {
  switch (symbol) {
    case Symbol::kNone:
      return size;
    case Symbol::kTokens:
      return sizes.tokens;
    case Symbol::kOutputs:
      return sizes.outputs;
    case Symbol::kSequences:
      return sizes.sequences;
    case Symbol::kContext:
      return sizes.context;
  }
  return 0;
}

std::string Dim::ToString() const {
  switch (symbol) {
    case Symbol::kNone:
      return fmt::to_string(size);
    case Symbol::kTokens:
      return "T";
    case Symbol::kOutputs:
      return "R";
    case Symbol::kSequences:
      return "S";
    case Symbol::kContext:
      return "C";
  }
  return "?";
}

int64_t Shape::Elements(const Sizes& sizes) const {
  int64_t n = 1;
  for (int i = 0; i < rank; ++i) n *= dims[i].Bind(sizes);
  return n;
}

int64_t Shape::Width() const {
  int64_t n = 1;
  for (int i = 1; i < rank; ++i) {
    LUCID_CHECK(dims[i].symbol == Symbol::kNone, "only the first dimension may be symbolic");
    n *= dims[i].size;
  }
  return n;
}

std::string Shape::ToString() const {
  std::string text = "[";
  for (int i = 0; i < rank; ++i) text += (i ? ", " : "") + dims[i].ToString();
  return text + "]";
}

std::string Shape::ToString(const Sizes& sizes) const {
  std::string text = "[";
  for (int i = 0; i < rank; ++i) text += (i ? ", " : "") + fmt::to_string(dims[i].Bind(sizes));
  return text + "]";
}

}  // namespace lucid
