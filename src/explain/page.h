// Page: what a topic says, as data: paragraphs, formulas, tables, figures. Topics fill one and know
// neither terminals nor HTML; page_text.h and page_html.h write it down.
//
// Words between `backticks` are names (of ops, flags, tensors); HTML shows them as code.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "explain/figure.h"

namespace lucid {

struct HeadingBlock {
  std::string text;
};
struct TextBlock {
  std::string text;
};
struct ListBlock {
  std::vector<std::string> items;
};
// A name and what stands for it, a line each: symbols of a formula, facts of a model.
using Pairs = std::vector<std::pair<std::string, std::string>>;
struct FormulaBlock {
  std::string text;  // lines, as they are
  Pairs symbols;
};
struct FactsBlock {
  Pairs facts;
};
struct TableBlock {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
  size_t left = 1;  // columns of words; others hold numbers
};

using PageBlock =
    std::variant<HeadingBlock, TextBlock, ListBlock, FormulaBlock, FactsBlock, TableBlock, Figure>;

class Page {
 public:
  explicit Page(std::string title) : title_(std::move(title)) {}

  void Heading(std::string text) { blocks_.emplace_back(HeadingBlock{std::move(text)}); }
  void Text(std::string text) { blocks_.emplace_back(TextBlock{std::move(text)}); }
  void List(std::vector<std::string> items) { blocks_.emplace_back(ListBlock{std::move(items)}); }
  void Formula(std::string text, Pairs symbols = {}) {
    blocks_.emplace_back(FormulaBlock{std::move(text), std::move(symbols)});
  }
  void Facts(Pairs facts) { blocks_.emplace_back(FactsBlock{std::move(facts)}); }
  void Table(std::vector<std::string> head, std::vector<std::vector<std::string>> rows,
             size_t left = 1) {
    blocks_.emplace_back(TableBlock{std::move(head), std::move(rows), left});
  }
  void Draw(Figure figure) { blocks_.emplace_back(std::move(figure)); }

  const std::string& title() const { return title_; }
  const std::vector<PageBlock>& blocks() const { return blocks_; }

 private:
  std::string title_;
  std::vector<PageBlock> blocks_;
};

}  // namespace lucid
