// HtmlPage: what every HTML output shares: one page that needs nothing but itself (no network, no
// files beside it), in the reader's colour scheme, with the rules that tables, cards and charts
// have in common. Entry point: RenderHtmlPage. Neighbours: those who fill pages.
#pragma once

#include <string>
#include <string_view>

namespace lucid {

// Text as it may stand between tags and in quoted attributes: & < > " ' as entities, control
// characters but for newline and tab as U+FFFD.
std::string EscapeHtml(std::string_view text);

struct HtmlPage {
  std::string title;   // plain text; the page's heading too
  std::string style;   // CSS, after the shared rules
  std::string body;    // HTML, below the heading
  std::string script;  // JavaScript, run once the body is there; empty: none
};

// The page as one text. The shared rules offer
//   colours, light and dark: var(--paper) (page), --card, --ink (text), --muted (text that matters
//     less), --line (borders, grids), --accent (links, what is chosen), --soft (its background) and
//     --c1 to --c6 (series of a chart: blue, orange, green, purple, red, grey), all with --paper
//     and --card at a contrast of at least 4.5;
//   classes: "num" (figures in a cell, to the right), "muted", "mono", "badge" (a word in a frame),
//     "card" (a frame; of <details> too), "scroll" (wide tables scroll in it, not the page),
//     "search" (an <input>), "facts" (a <dl> in columns).
// A policy in the page forbids the browser to fetch anything.
std::string RenderHtmlPage(const HtmlPage& page);

}  // namespace lucid
