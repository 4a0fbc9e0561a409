// The flow of shapes for a terminal: an op in a few lines of at most 100 columns, prefill and
// decode side by side.
#include <fmt/format.h>

#include <algorithm>

#include "account/units.h"
#include "cli/trace_lines.h"
#include "cli/trace_report.h"

namespace lucid::cli {
namespace {

constexpr size_t kNameWidth = 26, kSymbolWidth = 24, kPhaseWidth = 24, kLineWidth = 100;

std::string TrimRight(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::string Columns(const std::string& name, const std::string& symbolic,
                    const std::string& prefill, const std::string& decode) {
  return TrimRight(fmt::format("{:<{}} {:<{}} {:<{}} {}", name, kNameWidth, symbolic, kSymbolWidth,
                               prefill, kPhaseWidth, decode)) +
         "\n";
}

// In lines of kLineWidth, each behind `indent`.
std::string Wrapped(std::string_view text, const std::string& indent) {
  std::string out;
  const size_t width = kLineWidth - indent.size();
  while (!text.empty()) {
    size_t end = text.size() <= width ? text.size() : text.rfind(' ', width);
    if (end == std::string_view::npos || end == 0) end = std::min(width, text.size());
    out += indent + std::string(text.substr(0, end)) + "\n";
    text.remove_prefix(end);
    while (text.starts_with(' ')) text.remove_prefix(1);
  }
  return out;
}

std::string Shape(const FlowStep& step, const FlowTensor& tensor, size_t phase) {
  return step.runs[phase] ? tensor.Concrete(phase) : "-";
}

void AddValues(const TraceReport& report, const FlowStep& step, std::string& out) {
  for (size_t phase = 0; phase < 2; ++phase) {
    for (const ValueSummary& summary : report.values[phase]) {
      if (summary.op != step.op) continue;
      const std::vector<std::string> lines = ValueLines(summary);
      out += fmt::format("    {}  {} {}\n", PhaseWord(phase), summary.name, lines[0]);
      for (size_t i = 1; i < lines.size(); ++i) out += "      " + lines[i] + "\n";
    }
    for (const AttentionMap& map : report.attention[phase]) {
      if (map.op != step.op) continue;
      out += fmt::format("    {}  weights of head 0, first sequence, by key\n", PhaseWord(phase));
      for (const std::string& line : AttentionLines(map, 0)) out += "      " + line + "\n";
    }
  }
}

void AddStep(const TraceReport& report, const FlowStep& step, std::string& out) {
  for (size_t i = 0; i < step.tensors.size(); ++i) {
    const FlowTensor& tensor = step.tensors[i];
    // Of an op with several tensors its name stands on a line of its own.
    if (i == 0 && !tensor.name.empty()) out += step.name + "\n";
    const std::string name = tensor.name.empty() ? step.name : "  " + tensor.name;
    out += Columns(name, tensor.Symbolic(), Shape(step, tensor, 0), Shape(step, tensor, 1));
    if (!tensor.note.empty()) out += Wrapped(tensor.note, "      ");
  }
  std::string formula = step.kind.empty() ? "" : step.kind + ": ";
  formula += step.formula;
  if (!step.attributes.empty()) formula += "  {" + step.attributes + "}";
  out += Wrapped(formula, "    ");
  for (const FlowWeight& weight : step.weights) {
    out += Wrapped(weight.role + ": " + WeightWords(weight), "    ");
  }
  const std::string prefill = CostWords(step, 0), decode = CostWords(step, 1);
  if (prefill.size() > 1 || decode.size() > 1) out += Columns("", "  cost", prefill, decode);
  AddValues(report, step, out);
}

std::string Heading(const TraceReport& report) {
  const ShapeFlow& flow = report.flow;
  std::string out = fmt::format("model    {}: {}, {} layers{}\n", report.model, flow.arch,
                                flow.n_layers, report.fused ? ", the plan as it runs (fused)" : "");
  for (size_t phase = 0; phase < 2; ++phase) {
    out += fmt::format("{:<8} {}\n", PhaseWord(phase), PhaseSizes(flow, phase));
  }
  for (const FlowSymbol& symbol : flow.symbols) {
    const bool same = symbol.value[0] == symbol.value[1];
    out += fmt::format("  {:<5} {:<14} {}\n", symbol.symbol,
                       same ? fmt::format("{}", symbol.value[0])
                            : fmt::format("{}, then {}", symbol.value[0], symbol.value[1]),
                       symbol.meaning);
  }
  out += Wrapped(
      "Activations are float32. In memory the B*S tokens of a step are its rows (T), the heads of "
      "a "
      "token lie side by side, and nothing is transposed: [B, n_q, S, d] is how papers write it. "
      "cost: arithmetic, a multiply-add being two, and bytes of weights and cache, each once.",
      "");
  return out;
}

}  // namespace

std::string TraceFlowText(const TraceReport& report) {
  std::string out = Heading(report);
  for (const FlowBlock& block : report.flow.blocks) {
    out += "\n" + Columns("== " + block.title, block.title.size() < 20 ? "shape" : "", "prefill",
                          "decode");
    for (const FlowStep& step : block.steps) AddStep(report, step, out);
    ByPhase<std::string> sums;
    for (size_t p = 0; p < 2; ++p) {
      sums[p] = fmt::format("{}, {}", units::Flops(static_cast<double>(block.cost[p].flops)),
                            units::Bytes(MemoryBytes(block.cost[p])));
    }
    out += Columns("-- together", block.layers.size() > 1 ? "all layers of these" : "", sums[0],
                   sums[1]);
  }
  const ShapeFlow& flow = report.flow;
  ByPhase<std::string> sums;
  for (size_t p = 0; p < 2; ++p) {
    sums[p] = fmt::format("{}, {}", units::Flops(static_cast<double>(flow.total[p].flops)),
                          units::Bytes(MemoryBytes(flow.total[p])));
  }
  out += "\n" + Columns("== step", "", sums[0], sums[1]);
  if (!report.invariants.empty()) out += "\n" + InvariantsText(report.invariants);
  return out;
}

std::string InvariantsText(const std::vector<InvariantResult>& invariants) {
  std::string out;
  for (const InvariantResult& result : invariants) {
    out += fmt::format("{:<4}  {:<15} {}: {}\n", Name(result.verdict), result.id, result.claim,
                       result.found);
  }
  return out;
}

}  // namespace lucid::cli
