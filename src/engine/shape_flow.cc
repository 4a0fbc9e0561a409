#include "engine/shape_flow.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "account/ledger.h"
#include "engine/flow_symbols.h"
#include "plan/graph_labels.h"
#include "plan/print.h"

namespace lucid {
namespace {

constexpr ByPhase<Phase> kPhases = {Phase::kPrompt, Phase::kGenerated};

Status CheckOptions(const FlowOptions& o) {
  static constexpr int64_t kMost = int64_t{1} << 24;
  const auto check = [](int64_t value, int64_t least, const char* what) -> Status {
    if (value >= least && value <= kMost) return {};
    return Err(ErrorCode::kInvalidArgument, "{} is {}, must be {} to {}", what, value, least,
               kMost);
  };
  LUCID_RETURN_IF_ERROR(check(o.batch, 1, "the number of sequences"));
  LUCID_RETURN_IF_ERROR(check(o.prompt, 1, "the number of tokens of a prompt"));
  return check(o.cached, 0, "the number of cached positions");
}

// The ops of equal layers, those of both phases in the plan's order.
struct BlockOps {
  GraphPlace place = GraphPlace::kBeforeLayers;
  std::vector<int32_t> layers;
  std::string title;
  std::set<int32_t> ops;  // of the first layer
};

class FlowMaker {
 public:
  FlowMaker(const Plan& plan, const ModelConfig& config, std::span<const DType> dtypes,
            const FlowOptions& options)
      : plan_(plan), dtypes_(dtypes), options_(options), symbols_(config, options) {}

  Result<ShapeFlow> Make();

 private:
  Result<std::vector<BlockOps>> FindBlocks(bool all_layers) const;
  FlowStep StepOf(int32_t op, const GraphBlock& names);
  std::vector<FlowWeight> WeightsOf(const Op& op) const;

  std::vector<FlowTensor> TensorsOf(const Op& op, const GraphBlock& names);
  FlowTensor Plain(const Op& op, Value v, std::string name);
  FlowDim Width(std::string_view name, int64_t width);
  std::vector<FlowTensor> Stored(const Op& op);
  std::vector<FlowTensor> Attended(const Op& op);
  std::vector<FlowTensor> Expanded(const Op& op);
  void AddScores(int64_t heads, const FlowDim& keys, const std::string& how,
                 std::vector<FlowTensor>& tensors);

  const KvSpec& SpecOf(Value kv) const {
    return plan_.kv_layers[static_cast<size_t>(plan_.Info(kv).kv_layer)];
  }
  FlowTensor Heads(std::string name, const FlowDim& heads, const FlowDim& rows,
                   const FlowDim& width, std::string note = "") {
    return {std::move(name), {symbols_.Sequences(), heads, rows, width}, std::move(note)};
  }

  const Plan& plan_;
  std::span<const DType> dtypes_;
  FlowOptions options_;
  FlowSymbols symbols_;
  ByPhase<Ledger> ledgers_;
};

// The graphs of both phases, their blocks laid over each other.
Result<std::vector<BlockOps>> FlowMaker::FindBlocks(bool all_layers) const {
  std::vector<BlockOps> blocks;
  for (const Phase phase : kPhases) {
    LUCID_ASSIGN_OR_RETURN(const Graph graph,
                           MakeGraph(plan_, {.phase = phase,
                                             .weight_dtypes = {dtypes_.begin(), dtypes_.end()},
                                             .layers = options_.layers,
                                             .all_layers = all_layers}));
    for (const GraphBlock& block : graph.blocks) {
      auto known = std::ranges::find_if(blocks, [&](const BlockOps& b) {
        return b.place == block.place &&
               (block.layers.empty() || b.layers.front() == block.layers.front());
      });
      if (known == blocks.end()) {
        known = blocks.insert(known, {block.place, block.layers, BlockTitle(graph, block), {}});
      }
      // Layers that differ in one phase only: each by itself, then.
      if (known->layers != block.layers) return FindBlocks(/*all_layers=*/true);
      for (const GraphNode& node : block.nodes) known->ops.insert(node.op);
    }
  }
  std::ranges::stable_sort(blocks, {}, [](const BlockOps& b) {
    return std::pair(b.place, b.layers.empty() ? -1 : b.layers.front());
  });
  return blocks;
}

Result<ShapeFlow> FlowMaker::Make() {
  LUCID_RETURN_IF_ERROR(CheckOptions(options_));
  Workload types;
  types.k_type = options_.kv.k_type;
  types.v_type = options_.kv.v_type;
  types.kv_block_size = options_.kv.block_size;
  types.weight_dtypes = dtypes_;
  const int64_t cached = options_.cached > 0 ? options_.cached : options_.prompt;
  ledgers_ = {MakeLedger(plan_, PromptWork(options_.batch, options_.prompt, types)),
              MakeLedger(plan_, DecodeWork(options_.batch, cached + 1, types))};
  ShapeFlow flow;
  flow.arch = plan_.arch;
  flow.batch = options_.batch;
  flow.tokens = {options_.prompt, 1};
  flow.keys = {options_.prompt, cached + 1};
  for (size_t p = 0; p < kPhases.size(); ++p) flow.total[p] = ledgers_[p].total;
  LUCID_ASSIGN_OR_RETURN(const std::vector<BlockOps> blocks, FindBlocks(options_.all_layers));
  for (const BlockOps& from : blocks) {
    FlowBlock block{.place = from.place, .layers = from.layers, .title = from.title, .steps = {}};
    const GraphBlock names{.place = from.place, .layers = from.layers, .nodes = {}, .ports = {}};
    for (const int32_t op : from.ops) {
      block.steps.push_back(StepOf(op, names));
      for (size_t p = 0; p < kPhases.size(); ++p) {
        const size_t times = std::max<size_t>(1, from.layers.size());
        for (size_t i = 0; i < times; ++i) block.cost[p] += block.steps.back().cost[p];
      }
    }
    flow.n_layers += std::ssize(from.layers);
    flow.blocks.push_back(std::move(block));
  }
  FlowStep in{.name = "input_ids", .formula = "token ids of the prompt; then the token drawn last"};
  in.tensors = {{"", {symbols_.Sequences(), symbols_.NewTokens()}, ""}};
  in.runs = {true, true};
  FlowStep out{.name = "next_token",
               .formula = "drawn from softmax(logits / temperature), after penalties and cuts"};
  out.tensors = {{"", {symbols_.Sequences(), {"1", {1, 1}}}, ""}};
  out.runs = {true, true};
  std::vector<FlowStep>& first = flow.blocks.front().steps;
  first.insert(first.begin(), std::move(in));
  flow.blocks.back().steps.push_back(std::move(out));
  flow.symbols = symbols_.Used();
  return flow;
}

FlowStep FlowMaker::StepOf(int32_t index, const GraphBlock& names) {
  const Op& op = plan_.ops[static_cast<size_t>(index)];
  FlowStep step;
  step.name = ShortName(names, op.name);
  step.op = op.name;
  step.kind = Info(op.kind).name;
  step.formula = Info(op.kind).formula;
  step.attributes = ShortAttrs(op);
  step.tensors = TensorsOf(op, names);
  step.weights = WeightsOf(op);
  for (size_t p = 0; p < kPhases.size(); ++p) {
    step.runs[p] = Computes(op, kPhases[p]);
    step.cost[p] = ledgers_[p].rows[static_cast<size_t>(index)].cost;
  }
  return step;
}

std::vector<FlowWeight> FlowMaker::WeightsOf(const Op& op) const {
  std::vector<FlowWeight> weights;
  const std::vector<std::string> roles = InputRoles(op);
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    if (!op.inputs[i].present()) continue;
    const ValueInfo& info = plan_.Info(op.inputs[i]);
    if (info.kind != ValueKind::kWeight) continue;
    const DType type = dtypes_[static_cast<size_t>(op.inputs[i].id)];
    weights.push_back({.role = roles[i],
                       .name = info.name,
                       .dtype = std::string(Name(type)),
                       .shape = info.shape.ToString(),
                       .bytes = RowBytes(type, info.shape.Elements({}))});
  }
  return weights;
}

std::vector<FlowTensor> FlowMaker::TensorsOf(const Op& op, const GraphBlock& names) {
  if (op.kind == OpKind::kKvStore) return Stored(op);
  if (op.kind == OpKind::kAttention) return Attended(op);
  if (op.kind == OpKind::kMlaAttention) return Expanded(op);
  std::vector<FlowTensor> tensors;
  for (const Value v : op.outputs) {
    const std::string name = op.outputs.size() > 1 ? ShortName(names, plan_.Info(v).name) : "";
    tensors.push_back(Plain(op, v, name));
  }
  if (op.kind == OpKind::kGatherRows) tensors[0].note = "of every prompt its last position alone";
  return tensors;
}

bool Has(std::string_view name, std::string_view part) {
  return name.find(part) != std::string_view::npos;
}

// Plans name ops after their weights (models/names.h), which says what a number stands for where
// two are equal.
FlowDim FlowMaker::Width(std::string_view name, int64_t width) {
  if (Has(name, "attn_q_a")) return symbols_.Named(width, {"r_q"});
  if (Has(name, "attn_kv_a")) return symbols_.Named(width, {"r", "r+d_r"});
  if (Has(name, "attn_k_pe")) return symbols_.Named(width, {"d_r"});
  const bool of_keys = Has(name, ".attn_k") || Has(name, ".attn_v");
  if (of_keys) return symbols_.Named(width, {"n_kv*d", "H"});
  const bool of_head = Has(name, ".attn_q") || name.ends_with(".attn");
  if (of_head) return symbols_.Named(width, {"n_q*d", "n_q*r", "n_kv*d", "H"});
  if (Has(name, "ffn_gate_inp")) return symbols_.Named(width, {"E", "k"});
  if (Has(name, "shexp")) return symbols_.Named(width, {"I_s", "H"});
  if (Has(name, "ffn_gate") || Has(name, "ffn_up")) return symbols_.Named(width, {"I", "H"});
  return symbols_.Named(width, {"H", "V", "I", "n_q*d"});
}

// [T, ...] as [B, S, ...]; heads stand before positions, as papers write them.
FlowTensor FlowMaker::Plain(const Op& op, Value v, std::string name) {
  const Shape& shape = plan_.Info(v).shape;
  FlowTensor tensor{.name = std::move(name), .dims = {symbols_.Sequences()}, .note = ""};
  const bool rows = shape[0].symbol == Symbol::kTokens;
  if (shape.rank < 3) {
    if (rows) tensor.dims.push_back(symbols_.NewTokens());
    if (shape.rank == 2) {
      // Of ops with several results each has a name of its own.
      const bool several = op.outputs.size() > 1;
      tensor.dims.push_back(Width(several ? plan_.Info(v).name : op.name, shape[1].size));
    }
    return tensor;
  }
  const bool experts = Has(op.name, "exps");
  FlowDim heads = experts ? symbols_.Named(shape[1].size, {"k"})
                  : Has(op.name, ".attn_k_norm") || Has(op.name, ".attn_k.")
                      ? symbols_.Named(shape[1].size, {"n_kv"})
                      : symbols_.Named(shape[1].size, {"n_q", "n_kv"});
  if (shape[1].size == 1) heads = {"1", {1, 1}};
  const bool values = Has(op.name, "attn_v_b") || Has(op.name, ".mla");
  FlowDim width = experts  ? symbols_.Named(shape[2].size, {"I_e", "H"})
                  : values ? symbols_.Named(shape[2].size, {"d_v"})
                           : symbols_.Named(shape[2].size, {"d", "r+d_r", "r", "d_r", "d_v"});
  if (experts) {
    tensor.dims.insert(tensor.dims.end(), {symbols_.NewTokens(), heads, width});
  } else {
    tensor.dims.insert(tensor.dims.end(), {heads, symbols_.NewTokens(), width});
  }
  return tensor;
}

std::vector<FlowTensor> FlowMaker::Stored(const Op& op) {
  const KvSpec& spec = SpecOf(op.inputs[0]);
  const std::string note = "positions C-S to C-1 of the cache; earlier ones stay as they are";
  if (spec.v_dim == 0) {
    return {Heads("latent", {"1", {1, 1}}, symbols_.NewTokens(),
                  symbols_.Named(spec.k_dim, {"r+d_r"}), note)};
  }
  const FlowDim heads = symbols_.Named(spec.heads, {"n_kv"});
  return {Heads("K_new", heads, symbols_.NewTokens(), symbols_.Named(spec.k_dim, {"d"}), note),
          Heads("V_new", heads, symbols_.NewTokens(), symbols_.Named(spec.v_dim, {"d"}))};
}

void FlowMaker::AddScores(int64_t n_heads, const FlowDim& keys, const std::string& how,
                          std::vector<FlowTensor>& tensors) {
  const FlowDim heads = symbols_.Named(n_heads, {"n_q"});
  tensors.push_back(Heads("scores", heads, symbols_.NewTokens(), keys, how));
  tensors.push_back(Heads("weights", heads, symbols_.NewTokens(), keys,
                          "softmax over the keys; prefill masks later ones, decode has none"));
}

std::vector<FlowTensor> FlowMaker::Attended(const Op& op) {
  const auto& a = std::get<AttentionAttrs>(op.attrs);
  const KvSpec& spec = SpecOf(op.inputs[1]);
  const FlowDim keys = symbols_.Keys(a.window);
  const FlowDim q_heads = symbols_.Named(a.n_heads, {"n_q"});
  const FlowDim k_dim = symbols_.Named(spec.k_dim, {"d", "r+d_r"});
  std::vector<FlowTensor> tensors = {Heads("Q", q_heads, symbols_.NewTokens(), k_dim)};
  FlowDim v_dim = symbols_.Named(spec.v_dim, {"d"});
  if (a.v_in_k > 0) {
    v_dim = symbols_.Named(a.v_in_k, {"r"});
    tensors.push_back(Heads("latents", {"1", {1, 1}}, keys, k_dim,
                            "from the cache, keys and values in one: shared by all heads"));
  } else {
    const FlowDim kv_heads = symbols_.Named(spec.heads, {"n_kv"});
    tensors.push_back(Heads("K_full", kv_heads, keys, k_dim, "from the cache, new ones included"));
    tensors.push_back(Heads("V_full", kv_heads, keys, v_dim));
  }
  std::string how = "Q K^T * scale";
  if (const int64_t group = a.n_heads / spec.heads; group > 1) {
    how += fmt::format("; {} query heads read one key head, nothing is copied", group);
  }
  if (a.softcap > 0) how += "; capped";
  if (a.alibi_max_bias > 0) how += "; less slope * distance (ALiBi)";
  if (op.inputs.size() > 5 && op.inputs[5].present()) how += "; a sink joins each softmax";
  AddScores(a.n_heads, keys, how, tensors);
  tensors.push_back(Heads("out", q_heads, symbols_.NewTokens(), v_dim,
                          "weights V; scores and weights are never stored whole"));
  FlowTensor rows = Plain(op, op.outputs[0], "rows");
  rows.note = "the heads of a token side by side";
  tensors.push_back(std::move(rows));
  return tensors;
}

// Latent attention of given tokens: keys and values of every head made of the latents.
std::vector<FlowTensor> FlowMaker::Expanded(const Op& op) {
  const auto& a = std::get<MlaAttrs>(op.attrs);
  const KvSpec& spec = SpecOf(op.inputs[1]);
  const FlowDim keys = symbols_.Keys(0);
  const FlowDim heads = symbols_.Named(a.n_heads, {"n_q"});
  const FlowDim d = symbols_.Named(plan_.Info(op.inputs[2]).shape[2].size + a.rope_dim, {"d"});
  const FlowDim d_v = symbols_.Named(plan_.Info(op.inputs[3]).shape[1].size, {"d_v", "d"});
  std::vector<FlowTensor> tensors = {
      Heads("Q", heads, symbols_.NewTokens(), d),
      Heads("latents", {"1", {1, 1}}, keys, symbols_.Named(spec.k_dim, {"r+d_r"}),
            "from the cache, new ones included"),
      Heads("K_full", heads, keys, d, "made of the latents, beside the rotated part"),
      Heads("V_full", heads, keys, d_v, "made of the latents")};
  AddScores(a.n_heads, keys, "Q K^T * scale", tensors);
  tensors.push_back(Heads("out", heads, symbols_.NewTokens(), d_v,
                          "weights V; scores and weights are never stored whole"));
  return tensors;
}

}  // namespace

std::string FlowTensor::Symbolic() const {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i) text += (i > 0 ? ", " : "") + dims[i].symbol;
  return text + "]";
}

std::string FlowTensor::Concrete(size_t phase) const {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i) {
    text += fmt::format("{}{}", i > 0 ? ", " : "", dims[i].size[phase]);
  }
  return text + "]";
}

Result<ShapeFlow> MakeShapeFlow(const Plan& plan, const ModelConfig& config,
                                std::span<const DType> dtypes, const FlowOptions& options) {
  return FlowMaker(plan, config, dtypes, options).Make();
}

}  // namespace lucid
