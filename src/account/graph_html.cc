#include "account/graph_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "account/html_page.h"
#include "plan/graph_labels.h"
#include "plan/graph_lanes.h"
#include "plan/op_table.h"
#include "plan/print.h"

namespace lucid {
namespace {

constexpr int kRowHeight = 28;
constexpr int kLaneWidth = 16;
constexpr size_t kMostOpenBlocks = 12;  // a page of more begins folded

constexpr std::string_view kStyle = R"css(
.bar { display: flex; flex-wrap: wrap; gap: 8px 18px; align-items: center; margin: 14px 0; }
.key { display: inline-flex; align-items: center; gap: 6px; font-size: 13px; color: var(--muted); }
.key i { width: 10px; height: 10px; border-radius: 50%; background: currentColor; }
.matrix { color: var(--c1); } .cache { color: var(--c2); } .norm { color: var(--c4); }
.expert { color: var(--c3); } .plain { color: var(--c6); }
.graph { position: relative; width: max-content; min-width: 100%; margin-top: 8px; }
.graph svg { position: absolute; left: 0; top: 0; pointer-events: none; }
.graph path { fill: none; stroke: var(--muted); stroke-width: 1.5; opacity: .55; }
.graph path.from { stroke: var(--c1); stroke-width: 2.5; opacity: 1; }
.graph path.to { stroke: var(--c2); stroke-width: 2.5; opacity: 1; }
.graph circle { fill: currentColor; stroke: var(--card); stroke-width: 1.5; }
.row { display: grid; align-items: center; column-gap: 14px; height: 28px; padding-right: 10px;
  white-space: nowrap; border-radius: 5px; border-left: 3px solid transparent; }
.row.op { cursor: pointer; }
.row .name { font-weight: 600; }
.row .operand { margin-right: 16px; }
.row .numbers, .row .role, .row .attrs { color: var(--muted); }
.row.head { color: var(--muted); font-size: 12px; }
.row.end { color: var(--muted); }
.row.from { border-left-color: var(--c1); background: var(--soft); }
.row.to { border-left-color: var(--c2); background: var(--soft); }
.row.here, .row.op:hover { background: var(--soft); }
.row.here { border-left-color: var(--accent); }
.searching .row.op:not(.found) { opacity: .35; }
#panel { position: fixed; inset: auto 0 0 0; max-height: 45vh; overflow: auto; background: var(--card);
  border-top: 2px solid var(--accent); padding: 12px 24px 18px; }
#panel h2 { margin: 0 0 6px; font-size: 16px; overflow-wrap: anywhere; }
button { font: inherit; font-size: 13px; color: inherit; cursor: pointer; background: var(--card);
  border: 1px solid var(--line); border-radius: 6px; padding: 3px 10px; }
#panel button { position: absolute; right: 16px; top: 10px; }
body.pinned { padding-bottom: 48vh; }
)css";

// Pointing at an op marks those whose results it reads and those that read its; a click keeps it
// and opens its panel.
constexpr std::string_view kScript = R"js(
const $ = (selector) => [...document.querySelectorAll(selector)];
const panel = document.getElementById('panel');
let pinned = null;
const list = (text) => (text || '').split(' ').filter(Boolean);
function mark(row) {
  $('.from, .to, .here').forEach((e) => e.classList.remove('from', 'to', 'here'));
  if (!row) return;
  row.classList.add('here');
  list(row.dataset.in).forEach((id) => document.getElementById(id)?.classList.add('from'));
  list(row.dataset.out).forEach((id) => document.getElementById(id)?.classList.add('to'));
  $('path[data-to="' + row.id + '"]').forEach((p) => p.classList.add('from'));
  $('path[data-from="' + row.id + '"]').forEach((p) => p.classList.add('to'));
}
function pin(row) {
  pinned = row;
  mark(row);
  document.body.classList.toggle('pinned', !!row);
  panel.hidden = !row;
  if (!row) return;
  panel.querySelector('div').replaceChildren(document.getElementById('t-' + row.id).content.cloneNode(true));
}
function show(id) {
  const row = document.getElementById(id);
  row.closest('details').open = true;
  pin(row);
  row.scrollIntoView({ block: 'center' });
  row.focus({ preventScroll: true });
}
$('.row.op').forEach((row) => {
  row.addEventListener('mouseenter', () => pinned || mark(row));
  row.addEventListener('mouseleave', () => pinned || mark(null));
  row.addEventListener('focus', () => pinned || mark(row));
  row.addEventListener('click', () => pin(pinned === row ? null : row));
  row.addEventListener('keydown', (e) => { if (e.key === 'Enter') pin(pinned === row ? null : row); });
});
document.addEventListener('click', (e) => {
  const link = e.target.closest('a[href^="#b"]');
  if (!link) return;
  e.preventDefault();
  show(link.getAttribute('href').slice(1));
});
document.addEventListener('keydown', (e) => { if (e.key === 'Escape') pin(null); });
panel.querySelector('button').addEventListener('click', () => pin(null));
const search = document.getElementById('search');
const count = document.getElementById('count');
let found = [], at = -1;
search.addEventListener('input', () => {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  document.body.classList.toggle('searching', words.length > 0);
  found = [];
  at = -1;
  $('.row.op').forEach((row) => {
    const text = (row.dataset.name + ' ' + row.textContent).toLowerCase();
    const hit = words.length > 0 && words.every((word) => text.includes(word));
    row.classList.toggle('found', hit);
    if (hit) found.push(row);
  });
  new Set(found.map((row) => row.closest('details'))).forEach((d) => { d.open = true; });
  count.textContent = words.length ? found.length + (found.length === 1 ? ' op' : ' ops') : '';
});
search.addEventListener('keydown', (e) => {
  if (e.key !== 'Enter' || !found.length) return;
  at = (at + 1) % found.length;
  found[at].scrollIntoView({ block: 'center' });
  mark(found[at]);
});
document.getElementById('open').addEventListener('click', () => $('details').forEach((d) => { d.open = true; }));
document.getElementById('close').addEventListener('click', () => $('details').forEach((d) => { d.open = false; }));
)js";

std::string NodeId(size_t block, int64_t node) {
  return fmt::format("b{}n{}", block, node);
}

const char* Family(OpKind kind) {
  switch (kind) {
    case OpKind::kLinear:
    case OpKind::kHeadLinear:
    case OpKind::kLinearGroup:
    case OpKind::kGluLinear:
    case OpKind::kEmbed:
      return "matrix";
    case OpKind::kKvStore:
    case OpKind::kAttention:
    case OpKind::kMlaAttention:
      return "cache";
    case OpKind::kRmsNorm:
    case OpKind::kLayerNorm:
    case OpKind::kAddRmsNorm:
    case OpKind::kNormRope:
    case OpKind::kRope:
      return "norm";
    case OpKind::kRoute:
    case OpKind::kExpertGlu:
    case OpKind::kExpertLinear:
    case OpKind::kMixExperts:
      return "expert";
    case OpKind::kAdd:
    case OpKind::kGlu:
    case OpKind::kActivate:
    case OpKind::kScale:
    case OpKind::kClamp:
    case OpKind::kSoftcap:
    case OpKind::kGatherRows:
    case OpKind::kConcat:
    case OpKind::kByPhase:
      break;
  }
  return "plain";
}

constexpr std::string_view kLegend =
    R"(<span class="key matrix"><i></i>matrices</span><span class="key cache"><i></i>cache and attention</span>)"
    R"(<span class="key norm"><i></i>norms and rotations</span><span class="key expert"><i></i>experts</span>)"
    R"(<span class="key plain"><i></i>the rest</span>)";

class Page {
 public:
  Page(const Graph& graph, const GraphHeading& heading) : graph_(graph), heading_(heading) {
    FindReaders();
  }

  std::string Render() {
    MeasureColumns();
    std::string body = Facts();
    body += fmt::format(
        "<div class=\"bar\"><input class=\"search\" id=\"search\" type=\"search\" "
        "placeholder=\"find ops, weights, types\" aria-label=\"find ops\"><span id=\"count\" "
        "class=\"muted\" role=\"status\"></span><button id=\"open\">unfold all</button><button "
        "id=\"close\">fold all</button>{}</div>\n",
        kLegend);
    for (size_t b = 0; b < graph_.blocks.size(); ++b) body += Block(b);
    body +=
        "<aside id=\"panel\" hidden aria-label=\"the chosen op\"><button>close</button><div>"
        "</div></aside>\n";
    return RenderHtmlPage({.title = Title(),
                           .style = std::string(kStyle) + ColumnRule(),
                           .body = std::move(body),
                           .script = std::string(kScript)});
  }

 private:
  std::string Title() const {
    return fmt::format("{}{}: {}", graph_.target.empty() ? "" : graph_.target + " traced back in ",
                       heading_.model, PhaseName(graph_.phase));
  }

  std::string Facts() const;
  void FindReaders();
  void MeasureColumns();
  std::string ColumnRule() const;
  std::string Block(size_t b) const;
  std::string Wires(size_t b, const GraphLanes& lanes) const;
  std::string PortRow(size_t b) const;
  std::string OpRow(size_t b, size_t n) const;
  std::string Operands(const GraphBlock& block, const GraphNode& node) const;
  std::string Panel(size_t b, size_t n) const;
  std::string PanelRow(Value value, const std::string& role, const std::string& links) const;
  std::string WriterLinks(size_t b, const GraphInput& input) const;
  std::string LinkTo(size_t block, int64_t node, const std::string& text) const {
    return fmt::format("<a href=\"#{}\">{}</a>", NodeId(block, node), EscapeHtml(text));
  }
  std::vector<std::string> WriterIds(size_t b, const GraphInput& input) const;
  std::string NameOf(size_t b, size_t n) const { return graph_.op(graph_.blocks[b].nodes[n]).name; }

  const Graph& graph_;
  const GraphHeading& heading_;
  // Who reads a result: block and node, by block, node and output.
  std::map<std::tuple<size_t, size_t, int32_t>, std::set<std::pair<size_t, size_t>>> readers_;
  size_t name_chars_ = 0, kind_chars_ = 0, shape_chars_ = 0;
  int32_t most_lanes_ = 0;
};

std::string Page::Facts() const {
  int64_t weights = 0;
  for (const Value v : graph_.plan->Weights()) weights += graph_.plan->Info(v).shape.Elements({});
  std::string facts = fmt::format(
      "<dl class=\"facts\"><dt>model</dt><dd>{}</dd><dt>plan</dt><dd>{}{}: {} ops, {} layers, {} "
      "numbers in weights</dd><dt>phase</dt><dd>{}</dd>",
      EscapeHtml(heading_.model), EscapeHtml(graph_.plan->arch), heading_.fused ? ", fused" : "",
      graph_.plan->ops.size(), graph_.n_layers, GroupedDigits(weights),
      EscapeHtml(PhaseText(graph_)));
  if (!graph_.target.empty()) {
    facts +=
        fmt::format("<dt>trace</dt><dd>only what {} depends on</dd>", EscapeHtml(graph_.target));
  }
  return facts + "</dl>\n";
}

void Page::FindReaders() {
  for (size_t b = 0; b < graph_.blocks.size(); ++b) {
    const GraphBlock& block = graph_.blocks[b];
    for (size_t n = 0; n < block.nodes.size(); ++n) {
      for (const GraphInput& input : block.nodes[n].inputs) {
        if (input.source == GraphSource::kNode) {
          const auto writer = static_cast<size_t>(input.index);
          const std::vector<Value>& outputs = graph_.op(block.nodes[writer]).outputs;
          const auto output = std::find(outputs.begin(), outputs.end(), input.value);
          readers_[{b, writer, static_cast<int32_t>(output - outputs.begin())}].emplace(b, n);
        } else if (input.source == GraphSource::kPort) {
          for (const GraphLink& link : block.ports[static_cast<size_t>(input.index)].links) {
            readers_[{static_cast<size_t>(link.block), static_cast<size_t>(link.node), link.output}]
                .emplace(b, n);
          }
        }
      }
    }
  }
}

void Page::MeasureColumns() {
  for (size_t b = 0; b < graph_.blocks.size(); ++b) {
    const GraphBlock& block = graph_.blocks[b];
    most_lanes_ = std::max(most_lanes_, LayOutLanes(graph_, b).count);
    for (const GraphNode& node : block.nodes) {
      const Op& op = graph_.op(node);
      name_chars_ = std::max(name_chars_, ShortName(block, op.name).size());
      kind_chars_ = std::max(kind_chars_, Info(op.kind).name.size());
      for (const Value v : op.outputs) {
        shape_chars_ = std::max(shape_chars_, ShapeText(graph_, graph_.plan->Info(v).shape).size());
      }
    }
  }
}

std::string Page::ColumnRule() const {
  // A character of the monospaced font is one ch wide.
  return fmt::format(
      ".row {{ grid-template-columns: {}ch {}ch {}ch max-content; font-family: ui-monospace, "
      "\"DejaVu Sans Mono\", Menlo, Consolas, monospace; font-size: 13px; }}\n",
      name_chars_ + 1, kind_chars_ + 1, shape_chars_ + 2);
}

std::string Page::Block(size_t b) const {
  const GraphBlock& block = graph_.blocks[b];
  const GraphLanes lanes = LayOutLanes(graph_, b);
  std::string out = fmt::format(
      "<details class=\"card\"{}><summary>{} <span class=\"badge\">{} op{}</span></summary>"
      "<div class=\"scroll\"><div class=\"graph\" style=\"padding-left:{}px\">\n{}",
      graph_.blocks.size() <= kMostOpenBlocks ? " open" : "", EscapeHtml(BlockTitle(graph_, block)),
      block.nodes.size(), block.nodes.size() == 1 ? "" : "s", (most_lanes_ + 1) * kLaneWidth,
      Wires(b, lanes));
  if (!block.ports.empty()) out += PortRow(b);
  for (size_t n = 0; n < block.nodes.size(); ++n) out += OpRow(b, n);
  out += "</div></div>\n";
  for (size_t n = 0; n < block.nodes.size(); ++n) {
    out += fmt::format("<template id=\"t-{}\">{}</template>\n", NodeId(b, static_cast<int64_t>(n)),
                       Panel(b, n));
  }
  return out + "</details>\n";
}

// Above the rows of ops is one for what other blocks bring, if they do.
std::string Page::Wires(size_t b, const GraphLanes& lanes) const {
  const GraphBlock& block = graph_.blocks[b];
  const auto x = [](int32_t lane) { return kLaneWidth / 2 + lane * kLaneWidth; };
  const int32_t above = block.ports.empty() ? 0 : 1;
  const auto y = [above](int32_t row) { return kRowHeight / 2 + (row + above) * kRowHeight; };
  const auto rows = static_cast<int32_t>(block.nodes.size());
  std::string out = fmt::format("<svg width=\"{}\" height=\"{}\" aria-hidden=\"true\">\n",
                                (lanes.count + 1) * kLaneWidth, (rows + above) * kRowHeight);
  const auto path = [&](const GraphWire& wire, int32_t reader, const std::string& d) {
    out += fmt::format("<path d=\"{}\"", d);
    if (wire.from >= 0) out += fmt::format(" data-from=\"{}\"", NodeId(b, wire.from));
    if (reader < rows) out += fmt::format(" data-to=\"{}\"", NodeId(b, reader));
    out += "/>\n";
  };
  for (const GraphWire& wire : lanes.wires) {
    const int from_x =
        wire.from < 0 ? x(wire.lane) : x(lanes.node_lanes[static_cast<size_t>(wire.from)]);
    const int from_y = y(wire.from);
    const int lane_x = x(wire.lane);
    // From the dot into its lane, which the second result of an op has beside it.
    const std::string start = from_x == lane_x
                                  ? fmt::format("M{} {}", from_x, from_y)
                                  : fmt::format("M{} {} Q{} {} {} {}", from_x, from_y, lane_x,
                                                from_y, lane_x, from_y + kRowHeight / 2);
    for (const int32_t reader : wire.readers) {
      const int to_x = x(lanes.node_lanes[static_cast<size_t>(reader)]);
      const int to_y = y(reader);
      path(wire, reader,
           to_x == lane_x ? fmt::format("{} V{}", start, to_y)
                          : fmt::format("{} V{} Q{} {} {} {}", start, to_y - kRowHeight / 2, lane_x,
                                        to_y, to_x, to_y));
    }
    if (wire.to == rows)
      path(wire, rows, fmt::format("{} V{}", start, (rows + above) * kRowHeight));
  }
  for (int32_t row = 0; row < rows; ++row) {
    out += fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"5.5\" class=\"{}\"/>\n",
                       x(lanes.node_lanes[static_cast<size_t>(row)]), y(row),
                       Family(graph_.op(block.nodes[static_cast<size_t>(row)]).kind));
  }
  return out + "</svg>\n";
}

// What the wires at the top are.
std::string Page::PortRow(size_t b) const {
  const GraphBlock& block = graph_.blocks[b];
  std::string text;
  for (size_t p = 0; p < block.ports.size(); ++p) {
    const GraphPort& port = block.ports[p];
    text += p > 0 ? "; " : "";
    // A value of one layer stands for itself.
    if (block.layers.size() > 1) {
      text +=
          fmt::format("<span class=\"name\">{}</span> = ", EscapeHtml(PortLabel(graph_, block, p)));
    }
    for (size_t i = 0; i < port.links.size(); ++i) {
      const GraphLink& link = port.links[i];
      text += fmt::format(
          "{}{}{}", i > 0 ? ", " : "", port.links.size() > 1 ? LayersText(link.layers) + ": " : "",
          LinkTo(static_cast<size_t>(link.block), link.node, LinkText(graph_, block, port, link)));
    }
  }
  return fmt::format("<div class=\"row end\"><span style=\"grid-column: 1 / -1\">{}</span></div>\n",
                     text);
}

std::string Page::Operands(const GraphBlock& block, const GraphNode& node) const {
  std::string out;
  for (const GraphInput& input : node.inputs) {
    if (input.source == GraphSource::kAbsent) continue;
    const std::string label = InputLabel(graph_, block, input);
    out += fmt::format("<span class=\"operand\"><span class=\"role\">{}</span>{}",
                       input.role == label ? "" : EscapeHtml(input.role) + " ", EscapeHtml(label));
    if (input.source == GraphSource::kWeight) {
      out += fmt::format(" <span class=\"numbers\">{}</span>", WeightText(graph_, input.value));
    }
    if (input.source == GraphSource::kOtherPhase) {
      out += " <span class=\"numbers\">(other phase)</span>";
    }
    out += "</span>";
  }
  return out;
}

std::vector<std::string> Page::WriterIds(size_t b, const GraphInput& input) const {
  std::vector<std::string> ids;
  if (input.source == GraphSource::kNode) ids.push_back(NodeId(b, input.index));
  if (input.source != GraphSource::kPort) return ids;
  for (const GraphLink& link : graph_.blocks[b].ports[static_cast<size_t>(input.index)].links) {
    ids.push_back(NodeId(static_cast<size_t>(link.block), link.node));
  }
  return ids;
}

std::string Page::OpRow(size_t b, size_t n) const {
  const GraphBlock& block = graph_.blocks[b];
  const GraphNode& node = block.nodes[n];
  const Op& op = graph_.op(node);
  std::string in;
  for (const GraphInput& input : node.inputs) {
    for (const std::string& id : WriterIds(b, input)) in += (in.empty() ? "" : " ") + id;
  }
  std::string out;
  std::string shapes;
  for (size_t k = 0; k < op.outputs.size(); ++k) {
    const Shape& shape = graph_.plan->Info(op.outputs[k]).shape;
    shapes += fmt::format("{}{}", k > 0 ? ", " : "", shape.ToString());
    if (op.outputs.size() == 1 && shape.ToString() != shape.ToString(graph_.sizes)) {
      shapes += fmt::format(" <span class=\"numbers\">= {}</span>", shape.ToString(graph_.sizes));
    }
    const auto readers = readers_.find({b, n, static_cast<int32_t>(k)});
    if (readers == readers_.end()) continue;
    for (const auto& [block_of, reader] : readers->second) {
      out += (out.empty() ? "" : " ") + NodeId(block_of, static_cast<int64_t>(reader));
    }
  }
  const std::string attrs = ShortAttrs(op);
  return fmt::format(
      "<div class=\"row op\" id=\"{}\" tabindex=\"0\" data-name=\"{}\" data-in=\"{}\" "
      "data-out=\"{}\"><span class=\"name\">{}</span><span class=\"{}\">{}</span><span>{}</span>"
      "<span>{}{}</span></div>\n",
      NodeId(b, static_cast<int64_t>(n)), EscapeHtml(op.name), in, out,
      EscapeHtml(ShortName(block, op.name)), Family(op.kind), Info(op.kind).name, shapes,
      Operands(block, node),
      attrs.empty() ? "" : fmt::format(" <span class=\"attrs\">{{{}}}</span>", EscapeHtml(attrs)));
}

std::string Page::WriterLinks(size_t b, const GraphInput& input) const {
  const GraphBlock& block = graph_.blocks[b];
  switch (input.source) {
    case GraphSource::kNode:
      return LinkTo(b, input.index, NameOf(b, static_cast<size_t>(input.index)));
    case GraphSource::kPort: {
      const GraphPort& port = block.ports[static_cast<size_t>(input.index)];
      std::string links;
      for (const GraphLink& link : port.links) {
        links += (links.empty() ? "" : ", ") + LinkTo(static_cast<size_t>(link.block), link.node,
                                                      LinkText(graph_, block, port, link));
      }
      return links;
    }
    case GraphSource::kWeight:
      return "weight";
    case GraphSource::kBatch:
      return "the step";
    case GraphSource::kCache:
      return "earlier steps";
    case GraphSource::kOtherPhase:
      return "not read in this phase";
    case GraphSource::kAbsent:
      break;
  }
  return "";
}

std::string Page::PanelRow(Value value, const std::string& role, const std::string& links) const {
  const ValueInfo& info = graph_.plan->Info(value);
  const std::optional<int64_t> bytes = ValueBytes(graph_, value);
  return fmt::format(
      "<tr><td>{}</td><td class=\"mono\">{}</td><td class=\"mono\">{}</td><td>{}</td><td "
      "class=\"num\">{}</td><td>{}</td></tr>",
      EscapeHtml(role), EscapeHtml(info.name), ShapeText(graph_, info.shape),
      info.kind == ValueKind::kKv ? "cache" : DTypeText(graph_, value),
      bytes ? GroupedDigits(*bytes) : "", links);
}

std::string Page::Panel(size_t b, size_t n) const {
  const GraphNode& node = graph_.blocks[b].nodes[n];
  const Op& op = graph_.op(node);
  std::string out = fmt::format("<h2 class=\"mono\">{}</h2><p>{}{}{}</p>", EscapeHtml(op.name),
                                Info(op.kind).name,
                                graph_.blocks[b].layers.size() > 1
                                    ? fmt::format(", in {}", LayersText(graph_.blocks[b].layers))
                                    : "",
                                node.depth > 0 ? fmt::format(", {} steps back", node.depth) : "");
  if (const std::string attrs = PrintAttrs(op); !attrs.empty()) {
    out += fmt::format("<p class=\"mono\">{}</p>", EscapeHtml(attrs));
  }
  out +=
      "<div class=\"scroll\"><table><tr><th>operand</th><th>name</th><th>shape</th><th>type</th>"
      "<th class=\"num\">bytes</th><th>written by / read by</th></tr>";
  for (const GraphInput& input : node.inputs) {
    if (input.source == GraphSource::kAbsent) continue;
    out += PanelRow(input.value, input.role, WriterLinks(b, input));
  }
  for (size_t k = 0; k < op.outputs.size(); ++k) {
    std::string links;
    const auto readers = readers_.find({b, n, static_cast<int32_t>(k)});
    if (readers != readers_.end()) {
      for (const auto& [block_of, reader] : readers->second) {
        links += (links.empty() ? "" : ", ") +
                 LinkTo(block_of, static_cast<int64_t>(reader), NameOf(block_of, reader));
      }
    }
    out += PanelRow(op.outputs[k], "result", links);
  }
  return out + "</table></div>";
}

}  // namespace

std::string GraphHtml(const Graph& graph, const GraphHeading& heading) {
  return Page(graph, heading).Render();
}

}  // namespace lucid
