#include "explain/page_html.h"

#include <fmt/format.h>

#include "account/html_page.h"
#include "account/svg.h"

namespace lucid {
namespace {

// Text with `names` as code.
std::string Inline(std::string_view text) {
  std::string out;
  bool code = false;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('`', at), text.size());
    out += EscapeHtml(text.substr(at, end - at));
    if (end < text.size()) {
      out += code ? "</code>" : "<code>";
      code = !code;
    }
    at = end + 1;
  }
  return code ? out + "</code>" : out;
}

std::string PairList(const Pairs& pairs, bool code) {
  std::string out = "<dl class=\"facts\">\n";
  for (const auto& [name, meaning] : pairs) {
    out +=
        fmt::format("<dt>{}</dt><dd>{}</dd>\n",
                    code ? "<code>" + EscapeHtml(name) + "</code>" : Inline(name), Inline(meaning));
  }
  return out + "</dl>\n";
}

struct BlockHtml {
  std::string operator()(const HeadingBlock& b) const {
    return "<h2>" + Inline(b.text) + "</h2>\n";
  }
  std::string operator()(const TextBlock& b) const { return "<p>" + Inline(b.text) + "</p>\n"; }
  std::string operator()(const ListBlock& b) const {
    std::string out = "<ul>\n";
    for (const std::string& item : b.items) out += "<li>" + Inline(item) + "</li>\n";
    return out + "</ul>\n";
  }
  std::string operator()(const FormulaBlock& b) const {
    const std::string symbols = b.symbols.empty() ? "" : PairList(b.symbols, true);
    return "<div class=\"card\"><pre class=\"formula\">" + EscapeHtml(b.text) + "</pre>" + symbols +
           "</div>\n";
  }
  std::string operator()(const FactsBlock& b) const {
    return "<div class=\"card\">" + PairList(b.facts, false) + "</div>\n";
  }
  std::string operator()(const TableBlock& b) const {
    const auto row = [&](const std::vector<std::string>& cells, const char* tag) {
      std::string html = "<tr>";
      for (size_t i = 0; i < cells.size(); ++i) {
        html += fmt::format("<{}{}>{}</{}>", tag, i < b.left ? "" : " class=\"num\"",
                            Inline(cells[i]), tag);
      }
      return html + "</tr>\n";
    };
    std::string html = "<div class=\"card scroll\"><table>\n" + row(b.head, "th");
    for (const auto& cells : b.rows) html += row(cells, "td");
    return html + "</table></div>\n";
  }
  std::string operator()(const Figure& b) const {
    return "<figure class=\"card\">\n" + FigureSvg(b) + "<figcaption class=\"muted\">" +
           Inline(b.caption) + "</figcaption></figure>\n";
  }
};

std::string LinkLine(const Pairs& links) {
  std::string out = "<p class=\"links\">";
  for (const auto& [text, address] : links) {
    out += fmt::format("<a href=\"{}\">{}</a> ", EscapeHtml(address), EscapeHtml(text));
  }
  return out + "</p>\n";
}

constexpr std::string_view kStyle = R"css(
body { max-width: 860px; }
p, li { max-width: 760px; }
pre.formula {
  margin: 0 0 10px; overflow-x: auto; font: 14px/1.5 ui-monospace, "DejaVu Sans Mono", Menlo, monospace;
}
pre.formula:last-child { margin-bottom: 0; }
figure { margin: 12px 0; }
figcaption { margin-top: 6px; max-width: 760px; }
p.links a { margin-right: 16px; }
code { white-space: nowrap; }
)css";

}  // namespace

std::string PageHtml(const Page& page, const std::string& subject, const PageLinks& links) {
  std::string body;
  if (!links.before.empty()) body += LinkLine(links.before);
  if (!subject.empty()) body += "<p class=\"muted\">" + EscapeHtml(subject) + "</p>\n";
  for (const PageBlock& block : page.blocks()) body += std::visit(BlockHtml{}, block);
  if (!links.after.empty()) body += LinkLine(links.after);
  return RenderHtmlPage({.title = page.title(),
                         .style = std::string(kStyle) + std::string(svg::Style()),
                         .body = body,
                         .script = ""});
}

}  // namespace lucid
