// From probabilities to a token, and what good probabilities are: sampling, penalties, perplexity.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "account/units.h"
#include "explain/topics/topics.h"

namespace lucid::topics {
namespace {

// The chain that `params` describes, on the logits after the prompt.
Result<SampleReport> Sampled(const SamplerParams& params, const Subject& subject,
                             const std::vector<float>& logits, int32_t& chosen) {
  LUCID_ASSIGN_OR_RETURN(const SamplerChain chain, SamplerChain::Create(params));
  SampleReport report;
  LUCID_ASSIGN_OR_RETURN(chosen,
                         chain.Sample(logits, subject.ids(), {}, 0,
                                      static_cast<uint64_t>(subject.ids().size()), &report));
  return report;
}

SamplerParams Neutral() {
  SamplerParams params;
  params.temperature = 1;
  params.top_k = 0;
  params.top_p = 1;
  params.min_p = 0;
  return params;
}

// How many tokens each filter leaves of these logits, and the probability that goes with the rest.
Status FilterTable(const Subject& subject, const std::vector<float>& logits, Page& page) {
  struct Filter {
    std::string name;
    SamplerParams params;
  };
  std::vector<Filter> filters;
  const auto add = [&](const std::string& name, auto set) {
    SamplerParams params = Neutral();
    set(params);
    filters.push_back({name, params});
  };
  add("top-k 1 (greedy)", [](SamplerParams& p) { p.top_k = 1; });
  add("top-k 40", [](SamplerParams& p) { p.top_k = 40; });
  add("top-p 0.5", [](SamplerParams& p) { p.top_p = 0.5F; });
  add("top-p 0.95", [](SamplerParams& p) { p.top_p = 0.95F; });
  add("min-p 0.05", [](SamplerParams& p) { p.min_p = 0.05F; });
  add("typical-p 0.9", [](SamplerParams& p) { p.typical_p = 0.9F; });
  std::vector<std::vector<std::string>> rows;
  for (const Filter& filter : filters) {
    int32_t chosen = -1;
    LUCID_ASSIGN_OR_RETURN(const SampleReport report,
                           Sampled(filter.params, subject, logits, chosen));
    double removed = 0;
    int32_t kept = static_cast<int32_t>(logits.size());
    for (const StageReport& stage : report.stages) {
      removed += (1 - removed) * stage.mass_removed;
      kept = stage.kept_after;
    }
    std::string names;
    for (size_t i = 0; i < std::min<size_t>(4, report.top_after.size()); ++i) {
      names += subject.Label(report.top_after[i].id) + " ";
    }
    rows.push_back({filter.name, names, units::Thousands(kept), Percent(removed, 2)});
  }
  page.Table({"filter", "the likeliest that stay", "tokens that stay", "probability removed"},
             std::move(rows), 2);
  return {};
}

void TemperatureTable(const Subject& subject, const std::vector<float>& logits, Page& page) {
  const std::vector<double> plain = Probabilities(logits);
  const std::vector<int32_t> top = Largest(plain, 5);
  std::vector<std::string> head = {"next token"};
  std::vector<std::vector<std::string>> rows;
  for (const int32_t id : top) rows.push_back({subject.Label(id)});
  rows.push_back({"entropy, nats"});
  for (const double t : {0.0, 0.5, 0.8, 1.0, 1.5, 5.0}) {
    head.push_back(t == 0 ? "T = 0" : fmt::format("T = {:g}", t));
    const std::vector<double> p = Probabilities(logits, t);
    for (size_t i = 0; i < top.size(); ++i) {
      rows[i].push_back(Fixed(p[static_cast<size_t>(top[i])], 4));
    }
    rows.back().push_back(Fixed(Entropy(p), 3));
  }
  page.Table(std::move(head), std::move(rows));
}

void CandidateFigure(const Subject& subject, const std::vector<float>& logits, Page& page) {
  const std::vector<double> p = Probabilities(logits);
  Bars bars;
  for (const int32_t id : Largest(p, 8)) {
    bars.bars.push_back(
        {subject.Label(id), p[static_cast<size_t>(id)], Percent(p[static_cast<size_t>(id)], 2)});
  }
  page.Draw({"Probability of the next token after the prompt, at temperature 1.", bars});
}

}  // namespace

Status Sampling(Subject& subject, Page& page) {
  page.Text(
      "The model gives a score for every token and chooses none of them. Choosing is a chain of "
      "small steps on that row of scores. Temperature divides the scores before softmax: below 1 "
      "it widens the differences, above 1 it flattens them; at 0 the largest wins (greedy), and "
      "for very large T all tokens are equally likely. Filters then remove unlikely tokens, so "
      "that their many small chances do not add up to nonsense. From what stays, one is drawn.");
  page.Formula(
      "p = softmax(logits / T)\n"
      "top-k:      keep the k likeliest\n"
      "top-p:      keep the smallest set of likeliest tokens whose sum reaches p\n"
      "min-p:      keep what has p >= p_min x the largest p\n"
      "typical-p:  keep tokens whose -log p is nearest to the entropy H, until their sum reaches p",
      {{"H", "- sum of p log p: the mean surprise of the distribution"}});
  page.Text(
      "The token whose probability takes the sum across p belongs to top-p's set: without "
      "it, a token likelier than p would leave nothing to choose from.");
  page.Heading("After this prompt");
  if (!subject.has_weights()) {
    page.Text(NoWeights(subject));
    return {};
  }
  LUCID_ASSIGN_OR_RETURN(const PromptRun* run, subject.run());
  const std::vector<float>& logits = run->logits.back();
  CandidateFigure(subject, logits, page);
  TemperatureTable(subject, logits, page);
  page.Text("Each filter by itself, on the distribution at temperature 1:");
  LUCID_RETURN_IF_ERROR(FilterTable(subject, logits, page));
  page.Heading("The whole chain, as lucid run has it");
  LUCID_ASSIGN_OR_RETURN(const SamplerChain chain, SamplerChain::Create(SamplerParams{}));
  int32_t chosen = -1;
  LUCID_ASSIGN_OR_RETURN(const SampleReport report, Sampled({}, subject, logits, chosen));
  std::vector<std::vector<std::string>> rows;
  for (const StageReport& stage : report.stages) {
    rows.push_back({stage.setting.empty() ? stage.name : stage.setting,
                    units::Thousands(stage.kept_before), units::Thousands(stage.kept_after),
                    Percent(stage.mass_removed, 2), Fixed(stage.entropy_after, 3)});
  }
  page.Table({"stage", "before", "after", "removed", "entropy after"}, std::move(rows));
  page.Text(
      fmt::format("With seed 0 the chain draws `{}`, which has {} of the final distribution. "
                  "The draw is a function of seed, request and position, so the same seed "
                  "gives the same text, whatever else the engine computes beside it. "
                  "`lucid run --explain-sampling` shows this for every token.",
                  subject.Label(chosen), Percent(report.final_prob, 2)));
  return {};
}

Status Penalties(Subject& subject, Page& page) {
  page.Text(
      "Models that are fed their own text can fall into loops. Penalties lower the scores of "
      "tokens that were there already. Presence takes a fixed amount off once a token has "
      "occurred, frequency takes an amount for every occurrence; both count the reply. Repetition "
      "divides a positive score (and multiplies a negative one); it counts prompt and reply.");
  page.Formula(
      "z' = z - a [count > 0] - b count             (presence a, frequency b)\n"
      "z' = z / r  if z > 0,  z r  else            (repetition r)",
      {{"count", "how often the token is in the last `repeat_last_n` tokens"}});
  if (!subject.has_weights()) {
    page.Text(NoWeights(subject));
    return {};
  }
  LUCID_ASSIGN_OR_RETURN(const PromptRun* run, subject.run());
  const std::vector<float>& logits = run->logits.back();
  // A reply that has said the likeliest tokens already, the first of them three times.
  const std::vector<int32_t> top = Largest(Probabilities(logits), 4);
  const std::vector<int32_t> reply = {top[0], top[0], top[0], top[1]};
  page.Heading("After this prompt");
  page.Text(
      fmt::format("Suppose that the reply had `{}` three times and `{}` once already. The "
                  "probabilities of the next token would then be:",
                  subject.Label(top[0]), subject.Label(top[1])));
  std::vector<std::string> head = {"next token", "count", "none"};
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < top.size(); ++i) {
    rows.push_back({subject.Label(top[i]), i == 0 ? "3" : i == 1 ? "1" : "0"});
  }
  const auto add = [&](auto set) -> Status {
    SamplerParams params = Neutral();
    set(params);
    LUCID_ASSIGN_OR_RETURN(const SamplerChain chain, SamplerChain::Create(params));
    LUCID_ASSIGN_OR_RETURN(const std::vector<TokenProb> p, chain.Distribution(logits, {}, reply));
    for (size_t i = 0; i < top.size(); ++i) {
      const auto found =
          std::find_if(p.begin(), p.end(), [&](const TokenProb& t) { return t.id == top[i]; });
      rows[i].push_back(found == p.end() ? "0"
                                         : Fixed(std::exp(static_cast<double>(found->logprob)), 4));
    }
    return {};
  };
  LUCID_RETURN_IF_ERROR(add([](SamplerParams&) {}));
  head.emplace_back("presence 1");
  LUCID_RETURN_IF_ERROR(add([](SamplerParams& p) { p.presence_penalty = 1; }));
  head.emplace_back("frequency 1");
  LUCID_RETURN_IF_ERROR(add([](SamplerParams& p) { p.frequency_penalty = 1; }));
  head.emplace_back("repetition 1.2");
  LUCID_RETURN_IF_ERROR(add([](SamplerParams& p) { p.repetition_penalty = 1.2F; }));
  page.Table(std::move(head), std::move(rows));
  return {};
}

Status Perplexity(Subject& subject, Page& page) {
  page.Text(
      "How good is a model at a text? At each position it gave the token that really came some "
      "probability. The mean of -log of those is the cross-entropy: the mean surprise. Its "
      "exponential is the perplexity, a number of ways to go on: a model with perplexity 7 is as "
      "unsure, on average, as one that has to choose between 7 equally likely tokens. It is not a "
      "number of errors. Products of many probabilities get too small to handle; sums of logs do "
      "not.");
  page.Formula(
      "CE = -1/N sum of log p(token[i] | tokens before)          PPL = exp(CE)\n"
      "error of PPL ~ PPL x (standard deviation of -log p) / sqrt(N)",
      {{"N", "tokens that were scored"},
       {"bits per byte", "CE x N / (bytes x ln 2): comparable between tokenizers"}});
  page.Facts({{"by hand", "0.5 x 0.25 x 0.1 = 0.0125"},
              {"mean of -log", Fixed(-std::log(0.0125) / 3, 4)},
              {"perplexity", Fixed(std::exp(-std::log(0.0125) / 3), 4)}});
  page.Heading("Of this prompt");
  if (!subject.has_weights()) {
    page.Text(NoWeights(subject));
    return {};
  }
  LUCID_ASSIGN_OR_RETURN(const PromptRun* run, subject.run());
  std::vector<std::vector<std::string>> rows;
  Bars bars;
  double sum = 0, squares = 0;
  const size_t scored = subject.ids().size() - 1;
  for (size_t i = 0; i < scored; ++i) {
    const std::vector<double> p = Probabilities(run->logits[i]);
    const TokenId next = subject.ids()[i + 1];
    const double probability = p[static_cast<size_t>(next)];
    const double surprise = -std::log(probability);
    sum += surprise;
    squares += surprise * surprise;
    if (i < 16) {
      const int32_t best = Largest(p, 1).front();
      rows.push_back({subject.Label(subject.ids()[i]), subject.Label(next), subject.Label(best),
                      Fixed(probability, 4), Fixed(surprise, 3), Fixed(std::exp(surprise), 1)});
      bars.bars.push_back({subject.Label(next), surprise, Fixed(surprise, 2)});
    }
  }
  if (scored == 0) {
    page.Text("A prompt of one token has nothing to predict.");
    return {};
  }
  page.Table({"after", "came", "expected", "p(came)", "-log p", "ways"}, std::move(rows), 3);
  page.Draw({"Surprise at each token of the prompt (-log p, nats).", bars});
  const auto n = static_cast<double>(scored);
  const double ce = sum / n;
  const double deviation = std::sqrt(std::max(0.0, squares / n - ce * ce));
  page.Facts(
      {{"tokens scored", std::to_string(scored)},
       {"cross-entropy", Fixed(ce, 4) + " nats a token"},
       {"perplexity",
        fmt::format("{:.3f} +/- {:.3f}", std::exp(ce), std::exp(ce) * deviation / std::sqrt(n))},
       {"a model that knows nothing", fmt::format("{}: every token equally likely",
                                                  units::Thousands(subject.config().vocab_size))}});
  page.Heading("What it does not say");
  page.List(
      {"Perplexity rates the distribution; sampling decides what is drawn from it. Temperature "
       "or top-p change no perplexity, and a low perplexity promises no good answers.",
       "Figures of other tokenizers, other texts and other window lengths cannot be "
       "compared.",
       "A few hundred tokens have an error of several percent; two models on the same text "
       "are better compared token by token (KL divergence): `lucid perplexity --kl-base`."});
  return {};
}

}  // namespace lucid::topics
