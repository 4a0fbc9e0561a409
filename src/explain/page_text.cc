#include "explain/page_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/unicode.h"

namespace lucid {
namespace {

constexpr size_t kIndent = 4;

// The words of `text` in lines that fit; `first` begins the first line, `rest` the others.
std::string Wrapped(std::string_view text, std::string_view first, std::string_view rest) {
  std::string out;
  std::string line(first);
  bool empty = true;  // nothing after the indentation yet
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string_view word = text.substr(at, end - at);
    at = end + 1;
    if (word.empty()) continue;
    if (!empty && DisplayWidth(line) + 1 + DisplayWidth(word) > kPageColumns) {
      out += line + "\n";
      line = rest;
      empty = true;
    }
    if (!empty) line += ' ';
    line += word;
    empty = false;
  }
  return out + line + "\n";
}

// Names in a column, what they stand for wrapped beside it.
std::string PairLines(const Pairs& pairs) {
  size_t width = 0;
  for (const auto& [name, meaning] : pairs) width = std::max(width, DisplayWidth(name));
  width = std::min<size_t>(width, 34);
  std::string out;
  for (const auto& [name, meaning] : pairs) {
    const std::string first = std::string(kIndent, ' ') + Padded(name, width) + "  ";
    out += Wrapped(meaning, first, std::string(kIndent + width + 2, ' '));
  }
  return out;
}

std::string TableLines(const TableBlock& table) {
  std::vector<const std::vector<std::string>*> rows = {&table.head};
  for (const auto& row : table.rows) rows.push_back(&row);
  std::vector<size_t> widths(table.head.size(), 0);
  for (const auto* row : rows) {
    for (size_t i = 0; i < row->size(); ++i) {
      widths[i] = std::max(widths[i], DisplayWidth((*row)[i]));
    }
  }
  std::string out;
  for (const auto* row : rows) {
    std::string line = "  ";
    for (size_t i = 0; i < row->size(); ++i) {
      line += Padded((*row)[i], widths[i], i >= table.left) + "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
    if (row == rows.front()) {
      size_t all = 0;
      for (const size_t width : widths) all += width + 2;
      out += "  " + std::string(all - 2, '-') + "\n";
    }
  }
  return out;
}

struct BlockText {
  std::string operator()(const HeadingBlock& b) const {
    return b.text + "\n" + std::string(DisplayWidth(b.text), '-') + "\n";
  }
  std::string operator()(const TextBlock& b) const { return Wrapped(b.text, "", ""); }
  std::string operator()(const ListBlock& b) const {
    std::string out;
    for (const std::string& item : b.items) out += Wrapped(item, "  - ", "    ");
    return out;
  }
  std::string operator()(const FormulaBlock& b) const {
    std::string out;
    for (size_t at = 0; at < b.text.size();) {
      const size_t end = std::min(b.text.find('\n', at), b.text.size());
      const std::string line = b.text.substr(at, end - at);
      out += (line.empty() ? "" : std::string(2 * kIndent, ' ') + line) + "\n";
      at = end + 1;
    }
    return b.symbols.empty() ? out : out + "\n" + PairLines(b.symbols);
  }
  std::string operator()(const FactsBlock& b) const { return PairLines(b.facts); }
  std::string operator()(const TableBlock& b) const { return TableLines(b); }
  std::string operator()(const Figure& b) const {
    return FigureText(b) + Wrapped(b.caption, "  ", "  ");
  }
};

}  // namespace

size_t DisplayWidth(std::string_view text) {
  size_t width = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = DecodeUtf8(text, at);
    width += c.code < 0 ? 1 : static_cast<size_t>(std::max(0, DisplayColumns(c.code)));
    at += c.length;
  }
  return width;
}

std::string Padded(std::string_view text, size_t width, bool right) {
  std::string out(text);
  size_t used = DisplayWidth(text);
  if (used > width) {
    constexpr std::string_view kCut = "...";
    out.clear();
    used = 0;
    for (size_t at = 0; at < text.size();) {
      const Utf8Char c = DecodeUtf8(text, at);
      const std::string_view bytes = text.substr(at, c.length);
      if (used + DisplayWidth(bytes) + kCut.size() > width) break;
      out += bytes;
      used += DisplayWidth(bytes);
      at += c.length;
    }
    out += kCut;
    used += kCut.size();
  }
  const std::string fill(width > used ? width - used : 0, ' ');
  return right ? fill + out : out + fill;
}

std::string WrappedText(std::string_view text) {
  return Wrapped(text, "", "");
}

std::string PageText(const Page& page) {
  std::string out = page.title() + "\n" + std::string(DisplayWidth(page.title()), '=') + "\n";
  for (const PageBlock& block : page.blocks()) out += "\n" + std::visit(BlockText{}, block);
  return out;
}

}  // namespace lucid
