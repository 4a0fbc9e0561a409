// Symbolic sizes: a plan is made once, before anybody knows how many tokens a step will bring.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/check.h"

namespace lucid {

// A batch size that a plan leaves open.
enum class Symbol : int8_t {
  kNone,       // a plain number
  kTokens,     // T: tokens in the step
  kOutputs,    // R: rows whose logits are wanted
  kSequences,  // S: sequences in the step
  kContext,    // C: key positions that one sequence can hold
};

// Values for the symbols.
struct Sizes {
  int64_t tokens = 0;
  int64_t outputs = 0;
  int64_t sequences = 0;
  int64_t context = 0;
};

struct Dim {
  Symbol symbol = Symbol::kNone;
  int64_t size = 1;  // only for kNone

  constexpr Dim() = default;
  constexpr Dim(int64_t n) : size(n) {}   // NOLINT: a number is a size
  constexpr Dim(Symbol s) : symbol(s) {}  // NOLINT

  int64_t Bind(const Sizes& sizes) const;
  std::string ToString() const;  // "T" or "576"
  bool operator==(const Dim&) const = default;
};

struct Shape {
  static constexpr int kMaxRank = 4;

  std::array<Dim, kMaxRank> dims{};
  int rank = 0;

  Shape() = default;
  Shape(std::initializer_list<Dim> list) {
    LUCID_CHECK(list.size() <= kMaxRank);
    for (const Dim& d : list) dims[rank++] = d;
  }

  const Dim& operator[](int i) const { return dims[i]; }
  // Number of elements, and of elements per row of the outermost dimension.
  int64_t Elements(const Sizes& sizes) const;
  int64_t Width() const;  // product of all but the first dimension, which must be plain numbers
  std::string ToString() const;                    // "[T, 9, 64]"
  std::string ToString(const Sizes& sizes) const;  // "[12, 9, 64]"
  bool operator==(const Shape&) const = default;
};

}  // namespace lucid
