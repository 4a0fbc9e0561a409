// A graph as one HTML page: blocks that fold, ops as rows with their wires beside them, inputs and
// outputs shown where one points or clicks, a search. Neighbours: plan/graph.h (what is drawn),
// html_page.h (the frame of the page).
#pragma once

#include <string>

#include "plan/graph.h"
#include "plan/graph_render.h"

namespace lucid {

std::string GraphHtml(const Graph& graph, const GraphHeading& heading);

}  // namespace lucid
