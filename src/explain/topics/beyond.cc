// One model helped by, or teaching, another: speculative decoding, distillation.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "account/predict.h"
#include "account/units.h"
#include "explain/topics/topics.h"

namespace lucid::topics {
namespace {

// The model itself, flattened: a stand-in for a smaller one that agrees mostly.
constexpr double kDraftTemperature = 1.4;

double Overlap(std::span<const double> p, std::span<const double> q) {
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += std::min(p[i], q[i]);
  return sum;
}

// Tokens that a round brings on average with k drafted ones, each accepted with probability a.
double ExpectedTokens(double a, int k) {
  return a >= 1 ? k + 1 : (1 - std::pow(a, k + 1)) / (1 - a);
}

// What the rule gives for the likeliest tokens, and that it is p again.
void AcceptTable(const Subject& subject, const std::vector<double>& p, const std::vector<double>& q,
                 Page& page) {
  const double accepted = Overlap(p, q);
  std::vector<std::vector<std::string>> rows;
  for (const int32_t id : Largest(p, 6)) {
    const double target = p[static_cast<size_t>(id)], draft = q[static_cast<size_t>(id)];
    const double rest = accepted < 1 ? std::max(0.0, target - draft) / (1 - accepted) : 0;
    const double all = std::min(target, draft) + (1 - accepted) * rest;
    rows.push_back({subject.Label(id), Fixed(target, 4), Fixed(draft, 4),
                    Fixed(draft > 0 ? std::min(1.0, target / draft) : 1, 3), Fixed(rest, 4),
                    Fixed(all, 4)});
  }
  page.Table({"next token", "p target", "q draft", "accepted if drafted", "residual", "comes out"},
             std::move(rows));
}

// Where the last token was there before, what followed it then: an n-gram's guess, or -1.
TokenId Guess(const std::vector<TokenId>& ids, size_t at) {
  for (size_t j = at; j-- > 0;) {
    if (ids[j] == ids[at]) return ids[j + 1];
  }
  return -1;
}

// A student with one number for each token and no input: it can learn one distribution only.
// Trained by gradient descent on soft labels; the loss is the mean KL divergence.
struct Student {
  std::vector<float> logits;

  // One step towards `mean`, the mean of the teacher's labels; `entropy` is the mean of their
  // entropies. Returns the loss before it.
  double Train(std::span<const double> mean, double entropy, double rate) {
    const std::vector<double> q = Probabilities(logits);
    double loss = -entropy;
    for (size_t i = 0; i < logits.size(); ++i) {
      if (mean[i] > 0) loss -= mean[i] * std::log(q[i]);
      logits[i] -= static_cast<float>(rate * (q[i] - mean[i]));
    }
    return loss;
  }
};

}  // namespace

Status Speculative(Subject& subject, Page& page) {
  page.Text(
      "A decode step is limited by reading weights, so a step of five tokens costs hardly more "
      "than one of one. Speculation uses that: something cheap drafts the next k tokens, and one "
      "step of the model checks them all. A drafted token x is accepted with probability min(1, "
      "p(x)/q(x)). Where one is refused, a token is drawn from what is left, the residual, and "
      "the rest of the draft is dropped. With that step the result has exactly the model's own "
      "distribution; without it, it would not.");
  page.Formula(
      "accept x ~ q with min(1, p(x) / q(x)),   else draw from  max(0, p - q) / sum\n"
      "a = sum over x of min(p(x), q(x))         E[tokens of a round] = (1 - a^(k+1)) / (1 - a)",
      {{"p, q", "distributions of the model and of the draft"},
       {"a", "how likely a drafted token is accepted"},
       {"k", "drafted tokens a round; one more always comes from the model itself"}});
  page.Text(
      "Drafts come from a smaller model (Leviathan et al., Chen et al.), further output heads "
      "(Medusa), the model's own features (EAGLE), from running ahead in parallel (Lookahead), "
      "or from text that was there before (n-grams). Lucid does not run speculation yet: this "
      "page works out what it would bring.");
  if (!subject.has_weights()) {
    page.Text(NoWeights(subject));
    return {};
  }
  LUCID_ASSIGN_OR_RETURN(const PromptRun* run, subject.run());
  page.Heading("The rule, on this prompt's next token");
  page.Text(
      fmt::format("The draft here is the model itself at temperature {:g}, a stand-in for a "
                  "smaller model that agrees mostly. The last column adds up both ways in "
                  "which a token can come out: it is p again.",
                  kDraftTemperature));
  const std::vector<double> p = Probabilities(run->logits.back());
  const std::vector<double> q = Probabilities(run->logits.back(), kDraftTemperature);
  AcceptTable(subject, p, q, page);
  double a = 0;
  double guesses = 0, guessed = 0;
  for (size_t i = 0; i < run->logits.size(); ++i) {
    const std::vector<double> target = Probabilities(run->logits[i]);
    a += Overlap(target, Probabilities(run->logits[i], kDraftTemperature));
    const TokenId guess = Guess(subject.ids(), i);
    if (guess < 0) continue;
    guesses += 1;
    guessed += target[static_cast<size_t>(guess)];
  }
  a /= static_cast<double>(run->logits.size());
  page.Facts({{"a, over the prompt", Fixed(a, 4)},
              {"n-gram guesses",
               guesses == 0 ? "none: no token of the prompt occurs twice"
                            : fmt::format("{:.0f} of {} positions; accepted with {:.3f} on "
                                          "average",
                                          guesses, run->logits.size(), guessed / guesses)}});
  LUCID_ASSIGN_OR_RETURN(const Hardware* hardware, subject.hardware());
  page.Heading(fmt::format("What it would bring on {}", hardware->name));
  const double one =
      PredictStep(*hardware, subject.plan(), DecodeWork(1, subject.context(), subject.types()))
          .seconds;
  std::vector<std::vector<std::string>> rows;
  Plot plot;
  plot.x_title = "drafted tokens k";
  Plot::Line tokens{"tokens of a round", {}}, gain{"times as fast, the draft being free", {}};
  for (const int k : {1, 2, 3, 4, 6, 8}) {
    Workload work = DecodeWork(1, subject.context(), subject.types());
    work.sequences.front().count = k + 1;
    work.outputs = k + 1;
    const double cost = PredictStep(*hardware, subject.plan(), work).seconds / one;
    const double expected = ExpectedTokens(a, k);
    rows.push_back(
        {std::to_string(k), Fixed(expected, 3), Fixed(cost, 3), Fixed(expected / cost, 2)});
    tokens.points.emplace_back(k, expected);
    gain.points.emplace_back(k, expected / cost);
  }
  plot.lines = {tokens, gain};
  page.Table({"k", "tokens of a round", "cost of a round, steps", "times as fast"}, std::move(rows),
             0);
  page.Draw({"Tokens of a round, and what is left of them once the longer step is paid.", plot});
  page.Text(
      "The draft's own time comes on top. Where arithmetic is the limit, as for many "
      "sequences at once, the longer step costs what it brings, and speculation is of no use.");
  return {};
}

Status Distillation(Subject& subject, Page& page) {
  page.Text(
      "A text tells a student one right token for each position. A teacher model tells more: how "
      "likely each token was, which of the wrong ones were nearly right. Distillation trains a "
      "smaller model on those soft labels, so that its distribution comes close to the teacher's. "
      "What it minimises is the divergence of the two. A teacher behind an API gives its few "
      "likeliest tokens only; what is left must not be forgotten, or the student learns that "
      "nothing else can happen.");
  page.Formula(
      "KL(p || q) = sum over x of p(x) log( p(x) / q(x) )\n"
      "d KL / d z = q - p            (z: the student's logits; times T with p, q at T)",
      {{"p, q", "teacher and student, softmax of logits / T"},
       {"T",
        "temperature: above 1 it shows more of the unlikely tokens; the loss is then "
        "multiplied by T^2"}});
  if (!subject.has_weights()) {
    page.Text(NoWeights(subject));
    return {};
  }
  LUCID_ASSIGN_OR_RETURN(const PromptRun* run, subject.run());
  page.Heading("Soft labels of this model");
  const std::vector<float>& last = run->logits.back();
  const std::vector<double> p1 = Probabilities(last), p2 = Probabilities(last, 2);
  std::vector<std::vector<std::string>> labels;
  double shown = 0;
  for (const int32_t id : Largest(p1, 6)) {
    const auto i = static_cast<size_t>(id);
    shown += p1[i];
    labels.push_back(
        {subject.Label(id), Fixed(-std::log(p1[i]), 3), Fixed(p1[i], 4), Fixed(p2[i], 4)});
  }
  labels.push_back({"all others", "", Fixed(1 - shown, 4), ""});
  page.Table({"next token", "-log p", "T = 1", "T = 2"}, std::move(labels));
  page.Heading("The smallest student there is");
  page.Text(
      "One number for each token and no input: it can learn one distribution for all "
      "positions. It is trained here, by gradient descent, on this model's soft labels for "
      "every position of the prompt.");
  std::vector<std::vector<double>> teacher;
  for (const std::vector<float>& row : run->logits) teacher.push_back(Probabilities(row));
  std::vector<double> mean(teacher.front().size(), 0);
  double floor = 0, entropy = 0;
  for (const std::vector<double>& p : teacher) {
    for (size_t i = 0; i < p.size(); ++i) mean[i] += p[i] / static_cast<double>(teacher.size());
  }
  for (const std::vector<double>& p : teacher) {
    floor += Divergence(p, mean) / static_cast<double>(teacher.size());
    entropy += Entropy(p) / static_cast<double>(teacher.size());
  }
  Student student{std::vector<float>(mean.size(), 0)};
  constexpr int kSteps = 300;
  constexpr double kRate = 20;
  Plot plot;
  plot.x_title = "steps of training";
  Plot::Line line{"KL, nats", {}};
  for (int step = 0; step <= kSteps; ++step) {
    line.points.emplace_back(step, student.Train(mean, entropy, kRate));
  }
  const double before = line.points.front().second, after = line.points.back().second;
  plot.lines = {std::move(line)};
  plot.rules = {{"the best that it can be", floor, false}};
  page.Draw({"Mean divergence of the student from its teacher.", plot});
  page.Facts({{"before", Fixed(before, 4) + " nats: every token equally likely"},
              {fmt::format("after {} steps", kSteps), Fixed(after, 4) + " nats"},
              {"the best it can be", Fixed(floor, 4) + " nats: the mean of the teacher's labels"}});
  page.Text(
      "A student that reads its input has no such floor. Lucid has the teacher's side: "
      "`lucid perplexity --save-base` keeps a model's distributions over a text, and "
      "`--kl-base` measures how far another model is from them. It trains no models.");
  return {};
}

}  // namespace lucid::topics
