#include "cli/report_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "account/html_page.h"

namespace lucid::cli {

std::string TableText(const ReportTable& table) {
  std::vector<const std::vector<std::string>*> rows = {&table.head};
  for (const auto& row : table.rows) rows.push_back(&row);
  std::vector<size_t> widths(table.head.size(), 0);
  for (const auto* row : rows) {
    for (size_t i = 0; i < row->size(); ++i) widths[i] = std::max(widths[i], (*row)[i].size());
  }
  std::string text;
  for (const auto* row : rows) {
    std::string line;
    for (size_t i = 0; i < row->size(); ++i) {
      line += i < table.left ? fmt::format(" {:<{}} ", (*row)[i], widths[i])
                             : fmt::format(" {:>{}} ", (*row)[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += " " + line + "\n";
  }
  return text;
}

std::string TableHtml(const ReportTable& table) {
  const auto row = [&](const std::vector<std::string>& cells, const char* tag) {
    std::string html = "<tr>";
    for (size_t i = 0; i < cells.size(); ++i) {
      html += fmt::format("<{}{}>{}</{}>", tag, i < table.left ? "" : " class=\"num\"",
                          EscapeHtml(cells[i]), tag);
    }
    return html + "</tr>\n";
  };
  std::string html = "<div class=\"scroll\"><table>\n" + row(table.head, "th");
  for (const auto& cells : table.rows) html += row(cells, "td");
  return html + "</table></div>\n";
}

std::string ParagraphHtml(const std::string& lines) {
  std::string html = "<p>";
  for (const char c : EscapeHtml(lines)) {
    html += c == '\n' ? std::string("<br>") : std::string(1, c);
  }
  return html + "</p>\n";
}

std::string PercentText(double part, double whole) {
  return whole > 0 ? fmt::format("{:.1f} %", 100 * part / whole) : "-";
}

}  // namespace lucid::cli
