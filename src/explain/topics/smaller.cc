// The same with fewer bytes: flash attention, smaller caches, quantised weights.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "account/kv_facts.h"
#include "account/units.h"
#include "engine/footprint.h"
#include "explain/topics/topics.h"
#include "kv/eviction.h"
#include "tensor/kv_type.h"

namespace lucid::topics {
namespace {

double Real(int64_t n) {
  return static_cast<double>(n);
}

double RmsOf(std::span<const float> values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

// Root mean square of the difference, as a part of that of `original`.
double RelativeError(std::span<const float> original, std::span<const float> rounded) {
  double sum = 0;
  for (size_t i = 0; i < original.size(); ++i) {
    const double d = static_cast<double>(original[i]) - static_cast<double>(rounded[i]);
    sum += d * d;
  }
  return std::sqrt(sum / static_cast<double>(original.size())) / RmsOf(original);
}

// The first row of a matrix of the model, in float32; empty where the model has no numbers.
Result<std::vector<float>> RowOf(Subject& subject, std::string_view weight) {
  LUCID_ASSIGN_OR_RETURN(Engine * engine, subject.engine());
  const Model& model = engine->model();
  for (size_t id = 0; id < model.plan.values.size(); ++id) {
    const ValueInfo& info = model.plan.values[id];
    if (info.kind != ValueKind::kWeight || info.name != weight) continue;
    const Tensor& tensor = model.weights[Value{static_cast<int32_t>(id)}];
    std::vector<float> row(static_cast<size_t>(tensor.cols()));
    Info(tensor.dtype).decode(tensor.row(0), row.data(), tensor.cols());
    return row;
  }
  return std::vector<float>{};
}

// A softmax-weighted mean, block by block: what a kernel keeps in registers.
struct Running {
  double largest = -INFINITY, sum = 0, mixed = 0;

  void Add(std::span<const float> scores, std::span<const double> values) {
    for (size_t i = 0; i < scores.size(); ++i) {
      const auto score = static_cast<double>(scores[i]);
      const double m = std::max(largest, score);
      const double shrink = std::exp(largest - m), weight = std::exp(score - m);
      sum = sum * shrink + weight;
      mixed = mixed * shrink + weight * values[i];
      largest = m;
    }
  }
  // Of two parts of the keys.
  void Merge(const Running& other) {
    const double m = std::max(largest, other.largest);
    const double mine = std::exp(largest - m), theirs = std::exp(other.largest - m);
    sum = sum * mine + other.sum * theirs;
    mixed = mixed * mine + other.mixed * theirs;
    largest = m;
  }
};

// Twelve scores in blocks of four, kept three ways.
void OnlineSoftmax(Page& page) {
  const std::vector<float> scores = {0.3F, 1.2F,  -0.5F, 2.0F, 0.1F, 3.1F,
                                     1.0F, -1.4F, 0.7F,  2.2F, 0.0F, 1.5F};
  std::vector<double> values;
  for (size_t i = 0; i < scores.size(); ++i) values.push_back(static_cast<double>(i % 5) - 2);
  const std::vector<double> p = Probabilities(scores);
  double direct = 0;
  for (size_t i = 0; i < p.size(); ++i) direct += p[i] * values[i];
  std::vector<std::vector<std::string>> rows;
  Running all, first, second;
  for (size_t at = 0; at < scores.size(); at += 4) {
    const std::span<const float> s = std::span(scores).subspan(at, 4);
    const std::span<const double> v = std::span(values).subspan(at, 4);
    all.Add(s, v);
    (at < 8 ? first : second).Add(s, v);
    rows.push_back({fmt::format("{} to {}", at, at + 3), Fixed(all.largest, 2), Fixed(all.sum, 4),
                    Fixed(all.mixed / all.sum, 6)});
  }
  page.Table({"keys so far", "running max", "running sum", "result so far"}, std::move(rows));
  first.Merge(second);
  page.Facts({{"all at once", Fixed(direct, 6)},
              {"block by block", Fixed(all.mixed / all.sum, 6)},
              {"two parts, merged", Fixed(first.mixed / first.sum, 6)}});
}

// Of rows with all heads, head 0 alone.
std::vector<float> HeadKeys(std::span<const float> rows, const HeadShape& heads) {
  std::vector<float> keys;
  const auto width = static_cast<size_t>(heads.keys * heads.k_dim);
  for (size_t at = 0; at + width <= rows.size(); at += width) {
    const std::span<const float> key = rows.subspan(at, static_cast<size_t>(heads.k_dim));
    keys.insert(keys.end(), key.begin(), key.end());
  }
  return keys;
}

// Keys of `dim` numbers as they come back from a cache of that type.
std::vector<float> Rounded(KvType type, std::span<const float> keys, int64_t dim) {
  std::vector<float> back(keys.begin(), keys.end());
  const int64_t count = std::ssize(keys) / dim;
  if (!IsRowType(type)) {  // a block of a multiple of 4 keys; the newest ones are not rounded
    const int64_t block = count / 4 * 4;
    if (block == 0) return back;
    std::vector<std::byte> stored(static_cast<size_t>(KvHeadBytes(type, true, dim, block)));
    EncodeKiviKeys(keys.data(), dim, stored.data(), dim, block);
    DecodeKiviKeys(stored.data(), back.data(), dim, dim, block);
    return back;
  }
  std::vector<std::byte> stored(static_cast<size_t>(KvRowBytes(type, dim)));
  for (int64_t i = 0; i < count; ++i) {
    EncodeKvRow(type, keys.data() + i * dim, stored.data(), dim);
    DecodeKvRow(type, stored.data(), back.data() + i * dim, dim);
  }
  return back;
}

// The attention that each place of the prompt has received from all queries, in one head of the
// layer in the middle; made up where nothing can be run.
Result<std::vector<float>> ReceivedAttention(Subject& subject, std::string& whose) {
  if (!subject.has_weights() || subject.ids().size() < 8) {
    whose = "the sums are made up";
    return std::vector<float>{9.0F, 4.1F, 0.4F, 0.3F, 0.2F, 3.2F, 0.1F, 0.2F,
                              0.1F, 2.6F, 0.2F, 0.1F, 0.3F, 0.5F, 0.9F, 1.2F};
  }
  LUCID_ASSIGN_OR_RETURN(const PromptAttention* attention, subject.attention());
  const AttentionMap& map = attention->maps[attention->maps.size() / 2];
  std::vector<float> sums(subject.ids().size(), 0);
  for (const AttentionQuery& query : map.queries) {
    for (int64_t key = 0; key < query.n_keys; ++key) {
      sums[static_cast<size_t>(query.first_key + key)] += query.Weight(0, key);
    }
  }
  whose = fmt::format("the sums are those of the prompt in `{}`, head 0", map.op);
  return sums;
}

Status KeptPlaces(Subject& subject, Page& page) {
  std::string whose;
  LUCID_ASSIGN_OR_RETURN(const std::vector<float> all, ReceivedAttention(subject, whose));
  const std::span<const float> scores = std::span(all).first(std::min<size_t>(all.size(), 16));
  const int64_t keep = std::max<int64_t>(kAttentionSinks + 1, std::ssize(scores) / 2);
  Cells cells;
  Cells::Row sums{"received", {}};
  for (const float score : scores) sums.cells.push_back({Fixed(static_cast<double>(score), 1), 0});
  cells.rows.push_back(std::move(sums));
  for (const KvPolicy policy : AllKvPolicies()) {
    if (policy == KvPolicy::kFull || policy == KvPolicy::kSnapKv) continue;
    const std::vector<int32_t> kept = PlacesToKeep(policy, scores, std::ssize(scores), keep);
    Cells::Row row{std::string(Name(policy)), {}};
    for (int32_t i = 0; i < std::ssize(scores); ++i) {
      const bool stays = std::find(kept.begin(), kept.end(), i) != kept.end();
      row.cells.push_back({stays ? std::to_string(i) : "", stays ? 1 : 0});
    }
    cells.rows.push_back(std::move(row));
  }
  page.Draw(
      {fmt::format("Attention that {} places received, and which {} of them each policy keeps; "
                   "{}.",
                   scores.size(), keep, whose),
       cells});
  return {};
}

}  // namespace

Status FlashAttention(Subject& subject, Page& page) {
  page.Text(
      "Written down plainly, attention makes a matrix of S x S scores for every head, writes it to "
      "memory, reads it for softmax, and reads it again for the values. Flash attention never has "
      "that matrix. It takes the keys block by block and keeps three things for a query: the "
      "largest score so far, the sum of exponentials, and the mixture of values. When a larger "
      "score comes, the old sum and mixture shrink by a factor. The result is the same softmax, "
      "to rounding. FLOPs stay; bytes do not.");
  page.Formula(
      "m' = max(m, z)     l' = l e^(m - m') + e^(z - m')     o' = o e^(m - m') + e^(z - m') v\n"
      "result = o / l\n\n"
      "two parts: m = max(m1, m2),  l = l1 e^(m1 - m) + l2 e^(m2 - m),  o alike",
      {{"z, v", "the next key's score, and its value"},
       {"two parts",
        "Flash-Decoding: a long cache is cut into pieces for several threads, "
        "and their results are merged (log-sum-exp)"}});
  page.Heading("Twelve keys in blocks of four");
  OnlineSoftmax(page);
  page.Heading("In this model");
  const HeadShape heads = HeadsOf(subject.plan());
  const double dim = Real(heads.v_dim > 0 ? heads.v_dim : heads.k_dim);
  std::vector<std::vector<std::string>> rows;
  for (const int64_t s : {512, 2048, 8192, 32768}) {
    const double square = Real(heads.queries) * Real(s) * Real(s) * 4;
    const double running = Real(heads.queries) * Real(s) * (2 + dim) * 4;
    rows.push_back({units::Thousands(s), units::Bytes(square), units::Bytes(running),
                    Fixed(square / running, 1)});
  }
  page.Table({"tokens S", "S x S scores, a layer", "max, sum, mixture", "times"}, std::move(rows),
             0);
  std::vector<std::vector<std::string>> scratch;
  for (const int64_t s : {512, 2048, 8192}) {
    if (s > subject.config().context_length) continue;
    EngineConfig config;
    config.context = s;
    config.n_parallel = 1;
    const Result<Footprint> footprint = ForeseeEngine(subject.model(), config, 0);
    if (!footprint) continue;
    scratch.push_back({units::Thousands(s), units::Bytes(Real(footprint->runner.scratch)),
                       units::Bytes(Real(footprint->runner.arena))});
  }
  if (!scratch.empty()) {
    page.Text("And what this engine sets aside for all threads, by the context of a sequence:");
    page.Table({"context", "scratch", "activations"}, std::move(scratch), 0);
  }
  page.Text(
      "Here the cut into pieces is fixed by the positions, not by the number of threads, so "
      "that every machine and every batch sums in one order (docs/adr/0002).");
  return {};
}

Status KvCompression(Subject& subject, Page& page) {
  page.Text(
      "Two ways make a cache smaller. The first stores each number in fewer bits: 8, 4 or 2 "
      "instead of 16, with a scale for a few numbers. Keys have channels that are always large "
      "and suffer more than values, so KIVI scales keys by channel and values by token. The "
      "second forgets tokens: StreamingLLM keeps the first four (attention sinks: heads that find "
      "nothing look there) and the newest, H2O those that received most attention, SnapKV those "
      "that the end of the prompt votes for. What is forgotten is gone, so the bill has to be "
      "read: how much attention went to what was dropped, and how far the distributions moved.");
  page.Formula("bytes of a vector of d numbers = d bits / 8 + scales",
               {{"scales", "a number of 16 bits for 32 values or so: 8 bits are 8.5 with them"}});
  const Workload types = subject.types();
  std::vector<std::vector<std::string>> rows;
  Bars bars;
  const HeadShape heads = HeadsOf(subject.plan(), subject.plan().kv_layers.size() / 2);
  std::vector<float> keys;
  if (subject.has_weights()) {
    LUCID_ASSIGN_OR_RETURN(const PromptAttention* attention, subject.attention());
    keys = HeadKeys(attention->keys, heads);
  }
  for (const KvType type : AllKvTypes()) {
    const Result<KvFacts> kv = KvFactsOf(
        subject.plan(), {.k_type = type, .v_type = type, .block_size = types.kv_block_size},
        subject.context());
    if (!kv) continue;
    const double bits = 8 * Real(kv->bytes_per_token) / Real(kv->numbers_per_token);
    const std::string error =
        keys.empty() ? "-" : Percent(RelativeError(keys, Rounded(type, keys, heads.k_dim)), 2);
    rows.push_back({std::string(Name(type)), Fixed(bits, 3), units::Thousands(kv->bytes_per_token),
                    units::Bytes(Real(kv->sequence_bytes)), error});
    bars.bars.push_back({std::string(Name(type)), Real(kv->bytes_per_token),
                         units::Bytes(Real(kv->bytes_per_token))});
  }
  page.Heading("In this model");
  page.Table({"type", "bits a number", "bytes a token",
              fmt::format("{} tokens", units::Thousands(subject.context())), "rounding"},
             std::move(rows));
  page.Draw({"Bytes of keys and values for one token.", bars});
  if (!keys.empty()) {
    page.Text(
        "Rounding: of the prompt's keys in the layer in the middle (head 0), the root mean "
        "square of the error against that of the keys. kivi2 rounds each channel over all "
        "tokens instead of each token over its channels; compare it with int2, which has as "
        "many bits. docs/kv-cache.md has measured perplexities and divergences.");
  }
  page.Heading("What to forget");
  LUCID_RETURN_IF_ERROR(KeptPlaces(subject, page));
  page.Text(
      "`lucid run --kv-policy h2o --kv-budget N --kv-audit` runs a bounded cache beside a full "
      "one and reports the attention that was dropped and the divergence of both.");
  return {};
}

Status Quantization(Subject& subject, Page& page) {
  page.Text(
      "Weights need not be stored as they were trained. A block of them, often 32, gets one scale "
      "(some types a minimum too), and each weight a code of a few bits that counts steps of that "
      "scale. K types put blocks into super-blocks of 256 whose scales are codes themselves. The "
      "model gets smaller, and since decoding reads all weights for every token, it gets faster "
      "by as much; the codes must be unpacked on the way, and the rounding costs a little "
      "quality. AWQ scales channels so that those which matter round less.");
  page.Formula(
      "w ~ scale x code + minimum        bits per weight = 8 x bytes of a block / its weights",
      {{"code", "an integer of 2 to 8 bits"}});
  page.Heading("In this model");
  struct Sum {
    int64_t params = 0, bytes = 0;
  };
  std::map<DType, Sum> sums;
  for (const LedgerWeight& weight : ListWeights(subject.plan(), subject.model().weights.dtypes())) {
    sums[weight.dtype].params += weight.params;
    sums[weight.dtype].bytes += weight.bytes;
  }
  std::vector<std::vector<std::string>> rows;
  for (const auto& [type, sum] : sums) {
    const DTypeInfo& info = Info(type);
    rows.push_back({std::string(info.name), std::to_string(info.block_elems),
                    std::to_string(info.block_bytes),
                    Fixed(8 * Real(info.block_bytes) / Real(info.block_elems), 3),
                    units::Thousands(sum.params), units::Bytes(Real(sum.bytes))});
  }
  page.Table({"type", "weights a block", "bytes a block", "bits a weight", "parameters", "bytes"},
             std::move(rows));
  page.Text(fmt::format("All together: {:.3f} bits a weight.",
                        8 * Real(subject.weight_bytes()) / Real(subject.params())));
  if (!subject.has_weights()) {
    page.Text(NoWeights(subject));
    return {};
  }
  page.Heading("One row, rounded by other types");
  LUCID_ASSIGN_OR_RETURN(const std::vector<float> row, RowOf(subject, "blk.0.attn_output"));
  std::vector<std::vector<std::string>> errors;
  Bars bars;
  for (const DTypeInfo& info : AllDTypes()) {
    if (row.empty() || info.encode == nullptr || info.decode == nullptr) continue;
    const int64_t n = std::ssize(row);
    if (n % info.block_elems != 0 || info.block_bytes >= 4 * info.block_elems) continue;
    std::vector<std::byte> stored(static_cast<size_t>(RowBytes(info.type, n)));
    std::vector<float> back(row.size());
    info.encode(row.data(), stored.data(), n);
    info.decode(stored.data(), back.data(), n);
    const double error = RelativeError(row, back);
    errors.push_back({std::string(info.name),
                      Fixed(8 * Real(info.block_bytes) / Real(info.block_elems), 3),
                      Percent(error, 3)});
    bars.bars.push_back({std::string(info.name), error, Percent(error, 2)});
  }
  page.Table({"type", "bits a weight", "error"}, std::move(errors));
  page.Draw(
      {"Rounding of the first row of `blk.0.attn_output`: the error's root mean square, as a "
       "part of the row's. A type that the row already has shows no error.",
       bars});
  page.Text(
      "What rounding does to the model as a whole is measured by perplexity and KL divergence "
      "against the unrounded one: `lucid perplexity --kl-base`.");
  return {};
}

}  // namespace lucid::topics
