// Questions with this model's numbers as answers, and the papers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "account/kv_facts.h"
#include "account/predict.h"
#include "account/units.h"
#include "explain/papers.h"
#include "explain/topic.h"
#include "explain/topics/topics.h"
#include "text/unicode.h"

namespace lucid::topics {
namespace {

double Real(int64_t n) {
  return static_cast<double>(n);
}

void TokensAreNotCharacters(const Subject& subject, Page& page) {
  page.Heading("1. Why is a token not a character?");
  if (subject.tokenizer() == nullptr) {
    page.Text(
        "A token is a piece of text that was frequent in training: often several characters, "
        "sometimes a part of one. This model has no tokenizer to show it with (`tokens`).");
    return;
  }
  constexpr std::string_view kChinese = "你好，今天我们继续学习 AI Infra。";
  constexpr std::string_view kEmoji = "AI Infra 🚀🔥";
  constexpr EncodeOptions kPlain{
      .add_special = false, .added_tokens = AddedTokenMode::kNone, .plain_starts = {}};
  const auto line = [&](std::string_view text) {
    size_t characters = 0;
    for (size_t at = 0; at < text.size(); ++characters) at += DecodeUtf8(text, at).length;
    return fmt::format("`{}` has {} characters, {} bytes and {} tokens.", text, characters,
                       text.size(), subject.tokenizer()->Encode(text, kPlain).size());
  };
  page.Text(
      "Because the tokenizer joins what was frequent in its training text, whatever the "
      "number of characters (`tokens`). With this model's:");
  page.List({line(subject.prompt()), line(kChinese), line(kEmoji)});
}

void WidthsAndHeads(const Subject& subject, Page& page) {
  const HeadShape heads = HeadsOf(subject.plan());
  const int64_t dim = subject.config().dim;
  page.Heading("2. How do width, query heads and head size belong together?");
  if (heads.latent) {
    page.Text(
        fmt::format("A vector of {} numbers; {} query heads meet one latent vector of {} "
                    "numbers (`mla`).",
                    dim, heads.queries, heads.k_dim));
    return;
  }
  const int64_t product = heads.queries * heads.k_dim;
  page.Text(
      fmt::format("{} heads x {} numbers = {}; the width is {}. {} The scores are divided by "
                  "sqrt({}) = {:.2f} (`qkv`, `attention`).",
                  heads.queries, heads.k_dim, product, dim,
                  product == dim ? "Heads are the width, cut into equal parts."
                                 : "This model's heads are not the width cut up: the output "
                                   "projection leads from the one to the other.",
                  heads.k_dim, std::sqrt(Real(heads.k_dim))));
}

void SharedKeys(const Subject& subject, const KvFacts& kv, Page& page) {
  const HeadShape heads = HeadsOf(subject.plan());
  page.Heading("3. Why does GQA make the cache smaller?");
  page.Text(fmt::format(
      "Because keys and values are stored once for a group of query heads. Here: {} query heads, "
      "{}; {} bytes a token instead of {}, {:.3g} times less; {} for {} tokens (`gqa`, "
      "`kv-cache`).",
      heads.queries,
      heads.latent ? "one latent vector" : fmt::format("{} key and value heads", heads.keys),
      units::Thousands(kv.bytes_per_token),
      units::Thousands(std::llround(Real(kv.bytes_per_token) * kv.saving())), kv.saving(),
      units::Bytes(Real(kv.sequence_bytes)), units::Thousands(subject.context())));
}

Status TwoPhases(Subject& subject, Page& page) {
  page.Heading("4. Why does prefill gain so much from faster arithmetic, and decoding so little?");
  LUCID_ASSIGN_OR_RETURN(const Hardware* hardware, subject.hardware());
  const Workload types = subject.types();
  const Workload prompt = PromptWork(1, subject.context(), types);
  const Workload token = DecodeWork(1, subject.context(), types);
  Hardware faster = *hardware;
  for (TypePeak& peak : faster.peaks) peak.flops *= 10;
  const auto gain = [&](const Workload& work) {
    return PredictStep(*hardware, subject.plan(), work).seconds /
           PredictStep(faster, subject.plan(), work).seconds;
  };
  page.Text(fmt::format(
      "A prompt of {} tokens does {:.1f} FLOPs for each byte that it fetches, a generated token "
      "{:.2f}; {} needs {:.0f} to be busy. With ten times its arithmetic and the same memory the "
      "prompt would be {:.1f} times as fast, the token {:.1f} times (`prefill-decode`, "
      "`roofline`).",
      units::Thousands(subject.context()), MakeLedger(subject.plan(), prompt).intensity(),
      MakeLedger(subject.plan(), token).intensity(), hardware->name, hardware->Ridge(),
      gain(prompt), gain(token)));
  return {};
}

Status TwoQuestions(Subject& subject, Page& page) {
  page.Heading("5. What does perplexity measure, and what does sampling decide?");
  page.Text(
      "Perplexity rates the distribution: how much probability the tokens of a text got. "
      "Sampling takes a distribution as it is and decides what is drawn from it. Neither "
      "changes the other (`perplexity`, `sampling`).");
  if (!subject.has_weights() || subject.ids().size() < 2) return {};
  LUCID_ASSIGN_OR_RETURN(const PromptRun* run, subject.run());
  double sum = 0;
  for (size_t i = 0; i + 1 < subject.ids().size(); ++i) {
    sum -= std::log(Probabilities(run->logits[i])[static_cast<size_t>(subject.ids()[i + 1])]);
  }
  const std::vector<double> p = Probabilities(run->logits.back());
  const int32_t best = Largest(p, 1).front();
  page.Text(
      fmt::format("This prompt has a perplexity of {:.2f} under this model, whatever the "
                  "temperature. Its next token would be `{}` with probability {:.3f} at "
                  "temperature 1, {:.3f} at 0.5 and {:.3f} at 2.",
                  std::exp(sum / Real(std::ssize(subject.ids()) - 1)), subject.Label(best),
                  p[static_cast<size_t>(best)],
                  Probabilities(run->logits.back(), 0.5)[static_cast<size_t>(best)],
                  Probabilities(run->logits.back(), 2)[static_cast<size_t>(best)]));
  return {};
}

void WhyPaging(const Subject& subject, const KvFacts& kv, Page& page) {
  page.Heading("6. Why does paging of the cache come next?");
  const double weights = Real(subject.weight_bytes()), one = Real(kv.sequence_bytes);
  page.Text(fmt::format(
      "One request is about computing; many are about memory. A sequence of {} tokens takes {}, a "
      "hundred of them {}, beside {} of weights. Throughput needs many sequences at once, and "
      "nobody knows how long each becomes: so their caches are given out in blocks, found through "
      "tables, and shared where texts begin alike (`paged-attention`, `batching`).",
      units::Thousands(subject.context()), units::Bytes(one), units::Bytes(100 * one),
      units::Bytes(weights)));
}

}  // namespace

Status SelfTest(Subject& subject, Page& page) {
  page.Text("Six questions. Try to answer each before you read on; the numbers are of this model.");
  LUCID_ASSIGN_OR_RETURN(const KvFacts kv, KvFactsOf(subject.plan(),
                                                     {.k_type = subject.types().k_type,
                                                      .v_type = subject.types().v_type,
                                                      .block_size = subject.types().kv_block_size},
                                                     subject.context()));
  TokensAreNotCharacters(subject, page);
  WidthsAndHeads(subject, page);
  SharedKeys(subject, kv, page);
  LUCID_RETURN_IF_ERROR(TwoPhases(subject, page));
  LUCID_RETURN_IF_ERROR(TwoQuestions(subject, page));
  WhyPaging(subject, kv, page);
  return {};
}

Status Papers(Subject&, Page& page) {
  page.Text("Everything that the pages name, by year, with the topics that name it.");
  std::vector<const Paper*> papers;
  for (const Paper& paper : AllPapers()) papers.push_back(&paper);
  std::stable_sort(papers.begin(), papers.end(),
                   [](const Paper* a, const Paper* b) { return a->year < b->year; });
  std::vector<std::string> items;
  for (const Paper* paper : papers) {
    std::string topics;
    for (const Topic& topic : AllTopics()) {
      const std::vector<std::string_view> keys = WordsOf(topic.papers);
      if (std::find(keys.begin(), keys.end(), paper->key) == keys.end()) continue;
      topics += (topics.empty() ? "" : ", ") + fmt::format("`{}`", topic.name);
    }
    items.push_back(Cite(*paper) + ": " + topics);
  }
  page.List(std::move(items));
  return {};
}

}  // namespace lucid::topics
