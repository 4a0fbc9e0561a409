#include "account/html_page.h"

#include <fmt/format.h>

namespace lucid {
namespace {

constexpr std::string_view kStyle = R"css(
:root {
  color-scheme: light dark;
  --paper: #fbfbfa; --card: #ffffff; --ink: #1d1f23; --muted: #5c626b; --line: #d9dce1;
  --accent: #0b5fb3; --soft: #e3eefa;
  --c1: #1765b8; --c2: #a85300; --c3: #1d7a3e; --c4: #7a45b3; --c5: #b3261e; --c6: #5c626b;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #15171a; --card: #1d2024; --ink: #e7e9ec; --muted: #a2a9b3; --line: #3a3f47;
    --accent: #7db8f5; --soft: #1f3349;
    --c1: #7db8f5; --c2: #f0a35c; --c3: #74cf94; --c4: #c6a2f2; --c5: #f28b82; --c6: #a2a9b3;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 24px; max-width: 1400px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif;
}
h1 { font-size: 22px; line-height: 1.3; margin: 0 0 12px; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 28px 0 8px; }
a { color: var(--accent); }
code, .mono { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: 13px; }
.muted { color: var(--muted); }
.badge {
  display: inline-block; padding: 0 7px; border: 1px solid var(--line); border-radius: 9px;
  color: var(--muted); font-size: 12px; white-space: nowrap;
}
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; margin: 12px 0; padding: 12px 14px; }
details.card > summary { cursor: pointer; font-weight: 600; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; }
th, td { padding: 4px 12px 4px 0; text-align: left; vertical-align: top; }
th { color: var(--muted); font-weight: 600; border-bottom: 1px solid var(--line); }
td { border-bottom: 1px solid var(--line); }
tr:last-child > td { border-bottom: 0; }
th.num, td.num { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
dl.facts { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; margin: 0; }
dl.facts dt { color: var(--muted); }
dl.facts dd { margin: 0; overflow-wrap: anywhere; }
input.search {
  font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line);
  border-radius: 6px; padding: 5px 10px; width: min(340px, 100%);
}
:focus-visible { outline: 2px solid var(--accent); outline-offset: 1px; }
svg text { fill: var(--ink); font: 12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
)css";

}  // namespace

std::string EscapeHtml(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default: {
        const auto byte = static_cast<unsigned char>(c);
        const bool control = (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f;
        if (control) {
          out += "\xef\xbf\xbd";
        } else {
          out += c;
        }
      }
    }
  }
  return out;
}

std::string RenderHtmlPage(const HtmlPage& page) {
  const std::string title = EscapeHtml(page.title);
  // The script is the page's own: "unsafe-inline" lets it run, 'none' for all else keeps out what
  // a name from a file might smuggle in.
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; script-src 'unsafe-inline'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{}</title>\n<style>{}{}</style>\n</head>\n<body>\n<h1>{}</h1>\n{}\n",
      title, kStyle, page.style, title, page.body);
  if (!page.script.empty()) out += fmt::format("<script>\n{}\n</script>\n", page.script);
  return out + "</body>\n</html>\n";
}

}  // namespace lucid
