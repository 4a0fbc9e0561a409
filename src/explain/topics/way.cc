// The way as a whole: overview, the loop, the graph.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "account/kv_facts.h"
#include "account/units.h"
#include "explain/page_text.h"
#include "explain/topics/topics.h"
#include "plan/graph.h"

namespace lucid::topics {
namespace {

std::string WhatItDoes(const Op& op) {
  switch (op.kind) {
    case OpKind::kEmbed:
      return "ids become vectors (`embedding`)";
    case OpKind::kRmsNorm:
    case OpKind::kLayerNorm:
      return "to a usual size (`norm`)";
    case OpKind::kRope:
      return "turned by position (`rope`)";
    case OpKind::kKvStore:
      return "keys, values into the cache (`kv-cache`)";
    case OpKind::kAttention:
    case OpKind::kMlaAttention:
      return "mixtures of values (`attention`)";
    case OpKind::kAdd:
      return "onto the residual stream (`norm`)";
    case OpKind::kGlu:
    case OpKind::kActivate:
    case OpKind::kExpertGlu:
      return "bent, gated (`ffn`)";
    case OpKind::kRoute:
      return "experts of each token (`moe`)";
    case OpKind::kGatherRows:
      return "the last position only (`logits`)";
    case OpKind::kLinear:
      if (op.name.find("attn_q") != op.name.npos) return "queries (`qkv`)";
      if (op.name.find("attn_k") != op.name.npos) return "keys (`qkv`)";
      if (op.name.find("attn_v") != op.name.npos) return "values (`qkv`)";
      if (op.name.find("attn_output") != op.name.npos) return "heads mixed (`out-projection`)";
      if (op.name.find("ffn") != op.name.npos) return "feed-forward (`ffn`)";
      return op.name.starts_with("blk.") ? "a product" : "scores of the vocabulary (`logits`)";
    default:
      return std::string(Info(op.kind).name);
  }
}

// Long names and lists, cut for a column.
std::string Cut(const std::string& text, size_t width) {
  return text.size() <= width ? text : Padded(text, width);
}

// Names of what an op reads.
std::string Operands(const Plan& plan, const Op& op) {
  std::string reads;
  for (const Value v : op.inputs) {
    if (v.present()) reads += (reads.empty() ? "" : ", ") + plan.Info(v).name;
  }
  return reads;
}

bool InLayer(const Op& op, int layer) {
  return op.name.starts_with(fmt::format("blk.{}.", layer));
}

}  // namespace

Status Overview(Subject& subject, Page& page) {
  const ModelConfig& c = subject.config();
  const auto tokens = static_cast<int64_t>(subject.ids().size());
  page.Text(
      "From the moment a prompt is entered to the next token: the text is cut into tokens, each "
      "token becomes a vector, the vectors run through the layers, the last one is scored against "
      "the vocabulary, and one token is chosen. It is appended, and the same happens again. Every "
      "layer does two things: attention fetches information from earlier positions, the "
      "feed-forward half works on each position alone; both add to a stream of vectors that keeps "
      "its shape from the first layer to the last.");
  page.Heading("This model");
  LUCID_ASSIGN_OR_RETURN(const KvFacts kv, KvFactsOf(subject.plan(),
                                                     {.k_type = subject.types().k_type,
                                                      .v_type = subject.types().v_type,
                                                      .block_size = subject.types().kv_block_size},
                                                     subject.context()));
  page.Facts({{"architecture", c.arch},
              {"layers, width", fmt::format("{}, {}", c.n_layers, c.dim)},
              {"heads", fmt::format("{} for queries, {}; {}", c.n_heads,
                                    HeadsOf(subject.plan()).latent
                                        ? "a latent vector"
                                        : fmt::format("{} for keys and values", c.n_kv_heads),
                                    kv.kind)},
              {"vocabulary", units::Thousands(c.vocab_size)},
              {"parameters", units::Thousands(subject.params())},
              {"trained for", fmt::format("{} tokens", units::Thousands(c.context_length))}});
  page.Heading(fmt::format("The way of this prompt: {} tokens", tokens));
  std::vector<std::vector<std::string>> rows;
  const Plan& plan = subject.plan();
  for (const Op& op : plan.ops) {
    const bool later = op.name.starts_with("blk.") && !InLayer(op, 0);
    if (later || !Computes(op, Phase::kPrompt)) continue;
    rows.push_back({Cut(op.name, 34), WhatItDoes(op),
                    op.kind == OpKind::kKvStore ? "" : OutputShape(plan, op, tokens)});
    if (op.name == "blk.0.out" && c.n_layers > 1) {
      rows.push_back({fmt::format("blk.1 to blk.{}", c.n_layers - 1), "the same again", ""});
    }
  }
  page.Table({"op", "what it does", "gives"}, std::move(rows), 3);
  page.Heading("One thread through all of it");
  page.Text(
      "Most of what makes inference fast is some form of using again what is there: tokens "
      "use frequent pieces again, the cache keeps keys and values, grouped heads share them, "
      "flash attention keeps scores in registers, a batch shares the weights, paged caches "
      "share beginnings. At each place ask what is worth keeping, what is cheaper to compute "
      "again, what can be shared, and what has to move closer.");
  return {};
}

Status TokenBirth(Subject& subject, Page& page) {
  page.Text(
      "Generating is a loop around one function: tokens in, scores of the next one out. The first "
      "round brings the whole prompt (prefill), each later round the token that was chosen before "
      "(decode). How many tokens are in the cache already decides the positions of the new ones; "
      "that number (n_past in some programs) is all that the loop has to remember besides the "
      "cache. It ends with an end-of-generation token, a stop text, or a full context.");
  page.Formula(
      "ids = encode(prompt); past = 0\n"
      "repeat:  logits = forward(ids, positions past ...)\n"
      "         past += number of ids\n"
      "         next = sample(logits);  ids = [next]\n"
      "until next ends the text");
  if (!subject.has_weights()) {
    page.Text(NoWeights(subject));
    return {};
  }
  LUCID_ASSIGN_OR_RETURN(const PromptRun* run, subject.run());
  page.Heading("Round by round, greedily");
  std::vector<std::vector<std::string>> rows;
  int64_t past = 0;
  std::string text;
  for (size_t i = 0; i < run->reply.size(); ++i) {
    const int64_t count = i == 0 ? std::ssize(subject.ids()) : 1;
    const std::string in =
        i == 0 ? fmt::format("the prompt's {}", count) : subject.Label(run->reply[i - 1]);
    rows.push_back(
        {i == 0 ? "prefill" : "decode", in,
         count == 1 ? std::to_string(past) : fmt::format("{} to {}", past, past + count - 1),
         std::to_string(past + count), subject.Label(run->reply[i])});
    past += count;
  }
  page.Table({"round", "ids in", "positions", "cached after", "token out"}, std::move(rows), 5);
  const Tokenizer* tokenizer = subject.tokenizer();
  if (tokenizer != nullptr) {
    page.Text(
        fmt::format("The text so far: \"{}{}\"", subject.prompt(), tokenizer->Decode(run->reply)));
  }
  const Ledger prefill =
      MakeLedger(subject.plan(), PromptWork(1, std::ssize(subject.ids()), subject.types()));
  const Ledger decode =
      MakeLedger(subject.plan(), DecodeWork(1, std::ssize(subject.ids()) + 1, subject.types()));
  page.Facts(
      {{"prefill", fmt::format("{}, {} of weights read; {}",
                               units::Flops(static_cast<double>(prefill.total.flops)),
                               units::Bytes(static_cast<double>(prefill.total.weight_bytes)),
                               units::Seconds(run->stats.prefill_seconds))},
       {"a decode round", fmt::format("{}, {} of weights read; {}",
                                      units::Flops(static_cast<double>(decode.total.flops)),
                                      units::Bytes(static_cast<double>(decode.total.weight_bytes)),
                                      units::Seconds(run->stats.decode_seconds /
                                                     static_cast<double>(std::max<int64_t>(
                                                         1, run->stats.generated_tokens - 1))))}});
  page.Text(
      "Both rounds read the same weights. Prefill shares that reading among all tokens of the "
      "prompt, a decode round pays it for one. There is no other function for the one or the "
      "other: the same plan runs with another batch.");
  return {};
}

Status Graph(Subject& subject, Page& page) {
  const Plan& plan = subject.plan();
  page.Text(
      "A compute graph computes nothing by itself. It is a list of ops, each with the values that "
      "it reads and those that it writes: a plan of work. Writing it down first has advantages: "
      "what is not needed for the logits is found by walking backwards from them and left out, "
      "memory is planned before anything runs, costs are added up without running, neighbouring "
      "ops are fused. Here an architecture is a function that writes such a plan once, at load; "
      "each step then walks it with another batch.");
  std::map<std::string, int64_t> kinds;
  for (const Op& op : plan.ops) ++kinds[std::string(Info(op.kind).name)];
  page.Heading("In this model");
  std::vector<std::vector<std::string>> counts;
  for (const auto& [kind, n] : kinds) counts.push_back({kind, std::to_string(n)});
  page.Facts({{"ops", std::to_string(plan.ops.size())},
              {"values", fmt::format("{}: activations, weights, caches, arrays of the batch",
                                     plan.values.size())},
              {"weights", std::to_string(plan.Weights().size())}});
  page.Table({"kind of op", "in the plan"}, std::move(counts));
  page.Heading("Traced back from the logits");
  page.Text(
      "From the scores backwards, through the head and the last layer: what each op reads is "
      "below it. `back` counts steps from the logits, the longest way. "
      "The layers before the last are left out.");
  const auto last = static_cast<int32_t>(subject.config().n_layers - 1);
  LUCID_ASSIGN_OR_RETURN(const lucid::Graph graph,
                         MakeGraph(plan, {.sizes = {.tokens = std::ssize(subject.ids()),
                                                    .outputs = 1,
                                                    .sequences = 1,
                                                    .context = std::ssize(subject.ids())},
                                          .weight_dtypes = subject.model().weights.dtypes(),
                                          .trace_back = plan.Info(plan.logits).name,
                                          .layers = std::pair{last, last}}));
  std::vector<std::vector<std::string>> rows;
  int32_t deepest = 0;
  for (size_t i = graph.blocks.size(); i-- > 0;) {
    const GraphBlock& block = graph.blocks[i];
    const bool shown = i + 2 >= graph.blocks.size() || block.place == GraphPlace::kBeforeLayers;
    if (!shown) continue;
    for (size_t n = block.nodes.size(); n-- > 0;) {
      const GraphNode& node = block.nodes[n];
      const Op& op = graph.op(node);
      deepest = std::max(deepest, node.depth);
      rows.push_back({std::to_string(node.depth), Cut(op.name, 34), std::string(Info(op.kind).name),
                      Cut(Operands(plan, op), 40)});
    }
    if (i + 2 == graph.blocks.size() && i > 0) rows.push_back({"...", "other layers", "", ""});
  }
  page.Table({"back", "op", "kind", "reads"}, std::move(rows), 4);
  page.Text(
      fmt::format("The longest way is {} steps: so many ops must wait for each other, however "
                  "many threads there are. `lucid plan MODEL --trace-back logits` shows every "
                  "operand, `--format html` draws it, and `lucid trace` shows what ran.",
                  deepest));
  return {};
}

}  // namespace lucid::topics
