// Tables that commands print: for terminals, and in pages.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lucid::cli {

struct ReportTable {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows = {};  // the last is the sum, where there is one
  size_t left = 1;                                  // columns of text; others hold numbers
};

// Columns as wide as their widest cell; every line begins with two spaces.
std::string TableText(const ReportTable& table);
// Cells escaped, numbers to the right, in a frame that scrolls by itself.
std::string TableHtml(const ReportTable& table);
// A paragraph of a page: escaped, with its line breaks.
std::string ParagraphHtml(const std::string& lines);

// "12.3 %", or "-" of nothing.
std::string PercentText(double part, double whole);

}  // namespace lucid::cli
