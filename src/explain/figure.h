// Figure: a drawing as data. figure_text.h draws it with characters, figure_svg.h as SVG.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "account/svg.h"

namespace lucid {

// Horizontal bars, the widest for the largest value.
struct Bars {
  struct Bar {
    std::string name;
    double value = 0;
    std::string text;  // beside it
  };
  std::vector<Bar> bars;
};

// Lines and marks over two axes.
struct Plot {
  struct Line {
    std::string name;
    std::vector<std::pair<double, double>> points;
  };
  struct Mark {
    std::string name;
    double x = 0, y = 0;
  };
  struct Rule {  // a line across the whole plot, at one value of an axis
    std::string name;
    double at = 0;
    bool vertical = true;
  };
  std::string x_title, y_title;
  bool log_x = false, log_y = false;
  svg::Label x_label = svg::PlainLabel, y_label = svg::PlainLabel;
  std::vector<Line> lines;  // at most 4
  std::vector<Mark> marks;  // at most 6
  std::vector<Rule> rules;
};

// A matrix of numbers from 0 to 1, dark for large ones; below 0: there is none.
struct HeatMap {
  std::vector<std::string> row_names, column_names;
  std::vector<std::vector<double>> rows;
};

// Rows of small cells with a word each, of one colour for what belongs together: block tables, the
// bits of a block.
struct Cells {
  struct Cell {
    std::string text;
    int colour = 0;  // 1 to 6; 0: an empty frame
  };
  struct Row {
    std::string name;
    std::vector<Cell> cells;
  };
  std::vector<Row> rows;
};

// Arrows in circles: a pair of numbers as a point of the plane, turned by an angle for each
// position.
struct Turns {
  struct Circle {
    std::string name;
    std::vector<double> angles;  // radians, of position 0, 1, ...
  };
  std::vector<Circle> circles;
};

struct Figure {
  std::string caption;
  std::variant<Bars, Plot, HeatMap, Cells, Turns> drawing;
};

}  // namespace lucid
