// The papers that topics name.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lucid {

struct Paper {
  std::string_view key;      // "gqa"
  std::string_view authors;  // "Ainslie et al."
  std::string_view title;
  int year = 0;
  std::string_view where;  // "EMNLP, arXiv 2305.13245"
};

std::span<const Paper> AllPapers();
// nullptr where there is none.
const Paper* FindPaper(std::string_view key);
// "Ainslie et al.: GQA: ... (2023, EMNLP, arXiv 2305.13245)"
std::string Cite(const Paper& paper);

}  // namespace lucid
