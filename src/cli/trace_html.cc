// The flow of shapes as a page: a block of equal layers in a <details>, an op in the rows of a
// table, prefill and decode in columns beside each other.
#include <fmt/format.h>

#include <algorithm>

#include "account/html_page.h"
#include "account/units.h"
#include "cli/trace_lines.h"
#include "cli/trace_report.h"

namespace lucid::cli {
namespace {

constexpr std::string_view kStyle = R"css(
table.flow { width: 100%; }
table.flow td { padding-right: 14px; }
table.flow tr.more > td { border-bottom: 0; padding-bottom: 0; }
table.flow tr.more > td[rowspan] { border-bottom: 1px solid var(--line); padding-bottom: 4px; }
table.flow tr.first > td { padding-top: 8px; }
table.flow td.op { min-width: 230px; }
table.flow td.shape { min-width: 190px; }
table.flow .name { font-weight: 600; overflow-wrap: anywhere; }
table.flow .mono { white-space: nowrap; }
table.flow td.weights { min-width: 140px; overflow-wrap: anywhere; }
td.p { color: var(--c2); } td.d { color: var(--c1); }
th.p { color: var(--c2); } th.d { color: var(--c1); }
.sums { font-weight: 400; color: var(--muted); margin-left: 12px; }
pre.values { margin: 4px 0; font-size: 12px; overflow-x: auto; }
table.facts { margin: 8px 0 4px; } table.facts td { border: 0; padding: 1px 18px 1px 0; }
.pass { color: var(--c3); } .fail { color: var(--c5); font-weight: 700; } .na { color: var(--muted); }
.tools { margin: 12px 0; }
.tools button { font: inherit; font-size: 13px; color: inherit; cursor: pointer; background: var(--card);
  border: 1px solid var(--line); border-radius: 6px; padding: 3px 10px; margin-right: 8px; }
)css";

constexpr std::string_view kScript = R"js(
const blocks = [...document.querySelectorAll('details.block')];
document.getElementById('open').addEventListener('click', () => blocks.forEach((d) => { d.open = true; }));
document.getElementById('fold').addEventListener('click', () => blocks.forEach((d) => { d.open = false; }));
)js";

std::string Cell(const char* style, const std::string& html, size_t rows = 1) {
  const std::string span = rows > 1 ? fmt::format(" rowspan=\"{}\"", rows) : "";
  return fmt::format("<td class=\"{}\"{}>{}</td>", style, span, html);
}

std::string PhaseShape(const FlowStep& step, const FlowTensor& tensor, size_t phase) {
  return step.runs[phase] ? fmt::format("<span class=\"mono\">{}</span>", tensor.Concrete(phase))
                          : "<span class=\"muted\">not run</span>";
}

const TracedOp* RanOp(const TraceReport& report, const FlowStep& step, size_t phase) {
  const auto& ops = report.ran[phase];
  const auto found = std::ranges::find(ops, step.op, &TracedOp::name);
  return found == ops.end() || found->idle ? nullptr : &*found;
}

std::string TimeCell(const TraceReport& report, const FlowStep& step, size_t phase) {
  const TracedOp* op = RanOp(report, step, phase);
  return op == nullptr ? "" : units::Seconds(static_cast<double>(op->nanoseconds) / 1e9);
}

// The kernels of both phases, once where they are the same.
std::string KernelWords(const TraceReport& report, const FlowStep& step) {
  std::string text;
  for (size_t phase = 0; phase < 2; ++phase) {
    const TracedOp* op = RanOp(report, step, phase);
    if (op == nullptr || text == op->kernel) continue;
    text += (text.empty() ? "" : ", ") + op->kernel;
  }
  return text;
}

std::string Values(const TraceReport& report, const FlowStep& step) {
  std::string text;
  for (size_t phase = 0; phase < 2; ++phase) {
    for (const ValueSummary& summary : report.values[phase]) {
      if (summary.op != step.op) continue;
      const std::vector<std::string> lines = ValueLines(summary);
      text += fmt::format("{}  {} {}\n", PhaseWord(phase), summary.name, lines[0]);
      for (size_t i = 1; i < lines.size(); ++i) text += "  " + lines[i] + "\n";
    }
    for (const AttentionMap& map : report.attention[phase]) {
      if (map.op != step.op) continue;
      text += fmt::format("{}  weights of head 0, first sequence, by key\n", PhaseWord(phase));
      for (const std::string& line : AttentionLines(map, 0)) text += "  " + line + "\n";
    }
  }
  if (text.empty()) return "";
  return fmt::format(
      "<details><summary class=\"muted\">values</summary><pre class=\"values\">{}</pre></details>",
      EscapeHtml(text));
}

std::string OpCell(const TraceReport& report, const FlowStep& step) {
  std::string html = fmt::format(
      "<div class=\"name\">{}</div><div class=\"muted\">{}{}</div>", EscapeHtml(step.name),
      step.kind.empty() ? "" : EscapeHtml(step.kind) + ": ", EscapeHtml(step.formula));
  if (!step.attributes.empty()) {
    html += fmt::format("<div class=\"muted\">{}</div>", EscapeHtml(step.attributes));
  }
  if (const std::string kernels = KernelWords(report, step); !kernels.empty()) {
    html += fmt::format("<div class=\"muted mono\">{}</div>", EscapeHtml(kernels));
  }
  return html + Values(report, step);
}

std::string WeightsCell(const FlowStep& step) {
  std::string html;
  for (const FlowWeight& weight : step.weights) {
    html += fmt::format(
        "<div>{} <span class=\"badge\">{}</span><br><span class=\"mono muted\">{}</span></div>",
        EscapeHtml(weight.name), weight.dtype, weight.shape);
  }
  return html;
}

std::string FlopsCell(const FlowStep& step, size_t phase) {
  const int64_t flops = step.runs[phase] ? step.cost[phase].flops : 0;
  return flops > 0 ? units::Flops(static_cast<double>(flops)) : "";
}

std::string BytesCell(const FlowStep& step, size_t phase) {
  const double bytes = step.runs[phase] ? MemoryBytes(step.cost[phase]) : 0;
  return bytes > 0 ? units::Bytes(bytes) : "";
}

std::string StepRows(const TraceReport& report, const FlowStep& step, bool with_run) {
  std::string html;
  const size_t rows = step.tensors.size();
  for (size_t i = 0; i < rows; ++i) {
    const FlowTensor& tensor = step.tensors[i];
    html += fmt::format("<tr class=\"{}{}\">", i == 0 ? "first" : "", i + 1 < rows ? " more" : "");
    if (i == 0) html += Cell("op", OpCell(report, step), rows);
    std::string shape =
        fmt::format("<span class=\"mono\">{}</span>", EscapeHtml(tensor.Symbolic()));
    if (!tensor.name.empty()) shape = EscapeHtml(tensor.name) + " " + shape;
    if (!tensor.note.empty()) {
      shape += fmt::format("<div class=\"muted\">{}</div>", EscapeHtml(tensor.note));
    }
    html += Cell("shape", shape);
    html += Cell("p", PhaseShape(step, tensor, 0)) + Cell("d", PhaseShape(step, tensor, 1));
    if (i == 0) {
      html += Cell("weights", WeightsCell(step), rows);
      html += Cell("num p", FlopsCell(step, 0), rows) + Cell("num d", FlopsCell(step, 1), rows);
      html += Cell("num p", BytesCell(step, 0), rows) + Cell("num d", BytesCell(step, 1), rows);
      if (with_run) {
        html += Cell("num p", TimeCell(report, step, 0), rows);
        html += Cell("num d", TimeCell(report, step, 1), rows);
      }
    }
    html += "</tr>\n";
  }
  return html;
}

std::string Sums(const ByPhase<Cost>& cost) {
  std::string text;
  for (size_t phase = 0; phase < 2; ++phase) {
    text += fmt::format("{}{}: {}, {}", phase > 0 ? "; " : "", PhaseWord(phase),
                        units::Flops(static_cast<double>(cost[phase].flops)),
                        units::Bytes(MemoryBytes(cost[phase])));
  }
  return text;
}

std::string BlockHtml(const TraceReport& report, const FlowBlock& block, bool open) {
  const bool with_run = !report.ran[0].empty();
  std::string head =
      "<tr><th>op and formula</th><th>shape</th><th class=\"p\">prefill</th><th "
      "class=\"d\">decode</th>"
      "<th>weights</th><th class=\"num p\">FLOPs</th><th class=\"num d\">FLOPs</th>"
      "<th class=\"num p\">bytes</th><th class=\"num d\">bytes</th>";
  if (with_run) head += "<th class=\"num p\">time</th><th class=\"num d\">time</th>";
  std::string html = fmt::format(
      "<details class=\"card block\"{}><summary>{}<span class=\"sums\">{}</span></summary>\n"
      "<div class=\"scroll\"><table class=\"flow\">{}</tr>\n",
      open ? " open" : "", EscapeHtml(block.title), EscapeHtml(Sums(block.cost)), head);
  for (const FlowStep& step : block.steps) html += StepRows(report, step, with_run);
  return html + "</table></div></details>\n";
}

std::string FactsHtml(const ShapeFlow& flow) {
  std::string html = "<table class=\"facts\">\n";
  for (const FlowSymbol& symbol : flow.symbols) {
    const std::string value = symbol.value[0] == symbol.value[1]
                                  ? fmt::format("{}", symbol.value[0])
                                  : fmt::format("{}, then {}", symbol.value[0], symbol.value[1]);
    html += fmt::format("<tr><td class=\"mono\">{}</td><td class=\"num\">{}</td><td>{}</td></tr>\n",
                        EscapeHtml(symbol.symbol), value, EscapeHtml(symbol.meaning));
  }
  return html + "</table>\n";
}

std::string InvariantsHtml(const std::vector<InvariantResult>& invariants) {
  std::string html = "<h2>Invariants of this run</h2>\n<div class=\"card scroll\"><table>\n";
  for (const InvariantResult& result : invariants) {
    const char* style = result.verdict == Verdict::kPass   ? "pass"
                        : result.verdict == Verdict::kFail ? "fail"
                                                           : "na";
    html += fmt::format("<tr><td class=\"{}\">{}</td><td>{}</td><td class=\"muted\">{}</td></tr>\n",
                        style, Name(result.verdict), EscapeHtml(result.claim),
                        EscapeHtml(result.found));
  }
  return html + "</table></div>\n";
}

}  // namespace

std::string TraceFlowHtml(const TraceReport& report) {
  const ShapeFlow& flow = report.flow;
  std::string body = fmt::format(
      "<p>{}, {} layers{}. <span style=\"color: var(--c2)\">prefill: {}</span>; "
      "<span style=\"color: var(--c1)\">decode: {}</span>. In all, {}.</p>\n",
      EscapeHtml(flow.arch), flow.n_layers,
      report.fused ? ", the plan as it runs, neighbouring ops fused" : "",
      EscapeHtml(PhaseSizes(flow, 0)), EscapeHtml(PhaseSizes(flow, 1)),
      EscapeHtml(Sums(flow.total)));
  body += FactsHtml(flow);
  body +=
      "<p class=\"muted\">Activations are float32. In memory the B*S tokens of a step are its "
      "rows, "
      "the heads of a token lie side by side, and nothing is transposed: [B, n_q, S, d] is how "
      "papers write it. A multiply-add counts as two FLOPs; bytes are those of weights and cache, "
      "each once.</p>\n"
      "<div class=\"tools\"><button id=\"open\">Open all</button><button id=\"fold\">Fold "
      "all</button></div>\n";
  if (!report.invariants.empty()) body += InvariantsHtml(report.invariants);
  bool first = true;
  for (const FlowBlock& block : flow.blocks) {
    const bool in_layers = block.place == GraphPlace::kInLayers;
    body += BlockHtml(report, block, !in_layers || first);
    if (in_layers) first = false;
  }
  return RenderHtmlPage({.title = "The flow of shapes through " + report.model,
                         .style = std::string(kStyle),
                         .body = std::move(body),
                         .script = std::string(kScript)});
}

}  // namespace lucid::cli
