// The products around attention, and how many heads there are: qkv, gqa, mla, out-projection.
#include <fmt/format.h>

#include <cmath>

#include "account/kv_facts.h"
#include "account/units.h"
#include "explain/topics/topics.h"

namespace lucid::topics {
namespace {

// A row for the product of that name, if the model has it: shapes, parameters, FLOPs of the prompt.
void AddProduct(const Subject& subject, std::string_view name, const std::string& what,
                std::vector<std::vector<std::string>>& rows) {
  const Plan& plan = subject.plan();
  const Op* op = FindOp(plan, name);
  if (op == nullptr) return;
  const auto tokens = static_cast<int64_t>(subject.ids().size());
  const Workload work = PromptWork(1, tokens, subject.types());
  const Cost cost = Info(op->kind).cost(plan, *op, work);
  const Shape& weight = plan.Info(op->inputs[1]).shape;
  rows.push_back({op->name, what, weight.ToString(), OutputShape(plan, *op, tokens),
                  units::Flops(static_cast<double>(cost.flops))});
}

const std::vector<std::string> kProductHead = {"op", "makes", "weights", "of the prompt", "costs"};

// "7 times", "56.9 times".
std::string Times(double value) {
  return value == std::floor(value) ? fmt::format("{:.0f} times", value)
                                    : fmt::format("{:.1f} times", value);
}

}  // namespace

Status Qkv(Subject& subject, Page& page) {
  const ModelConfig& c = subject.config();
  const HeadShape heads = HeadsOf(subject.plan());
  page.Text(
      "Attention lets positions exchange information, and asks three things of each of them. The "
      "query says what a position looks for, the key what it can be found by, the value what it "
      "gives once it is found. All three are products of the same normed vector with matrices of "
      "the layer: three roles of one vector, learned.");
  page.Formula("Q = X W_Q^T (+ b)     K = X W_K^T (+ b)     V = X W_V^T (+ b)",
               {{"X", "normed rows of the residual stream, [S, H]"},
                {"W_Q", "[n_q d, H]: a query of d numbers for each of n_q heads"},
                {"W_K, W_V", "[n_kv d, H]: keys and values of n_kv heads"},
                {"b", "a bias where the model has one (Qwen2 has, Llama has not)"}});
  page.Heading("In this model");
  page.Facts(
      {{"width H", std::to_string(c.dim)},
       {"query heads",
        heads.latent ? fmt::format("{} (latent attention: see `mla`)", heads.queries)
                     : fmt::format("{} of {} numbers: {} x {} = {}", heads.queries, heads.k_dim,
                                   heads.queries, heads.k_dim, heads.queries * heads.k_dim)},
       {"kept by the cache",
        heads.latent
            ? fmt::format("one latent vector of {} numbers", heads.k_dim)
            : fmt::format("{} heads of {} numbers, keys and values", heads.keys, heads.k_dim)},
       {"bias", c.qkv_bias ? "yes" : "no"}});
  std::vector<std::vector<std::string>> rows;
  AddProduct(subject, "blk.0.attn_q", "queries", rows);
  AddProduct(subject, "blk.0.attn_q_a", "a factor of the queries", rows);
  AddProduct(subject, "blk.0.attn_q_b", "queries", rows);
  AddProduct(subject, "blk.0.attn_k", "keys", rows);
  AddProduct(subject, "blk.0.attn_v", "values", rows);
  AddProduct(subject, "blk.0.attn_kv_a", "the latent vector", rows);
  AddProduct(subject, "blk.0.attn_k_pe", "the rotated part of the key", rows);
  page.Table(kProductHead, std::move(rows), 4);
  if (heads.queries > 0 && !heads.latent) {
    page.Text(fmt::format(
        "A row of {} numbers is read as {} heads of {}: nothing is moved for that, only the "
        "shape is written differently, [S, {}] -> [S, {}, {}]. Each head then attends by itself.",
        heads.queries * heads.k_dim, heads.queries, heads.k_dim, heads.queries * heads.k_dim,
        heads.queries, heads.k_dim));
    if (heads.queries * heads.k_dim != c.dim) {
      page.Text(
          fmt::format("Heads times their width are {} here and not the width {}: that is a "
                      "choice of this model, `attn_output` leads back to the width.",
                      heads.queries * heads.k_dim, c.dim));
    }
  }
  page.Text(
      "The engine runs products of one input in one pass (`linear_group`): `lucid plan "
      "--fused` shows which.");
  return {};
}

Status Gqa(Subject& subject, Page& page) {
  const HeadShape heads = HeadsOf(subject.plan());
  const Workload types = subject.types();
  LUCID_ASSIGN_OR_RETURN(
      const KvFacts kv,
      KvFactsOf(subject.plan(),
                {.k_type = types.k_type, .v_type = types.v_type, .block_size = types.kv_block_size},
                subject.context()));
  page.Text(
      "Every generated token reads the keys and values of all tokens before it, so what they "
      "weigh decides how many requests fit and how fast they go. Multi-head attention (MHA) "
      "gives every query head a key and a value head of its own. Multi-query attention (MQA) has "
      "one for all of them: the smallest cache, at some loss of quality. Grouped-query attention "
      "(GQA) lies between: a group of query heads shares one key and value head.");
  page.Formula("saving = n_q / n_kv",
               {{"n_q", "query heads"},
                {"n_kv", "key and value heads; n_q of them is MHA, 1 is MQA, between is GQA"}});
  page.Heading("In this model");
  page.Facts({{"attention", kv.kind},
              {"query heads", std::to_string(heads.queries)},
              {"key and value heads",
               heads.latent ? "one latent vector (see `mla`)" : std::to_string(heads.keys)},
              {"saving", Times(kv.saving())}});
  const auto of_mha =
      static_cast<double>(kv.mha_numbers_per_token) / static_cast<double>(kv.numbers_per_token);
  const auto bytes = static_cast<double>(kv.bytes_per_token);
  const auto context = static_cast<double>(subject.context());
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](const std::string& what, double per_token) {
    rows.push_back({what, units::Bytes(per_token), units::Bytes(per_token * context),
                    units::Bytes(per_token * context * 100)});
  };
  add("this model", bytes);
  add("with MHA", bytes * of_mha);
  page.Table({"cache", "a token", fmt::format("{} tokens", units::Thousands(subject.context())),
              "100 such sequences"},
             std::move(rows));
  page.Draw({"Bytes of keys and values for one token, all layers.",
             Bars{{{"this model", bytes, units::Bytes(bytes)},
                   {"with MHA", bytes * of_mha, units::Bytes(bytes * of_mha)}}}});
  if (!heads.latent && heads.keys > 0 && heads.queries > heads.keys) {
    Cells cells;
    Cells::Row queries{"query heads", {}};
    Cells::Row keys{"their key head", {}};
    for (int64_t head = 0; head < std::min<int64_t>(heads.queries, 16); ++head) {
      const int64_t key = head / (heads.queries / heads.keys);
      queries.cells.push_back({std::to_string(head), static_cast<int>(key % 6) + 1});
      keys.cells.push_back({std::to_string(key), static_cast<int>(key % 6) + 1});
    }
    cells.rows = {queries, keys};
    page.Draw({fmt::format("Which key head a query head reads: {} of them share one.",
                           heads.queries / heads.keys),
               cells});
  }
  page.Text(
      "Nothing is copied for that: all query heads of a group read the same bytes, and the "
      "fewer heads are stored, the less there is to read for each token.");
  return {};
}

Status Mla(Subject& subject, Page& page) {
  const MlaConfig& mla = subject.config().mla;
  page.Text(
      "Multi-head latent attention stores neither keys nor values. It stores one short vector c "
      "for a token, from which the layer's matrices make the keys and values of all heads again. "
      "Positions do not survive that, so a small part of the key is made and rotated separately, "
      "one for all heads. The matrices that expand c can be multiplied into the query and the "
      "output instead (absorbed), so that a generated token attends to the latent vectors "
      "directly.");
  page.Formula(
      "c = W_DKV x       k = [W_UK c ; RoPE(W_KR x)]       v = W_UV c\n"
      "cached numbers of a token and layer = d_c + d_r",
      {{"c", "latent vector of d_c numbers, shared by all heads"},
       {"d_r", "numbers of the rotated part of the key, shared by all heads"},
       {"q . (W_UK c) = (W_UK^T q) . c", "why absorbing gives the same scores"}});
  if (mla.kv_lora == 0) {
    page.Text(
        fmt::format("{} has no latent attention (its architecture is {}); try "
                    "`lucid explain mla -m` with a DeepSeek-V2 or -V3 model, of which a "
                    "config.json will do.",
                    subject.name(), subject.config().arch));
    return {};
  }
  const Workload types = subject.types();
  LUCID_ASSIGN_OR_RETURN(
      const KvFacts kv,
      KvFactsOf(subject.plan(),
                {.k_type = types.k_type, .v_type = types.v_type, .block_size = types.kv_block_size},
                subject.context()));
  const int64_t layers = std::max<int64_t>(1, kv.layers);
  const int64_t own_keys = subject.config().n_heads * (mla.nope + mla.rope + mla.v_dim);
  const int64_t plain = subject.config().n_heads * 2 * mla.nope;
  page.Heading("In this model");
  page.Facts(
      {{"latent vector", fmt::format("{} numbers, and {} rotated ones: {} a token and layer",
                                     mla.kv_lora, mla.rope, mla.kv_lora + mla.rope)},
       {"bytes", fmt::format("{} a token and layer, {} a token",
                             units::Thousands(kv.bytes_per_token / layers),
                             units::Bytes(static_cast<double>(kv.bytes_per_token)))},
       {"heads of their own", fmt::format("{} heads with keys of {} and values of {} would be {} "
                                          "numbers: {:.1f} times as many",
                                          subject.config().n_heads, mla.nope + mla.rope, mla.v_dim,
                                          units::Thousands(own_keys), kv.saving())},
       {"plain heads",
        fmt::format("{} heads with keys and values of {} would be {:.1f} times as "
                    "many",
                    subject.config().n_heads, mla.nope,
                    static_cast<double>(plain) / static_cast<double>(mla.kv_lora + mla.rope))}});
  page.Text(
      "Which form runs follows from the token alone: keys and values are expanded for given "
      "tokens, where many queries share the work, and absorbed for generated ones "
      "(docs/adr/0017). `lucid trace` shows both.");
  return {};
}

Status OutProjection(Subject& subject, Page& page) {
  const ModelConfig& c = subject.config();
  const Plan& plan = subject.plan();
  page.Text(
      "Each head returns a mixture of values, and the heads' results lie side by side in one row. "
      "Putting them side by side mixes nothing: number 3 of head 0 never meets number 3 of head "
      "1. The output projection does: every number of its result is a weighted sum over all "
      "heads, as a mixing desk makes one signal of many tracks. Its result is added to the "
      "residual stream: to x as it was before the norm.");
  page.Formula("h = x + concat(head_1 ... head_nq) W_O^T",
               {{"x", "the residual stream before this half of the layer (not normed)"},
                {"W_O", "`blk.N.attn_output`: [H, n_q d]"}});
  std::vector<std::vector<std::string>> rows;
  AddProduct(subject, "blk.0.attn_output", "a step of the stream", rows);
  const Op& head = plan.ops[static_cast<size_t>(plan.Info(plan.logits).producer)];
  if (head.kind == OpKind::kLinear) {
    AddProduct(subject, head.name, "scores of the vocabulary", rows);
  }
  page.Heading("Two matrices that are easily mixed up");
  page.Table(kProductHead, std::move(rows), 4);
  const ValueInfo* attn_output = FindWeight(plan, "blk.0.attn_output");
  page.List(
      {fmt::format("`attn_output.weight`: one in every layer ({} here), from the heads back to the "
                   "width{}.",
                   c.n_layers, attn_output == nullptr ? "" : ", " + attn_output->shape.ToString()),
       fmt::format("`output.weight`: one in the whole model, from the width to the vocabulary, "
                   "[{}, {}]{}.",
                   c.vocab_size, c.dim,
                   c.tied_embeddings ? "; here it is the embedding once more (tied)" : "")});
  return {};
}

}  // namespace lucid::topics
