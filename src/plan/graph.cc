#include "plan/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <tuple>

#include "base/edit_distance.h"
#include "plan/op_table.h"
#include "plan/print.h"

namespace lucid {
namespace {

constexpr int32_t kBefore = -1;  // the section before the first layer

// A run of ops of the plan that belongs together, of those that are drawn.
struct Section {
  int32_t layer = kBefore;
  std::vector<int32_t> ops;
  std::vector<Value> ports;  // what other sections wrote, in order of first use
  std::string signature;     // sections with one signature look alike
  int32_t block = -1;
};

// The layer of "blk.12.attn_q" and what follows the number; -1 and the name where it has none.
std::pair<int32_t, std::string_view> SplitLayerName(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return {-1, name};
  int32_t layer = -1;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), end, layer);
  if (error != std::errc()) return {-1, name};
  return {layer, name.substr(static_cast<size_t>(stop - name.data()))};
}

// Plans name the residual stream "embed" and "blk.<i>.out" (BuildPlan): there sections end. Gives
// the section of every op, and how many layers there are.
struct Sections {
  std::vector<int32_t> of_op;  // kBefore, a layer, or n_layers: behind the last
  int32_t n_layers = 0;
};
Sections FindSections(const Plan& plan) {
  Sections found;
  int32_t at = kBefore;
  for (const Op& op : plan.ops) {
    found.of_op.push_back(at);
    for (const Value out : op.outputs) {
      const std::string& name = plan.Info(out).name;
      if (name == (at == kBefore ? "embed" : fmt::format("blk.{}.out", at))) ++at;
    }
  }
  found.n_layers = std::max(at, 0);
  return found;
}

class GraphMaker {
 public:
  GraphMaker(const Plan& plan, GraphOptions options)
      : plan_(plan), options_(std::move(options)), sections_of_(FindSections(plan)) {}

  Result<Graph> Make() {
    LUCID_RETURN_IF_ERROR(CheckLayers());
    Graph graph;
    LUCID_RETURN_IF_ERROR(ChooseOps(graph));
    FillSections();
    graph.plan = &plan_;
    graph.phase = options_.phase;
    graph.sizes = options_.sizes;
    graph.n_layers = sections_of_.n_layers;
    MakeBlocks(graph);
    for (const Section& section : sections_) AddLinks(section, graph);
    graph.weight_dtypes = std::move(options_.weight_dtypes);
    return graph;
  }

 private:
  Status CheckLayers() const;
  Status ChooseOps(Graph& graph);
  Result<int32_t> FindTarget() const;
  void FillSections();
  void AddNode(Section& section, int32_t op) const;
  std::string Relative(const std::string& name, int32_t layer) const;
  std::string ValueSignature(Value v, const Section& section) const;
  bool IsAlone(int32_t layer) const;
  void MakeBlocks(Graph& graph);
  GraphInput MakeInput(const Section& section, int32_t op, size_t input) const;
  void AddLinks(const Section& section, Graph& graph) const;

  Section& SectionOf(int32_t op) {
    return sections_[static_cast<size_t>(sections_of_.of_op[static_cast<size_t>(op)] + 1)];
  }
  const Section& SectionOf(int32_t op) const {
    return sections_[static_cast<size_t>(sections_of_.of_op[static_cast<size_t>(op)] + 1)];
  }
  const Op& op(int32_t i) const { return plan_.ops[static_cast<size_t>(i)]; }
  // The op of the section that writes the value, as an index into its ops; -1: another's.
  static int32_t PlaceOf(const Section& section, int32_t producer) {
    const auto found = std::find(section.ops.begin(), section.ops.end(), producer);
    return found == section.ops.end() ? -1 : static_cast<int32_t>(found - section.ops.begin());
  }

  const Plan& plan_;
  GraphOptions options_;
  Sections sections_of_;
  std::vector<bool> drawn_;     // by op
  std::vector<int32_t> depth_;  // by op, of a trace; -1: not in it
  std::vector<Section> sections_;
};

Status GraphMaker::CheckLayers() const {
  if (!options_.layers) return {};
  const auto [first, last] = *options_.layers;
  if (first >= 0 && first <= last && last < sections_of_.n_layers) return {};
  if (sections_of_.n_layers == 0) return Err(ErrorCode::kNotFound, "the plan has no layers");
  const std::string wanted =
      first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
  return Err(ErrorCode::kNotFound, "the model has layers 0 to {}, not {}",
             sections_of_.n_layers - 1, wanted);
}

// Up to four names of ops, those with the fewest edits away first.
std::string NamesLike(const Plan& plan, const std::string& wanted) {
  std::vector<std::pair<size_t, std::string>> ranked;
  for (const Op& op : plan.ops) {
    // What holds the wanted name whole is near whatever its length is.
    const bool holds = op.name.find(wanted) != std::string::npos;
    ranked.emplace_back(holds ? 1 : EditDistance(wanted, op.name), op.name);
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string names;
  for (size_t i = 0; i < std::min<size_t>(4, ranked.size()); ++i) {
    names += (i > 0 ? ", " : "") + ranked[i].second;
  }
  return names;
}

Result<int32_t> GraphMaker::FindTarget() const {
  const std::string& wanted = options_.trace_back;
  int32_t found = -1;
  std::string reads;
  for (int32_t i = 0; i < std::ssize(plan_.ops); ++i) {
    const bool is_op = op(i).name == wanted;
    const bool is_result =
        std::ranges::any_of(op(i).outputs, [&](Value v) { return plan_.Info(v).name == wanted; });
    if (is_op || (is_result && found < 0)) found = i;
    for (const Value v : op(i).inputs) {
      if (v.present() && plan_.Info(v).producer < 0 && plan_.Info(v).name == wanted) {
        reads += (reads.empty() ? "" : ", ") + op(i).name;
      }
    }
  }
  if (found >= 0 && Computes(op(found), options_.phase)) return found;
  if (found >= 0) {
    return Err(ErrorCode::kNotFound, "{} is not computed in {}, only in {}", wanted,
               options_.phase == Phase::kPrompt ? "prefill" : "decode",
               options_.phase == Phase::kPrompt ? "decode" : "prefill");
  }
  if (!reads.empty()) {
    constexpr size_t kMostNames = 120;
    if (reads.size() > kMostNames) reads = reads.substr(0, reads.rfind(',', kMostNames)) + ", ...";
    return Err(ErrorCode::kNotFound, "{} is read and depends on nothing; it is read by {}", wanted,
               reads);
  }
  return Err(ErrorCode::kNotFound, "no op is called '{}'; these are like it: {}", wanted,
             NamesLike(plan_, wanted));
}

// Marks what is drawn: ops that the phase runs, of a trace those that its target depends on.
Status GraphMaker::ChooseOps(Graph& graph) {
  drawn_.resize(plan_.ops.size());
  for (size_t i = 0; i < plan_.ops.size(); ++i) {
    drawn_[i] = Computes(plan_.ops[i], options_.phase);
  }
  depth_.assign(plan_.ops.size(), -1);
  if (options_.trace_back.empty()) return {};
  LUCID_ASSIGN_OR_RETURN(const int32_t target, FindTarget());
  graph.target = op(target).name;
  depth_[static_cast<size_t>(target)] = 0;
  // Ops come before their readers, so that every reader has its depth by now.
  for (int32_t i = target; i >= 0; --i) {
    const int32_t depth = depth_[static_cast<size_t>(i)];
    if (depth < 0) continue;
    for (size_t k = 0; k < op(i).inputs.size(); ++k) {
      const Value v = op(i).inputs[k];
      if (!v.present() || !ReadsInput(op(i), k, options_.phase)) continue;
      const int32_t producer = plan_.Info(v).producer;
      if (producer < 0) continue;
      int32_t& known = depth_[static_cast<size_t>(producer)];
      known = std::max(known, depth + 1);
    }
  }
  for (size_t i = 0; i < drawn_.size(); ++i) drawn_[i] = drawn_[i] && depth_[i] >= 0;
  return {};
}

// "blk.3.attn_q" seen from layer 2 -> "blk.{+1}.attn_q".
std::string GraphMaker::Relative(const std::string& name, int32_t layer) const {
  const auto [number, rest] = SplitLayerName(name);
  if (number < 0) return name;
  return fmt::format("blk.{{{:+}}}{}", number - layer, rest);
}

std::string GraphMaker::ValueSignature(Value v, const Section& section) const {
  const ValueInfo& info = plan_.Info(v);
  std::string text = info.shape.ToString();
  if (info.kind == ValueKind::kWeight && !options_.weight_dtypes.empty()) {
    text += Name(options_.weight_dtypes[static_cast<size_t>(v.id)]);
  }
  if (info.kind == ValueKind::kKv) {
    const KvSpec& spec = plan_.kv_layers[static_cast<size_t>(info.kv_layer)];
    text += fmt::format("/{}/{}/{}", spec.heads, spec.k_dim, spec.window);
  }
  if (info.producer >= 0) {
    const int32_t place = PlaceOf(section, info.producer);
    const auto port = std::find(section.ports.begin(), section.ports.end(), v);
    return fmt::format("{}{}{}", text, place >= 0 ? "#" : "@",
                       place >= 0 ? place : port - section.ports.begin());
  }
  return text + Relative(info.name, section.layer);
}

void GraphMaker::AddNode(Section& section, int32_t i) const {
  section.ops.push_back(i);
  section.signature += fmt::format("{} {} {}(", Relative(op(i).name, section.layer),
                                   Info(op(i).kind).name, PrintAttrs(op(i)));
  for (size_t k = 0; k < op(i).inputs.size(); ++k) {
    const Value v = op(i).inputs[k];
    if (!v.present() || !ReadsInput(op(i), k, options_.phase)) {
      section.signature += "-,";
      continue;
    }
    const int32_t producer = plan_.Info(v).producer;
    const bool known =
        std::find(section.ports.begin(), section.ports.end(), v) != section.ports.end();
    if (producer >= 0 && PlaceOf(section, producer) < 0 && !known) section.ports.push_back(v);
    section.signature += ValueSignature(v, section) + ",";
  }
  section.signature += ")";
  for (const Value v : op(i).outputs) {
    section.signature += fmt::format("{}{}", Relative(plan_.Info(v).name, section.layer),
                                     plan_.Info(v).shape.ToString());
  }
  section.signature += "\n";
}

void GraphMaker::FillSections() {
  sections_.resize(static_cast<size_t>(sections_of_.n_layers) + 2);
  for (size_t i = 0; i < sections_.size(); ++i) {
    sections_[i].layer = static_cast<int32_t>(i) + kBefore;
  }
  for (int32_t i = 0; i < std::ssize(plan_.ops); ++i) {
    if (drawn_[static_cast<size_t>(i)]) AddNode(SectionOf(i), i);
  }
}

bool GraphMaker::IsAlone(int32_t layer) const {
  if (layer < 0 || layer >= sections_of_.n_layers || options_.all_layers) return true;
  return options_.layers && layer >= options_.layers->first && layer <= options_.layers->second;
}

GraphPlace PlaceOfSection(int32_t section, int32_t n_layers) {
  if (section < 0) return GraphPlace::kBeforeLayers;
  return section < n_layers ? GraphPlace::kInLayers : GraphPlace::kAfterLayers;
}

GraphInput GraphMaker::MakeInput(const Section& section, int32_t i, size_t k) const {
  GraphInput input;
  input.value = op(i).inputs[k];
  if (!input.value.present()) return input;
  const ValueInfo& info = plan_.Info(input.value);
  if (!ReadsInput(op(i), k, options_.phase)) {
    input.source = GraphSource::kOtherPhase;
  } else if (info.kind == ValueKind::kWeight) {
    input.source = GraphSource::kWeight;
  } else if (info.kind == ValueKind::kBatch) {
    input.source = GraphSource::kBatch;
  } else if (info.producer < 0) {
    input.source = GraphSource::kCache;
  } else if (const int32_t place = PlaceOf(section, info.producer); place >= 0) {
    input.source = GraphSource::kNode;
    input.index = place;
  } else {
    input.source = GraphSource::kPort;
    const auto port = std::find(section.ports.begin(), section.ports.end(), input.value);
    input.index = static_cast<int32_t>(port - section.ports.begin());
  }
  return input;
}

void GraphMaker::MakeBlocks(Graph& graph) {
  std::map<std::string, int32_t> known;  // blocks of collapsed layers, by signature
  for (Section& section : sections_) {
    if (section.ops.empty()) continue;
    const bool alone = IsAlone(section.layer);
    const auto next = static_cast<int32_t>(graph.blocks.size());
    section.block = alone ? next : known.try_emplace(section.signature, next).first->second;
    const bool is_new = section.block == next;
    if (is_new) graph.blocks.emplace_back();
    GraphBlock& block = graph.blocks[static_cast<size_t>(section.block)];
    block.place = PlaceOfSection(section.layer, graph.n_layers);
    if (block.place == GraphPlace::kInLayers) block.layers.push_back(section.layer);
    for (size_t n = 0; is_new && n < section.ops.size(); ++n) {
      GraphNode node;
      node.op = section.ops[n];
      const std::vector<std::string> roles = InputRoles(op(node.op));
      for (size_t k = 0; k < roles.size(); ++k) {
        node.inputs.push_back(MakeInput(section, node.op, k));
        node.inputs.back().role = roles[k];
      }
      block.nodes.push_back(std::move(node));
    }
    for (size_t n = 0; n < section.ops.size(); ++n) {
      block.nodes[n].depth = depth_[static_cast<size_t>(section.ops[n])];
    }
    if (!is_new) continue;
    for (const Value v : section.ports) block.ports.push_back({v, {}});
  }
}

// What this section's ports read, as links of its block.
void GraphMaker::AddLinks(const Section& section, Graph& graph) const {
  if (section.block < 0) return;
  GraphBlock& block = graph.blocks[static_cast<size_t>(section.block)];
  const bool in_layer = block.place == GraphPlace::kInLayers;
  for (size_t p = 0; p < section.ports.size(); ++p) {
    const Value v = section.ports[p];
    const int32_t producer = plan_.Info(v).producer;
    const Section& from = SectionOf(producer);
    const std::vector<Value>& outputs = op(producer).outputs;
    GraphLink link;
    link.block = from.block;
    link.node = PlaceOf(from, producer);
    link.output =
        static_cast<int32_t>(std::find(outputs.begin(), outputs.end(), v) - outputs.begin());
    if (in_layer && from.layer >= 0) link.layers_back = section.layer - from.layer;
    std::vector<GraphLink>& links = block.ports[p].links;
    const auto key = [](const GraphLink& l) {
      return std::tie(l.block, l.node, l.output, l.layers_back);
    };
    auto same = std::find_if(links.begin(), links.end(),
                             [&](const GraphLink& l) { return key(l) == key(link); });
    if (same == links.end()) same = links.insert(links.end(), std::move(link));
    if (in_layer) same->layers.push_back(section.layer);
  }
}

}  // namespace

bool ReadsInput(const Op& op, size_t input, Phase phase) {
  return op.kind != OpKind::kByPhase || (input == 0) == (phase == Phase::kPrompt);
}

Result<Graph> MakeGraph(const Plan& plan, GraphOptions options) {
  return GraphMaker(plan, std::move(options)).Make();
}

}  // namespace lucid
