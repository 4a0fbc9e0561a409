// What inference costs in bytes and FLOPs: kv-cache, prefill-decode, flops.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "account/kv_facts.h"
#include "account/predict.h"
#include "account/units.h"
#include "explain/topics/topics.h"

namespace lucid::topics {
namespace {

using units::Bytes;
using units::Thousands;

std::string FlopText(double flops) {
  return units::Flops(flops);
}

double Real(int64_t n) {
  return static_cast<double>(n);
}

Result<KvFacts> FactsFor(const Subject& subject, int64_t context) {
  const Workload types = subject.types();
  return KvFactsOf(
      subject.plan(),
      {.k_type = types.k_type, .v_type = types.v_type, .block_size = types.kv_block_size}, context);
}

std::string Gigabytes(double bytes) {
  return Bytes(bytes);
}

// Bytes of a sequence's keys and values by its length, beside the weights that a token streams.
Status GrowthFigure(const Subject& subject, Page& page) {
  Plot plot;
  plot.x_title = "tokens of the sequence";
  plot.log_x = plot.log_y = true;
  plot.y_label = Gigabytes;
  Plot::Line line{"read by a token: keys, values", {}};
  const int64_t crossing = KvPassesWeights(subject.plan(), subject.types());
  const int64_t trained = subject.config().context_length;
  const double last = Real(std::max({trained, crossing, int64_t{4096}}));
  for (double at = 128; at <= last * 1.3; at *= 1.3) {
    const Ledger ledger =
        MakeLedger(subject.plan(), DecodeWork(1, std::llround(at), subject.types()));
    line.points.emplace_back(std::round(at), Real(ledger.total.kv_read_bytes));
  }
  plot.lines = {std::move(line)};
  plot.rules = {{"weights that it streams", Real(subject.streamed_bytes()), false},
                {"trained for", Real(trained), true}};
  page.Draw({"What a generated token reads of the cache, by how long its sequence is.", plot});
  page.Text(crossing == 0
                ? "Keys and values never pass the weights here, however long the sequence."
                : fmt::format("From {} tokens on, a generated token reads more bytes of the cache "
                              "than of weights.",
                              Thousands(crossing)));
  return {};
}

// FLOPs of a step of one layer, by kind of work, for one more table.
struct Work {
  double linear = 0, attention = 0, other = 0;
  double all() const { return linear + attention + other; }
};

Work WorkOf(const Plan& plan, const Workload& workload) {
  Work work;
  for (const Op& op : plan.ops) {
    const auto flops = Real(Info(op.kind).cost(plan, op, workload).flops);
    switch (op.kind) {
      case OpKind::kAttention:
      case OpKind::kMlaAttention:
        work.attention += flops;
        break;
      case OpKind::kLinear:
      case OpKind::kHeadLinear:
      case OpKind::kExpertGlu:
      case OpKind::kExpertLinear:
        work.linear += flops;
        break;
      default:
        work.other += flops;
    }
  }
  return work;
}

}  // namespace

Status KvCache(Subject& subject, Page& page) {
  const HeadShape heads = HeadsOf(subject.plan());
  LUCID_ASSIGN_OR_RETURN(const KvFacts kv, FactsFor(subject, subject.context()));
  page.Text(
      "A key or a value is a product of a layer's matrix with the vector of one position, and "
      "later tokens do not change that vector: the mask sees to it. So it is computed once, and "
      "kept. A generated token computes its own keys and values only, appends them, and reads all "
      "the others. Without that, each token would compute the whole text before it again.");
  page.Formula("bytes = layers x 2 x B x n_kv x S x d x bytes of a number",
               {{"2", "keys and values"},
                {"B, S", "sequences, and tokens of each"},
                {"n_kv, d", "key and value heads of a layer, and numbers of one"}});
  page.Heading("In this model");
  const Workload types = subject.types();
  const std::string type_names =
      types.k_type == types.v_type
          ? std::string(Name(types.k_type))
          : fmt::format("{} and {}", Name(types.k_type), Name(types.v_type));
  if (heads.latent) {
    page.Text(
        fmt::format("A latent cache: {} numbers of a token in each of {} layers, stored as {} "
                    "(see `mla`).",
                    heads.k_dim, kv.layers, type_names));
  } else {
    page.Text(fmt::format("{} x 2 x {} x {} = {} numbers of a token, stored as {}.", kv.layers,
                          heads.keys, heads.k_dim, Thousands(kv.numbers_per_token), type_names));
  }
  page.Facts(
      {{"a token, a layer", Bytes(Real(kv.bytes_per_token) / Real(kv.layers))},
       {"a token", fmt::format("{} bytes", Thousands(kv.bytes_per_token))},
       {fmt::format("{} tokens", Thousands(subject.context())),
        fmt::format("{} bytes, {}", Thousands(kv.sequence_bytes), Bytes(Real(kv.sequence_bytes)))},
       {"100 such sequences", Bytes(100 * Real(kv.sequence_bytes))},
       {"with MHA",
        fmt::format("{} ({:.1f} times; this is {})", Bytes(Real(kv.unwindowed_bytes) * kv.saving()),
                    kv.saving(), kv.kind)},
       {"the weights", Bytes(Real(subject.weight_bytes()))}});
  if (kv.windowed_layers > 0) {
    page.Text(
        fmt::format("{} of {} layers have a window and keep no more than it reaches: {} "
                    "instead of {}.",
                    kv.windowed_layers, kv.layers, Bytes(Real(kv.sequence_bytes)),
                    Bytes(Real(kv.unwindowed_bytes))));
  }
  page.Heading("It grows with every token");
  LUCID_RETURN_IF_ERROR(GrowthFigure(subject, page));
  page.Heading("What it saves");
  const int64_t reply = 100;
  const auto prompt = static_cast<int64_t>(subject.ids().size());
  // The last token of a reply is never run through the layers.
  const double with = Real(prompt + reply - 1);
  const double without = Real(reply) * Real(prompt) + Real(reply) * Real(reply - 1) / 2;
  page.Text(
      fmt::format("A reply of {} tokens behind this prompt of {} runs {} tokens through the "
                  "layers with a cache, and {} without: {:.1f} times as many.",
                  reply, prompt, Thousands(prompt + reply - 1), Thousands(std::llround(without)),
                  without / with));
  return {};
}

Status PrefillDecode(Subject& subject, Page& page) {
  page.Text(
      "There is one plan and one loop. What differs is how many tokens a step brings. Prefill "
      "brings a whole prompt: each weight is read once and multiplied with many vectors (a "
      "matrix times a matrix, GEMM). Decoding brings the one token that was just chosen: each "
      "weight is read once and multiplied with one vector (GEMV). So prefill is limited by "
      "arithmetic and decoding by reading, and faster arithmetic helps the first far more.");
  page.Formula("FLOPs per byte of a step ~ N",
               {{"N",
                 "tokens of the step, for weights of 2 bytes: 2 FLOPs a weight and token, 2 "
                 "bytes a weight"}});
  LUCID_ASSIGN_OR_RETURN(const Hardware* hardware, subject.hardware());
  const Workload types = subject.types();
  const int64_t context = subject.context();
  const Workload prefill = PromptWork(1, context, types);
  const Workload decode = DecodeWork(1, context, types);
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](const std::string& name, const Workload& work, double tokens) {
    const Ledger ledger = MakeLedger(subject.plan(), work);
    const StepTime time = PredictStep(*hardware, subject.plan(), work);
    rows.push_back({name, FlopText(Real(ledger.total.flops)),
                    Bytes(Real(ledger.total.weight_bytes)),
                    Bytes(Real(ledger.total.kv_read_bytes + ledger.total.kv_write_bytes)),
                    Fixed(ledger.intensity(), 2), time.by_memory() ? "memory" : "compute",
                    Thousands(std::llround(tokens / time.seconds))});
  };
  add(fmt::format("prefill, {} tokens", Thousands(context)), prefill, Real(context));
  add("decode, 1 token", decode, 1);
  page.Heading(fmt::format("This model on {}", hardware->name));
  page.Table({"step", "FLOPs", "weights", "cache", "FLOP/byte", "bound by", "tok/s at most"},
             std::move(rows));
  page.Text(
      fmt::format("On {}: {}/s, {}/s; it is bound by memory below {:.0f} FLOP per byte (the "
                  "ridge, see `roofline`).",
                  hardware->name, Bytes(hardware->bytes_per_second),
                  FlopText(hardware->FlopsFor(DType::kF16)), hardware->Ridge()));
  page.Heading("What each has to show");
  const HeadShape heads = HeadsOf(subject.plan());
  const int64_t prompt = std::ssize(subject.ids());
  page.Table({"", "prefill of this prompt", "decode after it"},
             {{"ids", fmt::format("[{}]", prompt), "[1]"},
              {"residual stream", fmt::format("[{}, {}]", prompt, subject.config().dim),
               fmt::format("[1, {}]", subject.config().dim)},
              {"queries", fmt::format("[{}, {}, {}]", heads.queries, prompt, heads.k_dim),
               fmt::format("[{}, 1, {}]", heads.queries, heads.k_dim)},
              {"scores", fmt::format("[{}, {}, {}]", heads.queries, prompt, prompt),
               fmt::format("[{}, 1, {}]", heads.queries, prompt + 1)},
              {"new keys and values", fmt::format("{} places", prompt), "1 place"},
              {"logits", fmt::format("[1, {}]", subject.config().vocab_size),
               fmt::format("[1, {}]", subject.config().vocab_size)}},
             3);
  if (!subject.has_weights()) return {};
  LUCID_ASSIGN_OR_RETURN(const PromptRun* run, subject.run());
  page.Text(
      fmt::format("Measured just now on this machine: the prompt at {:.0f} tokens/s, the {} "
                  "tokens after it at {:.0f} (a short run, cold caches; `lucid bench` "
                  "measures properly).",
                  run->stats.prefill_tokens_per_second(), run->stats.generated_tokens,
                  run->stats.decode_tokens_per_second()));
  return {};
}

Status Flops(Subject& subject, Page& page) {
  page.Text(
      "Nearly all arithmetic of a model is products of matrices, and a product of [N, a] with "
      "[a, b] takes N a b multiply-adds, 2 FLOPs each. Every weight meets every token once, which "
      "gives the rule of thumb 2 P N. Attention comes on top: each query meets each key that it "
      "may see. With the causal mask that is half of the square that papers count.");
  page.Formula(
      "linear     2 N n_in n_out\n"
      "scores     2 n_q N L d       values   2 n_q N L d       (L keys a query)\n"
      "all        ~ 2 P N",
      {{"N", "tokens of the step"}, {"P", "parameters; of experts, those that a token uses"}});
  const Workload types = subject.types();
  const int64_t context = subject.context();
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](const std::string& name, Workload work) {
    const Work causal = WorkOf(subject.plan(), work);
    work.causal = false;
    const Work square = WorkOf(subject.plan(), work);
    rows.push_back({name, FlopText(causal.linear), FlopText(causal.attention),
                    FlopText(causal.other), FlopText(causal.all()), FlopText(square.all())});
  };
  add(fmt::format("prefill of {}", Thousands(context)), PromptWork(1, context, types));
  add(fmt::format("decode behind {}", Thousands(context - 1)), DecodeWork(1, context, types));
  page.Heading("In this model");
  page.Table({"step", "products", "attention", "other", "all", "all, full square"},
             std::move(rows));
  double active = 0;
  for (const LedgerWeight& weight : ListWeights(subject.plan(), types.weight_dtypes)) {
    active += Real(weight.params) * weight.used;
  }
  const Work prefill = WorkOf(subject.plan(), PromptWork(1, context, types));
  const double rule = 2 * active * Real(context);
  page.Text(
      fmt::format("The rule says 2 x {:.4g} parameters x {} tokens = {}: {:.1f} % of what the "
                  "ops add up to. It takes the embedding for a product and leaves attention "
                  "out.",
                  active, Thousands(context), FlopText(rule), 100 * rule / prefill.all()));
  page.Heading("How it grows");
  std::vector<std::vector<std::string>> growth;
  Plot plot;
  plot.x_title = "tokens of the prompt";
  plot.log_x = plot.log_y = true;
  plot.y_label = FlopText;
  Plot::Line linear{"products", {}}, attention{"attention", {}};
  for (int64_t n = 128; n <= std::max<int64_t>(131072, context); n *= 4) {
    const Work prompt = WorkOf(subject.plan(), PromptWork(1, n, types));
    const Work token = WorkOf(subject.plan(), DecodeWork(1, n, types));
    growth.push_back({Thousands(n), FlopText(prompt.linear), FlopText(prompt.attention),
                      FlopText(token.linear), FlopText(token.attention)});
    linear.points.emplace_back(Real(n), prompt.linear);
    attention.points.emplace_back(Real(n), prompt.attention);
  }
  plot.lines = {linear, attention};
  page.Table({"tokens", "prompt: products", "attention", "next token: products", "attention"},
             std::move(growth), 0);
  page.Draw({"FLOPs of a prompt: products grow with its length, attention with the square.", plot});
  page.Text(
      "A cache makes a token's products constant and its attention grow with what is before "
      "it: O(H^2) and O(S H) a layer. Without one, a reply of T tokens behind S would run "
      "T (S + T/2) tokens instead of S + T, and attention would take the cube.");
  return {};
}

}  // namespace lucid::topics
