// What a layer does to each position by itself: norm and residual, feed-forward, experts.
#include <fmt/format.h>

#include <cmath>

#include "account/units.h"
#include "explain/topics/topics.h"

namespace lucid::topics {
namespace {

double Sigmoid(double z) {
  return 1 / (1 + std::exp(-z));
}
double GeluTanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

void ActivationFigure(Page& page) {
  Plot plot;
  plot.x_title = "z (shifted by 4: axes begin at 0)";
  Plot::Line silu{"SiLU", {}}, gelu{"GELU", {}}, relu{"ReLU", {}};
  std::vector<std::vector<std::string>> rows;
  for (const double z : {-4.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 4.0}) {
    rows.push_back({Fixed(z, 1), Fixed(Sigmoid(z), 4), Fixed(z * Sigmoid(z), 4),
                    Fixed(GeluTanh(z), 4), Fixed(std::max(0.0, z), 4)});
  }
  page.Table({"z", "sigmoid(z)", "SiLU(z)", "GELU(z), tanh form", "ReLU(z)"}, std::move(rows), 0);
}

std::string ActName(Activation act) {
  switch (act) {
    case Activation::kSilu:
      return "SiLU";
    case Activation::kGeluTanh:
      return "GELU, tanh form";
    case Activation::kGeluErf:
      return "GELU";
    case Activation::kGeluQuick:
      return "GELU, sigmoid form";
    case Activation::kRelu:
      return "ReLU";
    case Activation::kReluSquared:
      return "ReLU squared";
    case Activation::kSigmoid:
      return "sigmoid";
  }
  return "";
}

std::string GluName(Activation act) {
  switch (act) {
    case Activation::kSilu:
      return "SwiGLU";
    case Activation::kGeluTanh:
    case Activation::kGeluErf:
    case Activation::kGeluQuick:
      return "GeGLU";
    case Activation::kRelu:
    case Activation::kReluSquared:
      return "ReGLU";
    case Activation::kSigmoid:
      return "GLU";
  }
  return "";
}

// What a step of the prompt spends, by part of the model.
void PartShares(const Subject& subject, Page& page) {
  const auto tokens = subject.context();
  const Ledger ledger = MakeLedger(subject.plan(), PromptWork(1, tokens, subject.types()));
  std::vector<std::vector<std::string>> rows;
  Bars bars;
  for (size_t i = 0; i < kParts; ++i) {
    const Cost& cost = ledger.parts[i];
    if (cost.flops == 0 && cost.weight_bytes == 0) continue;
    const double flops = static_cast<double>(cost.flops);
    rows.push_back({std::string(Name(static_cast<Part>(i))), units::Flops(flops),
                    Percent(flops / static_cast<double>(ledger.total.flops)),
                    units::Bytes(static_cast<double>(cost.weight_bytes)),
                    Percent(static_cast<double>(cost.weight_bytes) /
                            static_cast<double>(ledger.total.weight_bytes))});
    bars.bars.push_back({std::string(Name(static_cast<Part>(i))), flops,
                         Percent(flops / static_cast<double>(ledger.total.flops))});
  }
  page.Table({"part", "FLOPs", "of all", "weights", "of all"}, std::move(rows));
  page.Draw(
      {fmt::format("FLOPs of a prompt of {} tokens, by part.", units::Thousands(tokens)), bars});
}

}  // namespace

Status Norm(Subject& subject, Page& page) {
  const ModelConfig& c = subject.config();
  page.Text(
      "A layer never replaces a position's vector; it adds to it. The vector that runs through "
      "all layers is the residual stream, always H numbers wide, and every half of a layer reads "
      "it, computes a step, and adds that. Before it is read it is normed: brought to a usual "
      "size, so that no layer depends on how large the stream has grown. The norm is on the way "
      "into a half, not on the stream itself (pre-norm).");
  page.Formula(
      "h = x + Attention(norm(x))        out = h + FFN(norm(h))\n\n"
      "RMSNorm(x)   = x / sqrt(mean(x^2) + eps) * g\n"
      "LayerNorm(x) = (x - mean(x)) / sqrt(var(x) + eps) * g + b",
      {{"g, b", "learned factor and shift of every number"},
       {"eps", "a small number inside the root, so that nothing is divided by 0"}});
  page.Heading("In this model");
  const auto count = [&](OpKind kind) {
    int64_t n = 0;
    for (const Op& op : subject.plan().ops) n += op.kind == kind ? 1 : 0;
    return n;
  };
  page.Facts(
      {{"norm", c.norm == NormKind::kRms ? "RMSNorm: no mean, no shift" : "LayerNorm"},
       {"eps", fmt::format("{:g}", c.norm_eps)},
       {"norms", fmt::format("{} RMS norms, {} layer norms in the plan", count(OpKind::kRmsNorm),
                             count(OpKind::kLayerNorm))},
       {"halves", c.parallel_block ? "parallel: attention and feed-forward read the same stream, "
                                     "and both are added to it"
                                   : "one after the other"},
       {"width of the stream", std::to_string(c.dim)}});
  std::vector<std::vector<std::string>> rows;
  const Workload work = PromptWork(1, 1, subject.types());
  const Op* norm =
      FirstOp(subject.plan(), c.norm == NormKind::kRms ? OpKind::kRmsNorm : OpKind::kLayerNorm);
  if (norm != nullptr) {
    const Cost cost = Info(norm->kind).cost(subject.plan(), *norm, work);
    page.Text(
        fmt::format("`{}` takes {} for a token: next to nothing beside the products of the "
                    "layer, but it must read and write the whole row, so the engine joins it "
                    "with the addition before it (`add_rms_norm`).",
                    norm->name, units::Flops(static_cast<double>(cost.flops))));
  }
  page.Heading("By hand");
  const double x[] = {3, -1, 2, 0};
  double sum = 0, squares = 0;
  for (const double value : x) {
    sum += value;
    squares += value * value;
  }
  const double mean = sum / 4, rms = std::sqrt(squares / 4),
               deviation = std::sqrt(squares / 4 - mean * mean);
  for (const double value : x) {
    rows.push_back({Fixed(value, 0), Fixed(value / rms, 4), Fixed((value - mean) / deviation, 4)});
  }
  page.Table({"x", "RMSNorm", "LayerNorm"}, std::move(rows), 0);
  page.Text(
      fmt::format("Root mean square {:.4f}; mean {:.1f}, standard deviation {:.4f}; eps and g "
                  "left out.",
                  rms, mean, deviation));
  return {};
}

Status Ffn(Subject& subject, Page& page) {
  const ModelConfig& c = subject.config();
  const Plan& plan = subject.plan();
  page.Text(
      "After attention has moved information between positions, the feed-forward half works on "
      "each position alone: it widens the vector to I numbers, bends them with a function that is "
      "no straight line, and narrows them again. Without the bend two products would be one "
      "product. Most of a dense model's weights and FLOPs are here.");
  page.Formula(
      "plain:   FFN(x) = act(x W_1) W_2\n"
      "gated:   FFN(x) = (act(x W_gate) * (x W_up)) W_down\n\n"
      "SiLU(z) = z sigmoid(z)     GELU(x) ~ 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))",
      {{"act", "sigmoid: GLU, GELU: GeGLU, SiLU: SwiGLU, ReLU: ReGLU"},
       {"I",
        "inner width; three matrices instead of two, so I = 2/3 of 4 H keeps the "
        "number of parameters"}});
  page.Heading("In this model");
  const auto* gate = FirstOp(plan, OpKind::kGlu);
  const auto* experts = FirstOp(plan, OpKind::kExpertGlu);
  Activation act = c.act;
  if (gate != nullptr) act = std::get<GluAttrs>(gate->attrs).act;
  const bool gated = gate != nullptr || experts != nullptr;
  Pairs facts = {{"form", gated ? fmt::format("gated: {}", GluName(act))
                                : fmt::format("two matrices with {}", ActName(act))},
                 {"width H", std::to_string(c.dim)}};
  if (c.ffn_dim > 0) {
    facts.emplace_back("inner width I",
                       fmt::format("{}: {:.3f} times H", c.ffn_dim,
                                   static_cast<double>(c.ffn_dim) / static_cast<double>(c.dim)));
    const auto rule = static_cast<int64_t>(std::lround(2.0 / 3 * 4 * static_cast<double>(c.dim)));
    facts.emplace_back("2/3 of 4 H", std::to_string(rule));
  }
  if (experts != nullptr) facts.emplace_back("experts", "some or all layers: see `moe`");
  page.Facts(std::move(facts));
  std::vector<std::vector<std::string>> rows;
  const auto tokens = static_cast<int64_t>(subject.ids().size());
  const Ledger ledger = MakeLedger(plan, PromptWork(1, tokens, subject.types()));
  for (const LedgerRow& row : ledger.rows) {
    if (row.layer != 0 || (row.part != Part::kFfn && row.part != Part::kExperts)) continue;
    if (row.cost.weight_bytes == 0) continue;
    const Op* op = FindOp(plan, row.name);
    rows.push_back({row.name, OutputShape(plan, *op, tokens), row.weights,
                    units::Bytes(static_cast<double>(row.cost.weight_bytes)),
                    units::Flops(static_cast<double>(row.cost.flops))});
  }
  page.Table({"op of layer 0", "of the prompt", "type", "weights", "costs"}, std::move(rows), 3);
  page.Heading("The bends");
  ActivationFigure(page);
  page.Heading("Where the work is");
  PartShares(subject, page);
  return {};
}

Status Moe(Subject& subject, Page& page) {
  const MoeConfig& moe = subject.config().moe;
  page.Text(
      "A mixture of experts has many feed-forward halves in a layer, and a router that sends each "
      "token to a few of them. So a model can hold many parameters and use few for a token: the "
      "FLOPs follow the few, the memory the many. Tokens of a step go to different experts, so a "
      "larger step touches more of them, up to all.");
  page.Formula(
      "g = softmax(x W_r)      out = sum over the k best experts e of  g[e] FFN_e(x)\n"
      "experts touched by T tokens = E (1 - (1 - k/E)^T) on average",
      {{"E, k", "experts of a layer, and how many of them a token uses"},
       {"W_r", "router, [E, H]"}});
  if (moe.n_experts == 0) {
    page.Text(
        fmt::format("{} is dense: every token uses every weight. A config.json of Mixtral, "
                    "Qwen3-MoE or DeepSeek with `-m` shows this page with numbers.",
                    subject.name()));
    return {};
  }
  int64_t layers = 0;
  for (const LayerConfig& layer : subject.config().layers) layers += layer.experts ? 1 : 0;
  double active = 0;
  for (const LedgerWeight& weight : ListWeights(subject.plan(), subject.model().weights.dtypes())) {
    active += static_cast<double>(weight.params) * weight.used;
  }
  page.Heading("In this model");
  page.Facts({{"experts", fmt::format("{} in each of {} layers, {} of them for a token",
                                      moe.n_experts, layers, moe.rule.n_used)},
              {"inner width of one", std::to_string(moe.expert_dim)},
              {"shared by all tokens",
               moe.shared_dim == 0 ? "none" : fmt::format("an expert of width {}", moe.shared_dim)},
              {"scores", std::string(Name(moe.rule.score))},
              {"parameters", units::Thousands(subject.params())},
              {"of them for a token",
               fmt::format("{} ({})", units::Thousands(static_cast<int64_t>(active)),
                           Percent(active / static_cast<double>(subject.params())))}});
  std::vector<std::vector<std::string>> rows;
  Plot plot;
  plot.x_title = "tokens of a step";
  plot.log_x = true;
  Plot::Line line{"weights read, GB", {}};
  for (const int64_t tokens : {1, 2, 4, 8, 16, 32, 64, 128}) {
    const Ledger ledger =
        MakeLedger(subject.plan(), DecodeWork(tokens, subject.context(), subject.types()));
    const double touched =
        static_cast<double>(moe.n_experts) *
        (1 - std::pow(1 - static_cast<double>(moe.rule.n_used) / static_cast<double>(moe.n_experts),
                      static_cast<double>(tokens)));
    const auto bytes = static_cast<double>(ledger.total.weight_bytes);
    rows.push_back({std::to_string(tokens), Fixed(touched, 1), units::Bytes(bytes),
                    units::Bytes(bytes / static_cast<double>(tokens))});
    line.points.emplace_back(static_cast<double>(tokens), bytes / 1e9);
  }
  plot.lines = {line};
  page.Table({"tokens of a step", "experts touched", "weights read", "a token"}, std::move(rows),
             0);
  page.Draw({"Bytes of weights that a decode step reads, by its tokens.", plot});
  return {};
}

}  // namespace lucid::topics
