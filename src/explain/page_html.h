// A page as HTML, and a site of all of them: no page needs the network, or anything but its
// siblings for links. Neighbours: page_text.h, account/html_page.h (what every page shares).
#pragma once

#include <string>
#include <vector>

#include "explain/page.h"

namespace lucid {

// What leads to and from a page of a site; empty parts are left out.
struct PageLinks {
  Pairs before;  // text and address: shown above the page
  Pairs after;   // and below it
};

// `subject`: one line about what the numbers are of.
std::string PageHtml(const Page& page, const std::string& subject, const PageLinks& links);

// The drawing of a figure as SVG, with its legend.
std::string FigureSvg(const Figure& figure);

}  // namespace lucid
