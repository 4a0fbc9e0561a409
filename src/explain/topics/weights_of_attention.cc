// What attention computes with queries, keys and values: attention, mask, softmax.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "account/units.h"
#include "explain/topics/topics.h"

namespace lucid::topics {
namespace {

// A softmax worked out on paper.
void SmallSoftmax(Page& page) {
  const std::vector<float> scores = {2, 1, 0};
  const std::vector<double> p = Probabilities(scores);
  std::vector<std::vector<std::string>> rows;
  double sum = 0;
  for (const float score : scores) sum += std::exp(static_cast<double>(score));
  for (size_t i = 0; i < scores.size(); ++i) {
    const auto score = static_cast<double>(scores[i]);
    rows.push_back({Fixed(score, 0), Fixed(std::exp(score), 2), Fixed(p[i], 3),
                    Fixed(std::exp(score - 2), 3)});
  }
  rows.push_back({"sum", Fixed(sum, 2), "1.000", Fixed(sum / std::exp(2.0), 3)});
  page.Table({"score", "exp(score)", "share", "exp(score - largest)"}, std::move(rows), 0);
}

// Which keys a query sees: 1, or -1 for hidden ones.
HeatMap MaskMap(const std::vector<std::string>& labels, int64_t window) {
  HeatMap map;
  map.column_names = labels;
  for (size_t i = 0; i < labels.size(); ++i) {
    map.row_names.push_back(labels[i]);
    std::vector<double> row;
    for (size_t j = 0; j < labels.size(); ++j) {
      const bool seen = j <= i && (window == 0 || static_cast<int64_t>(i - j) < window);
      row.push_back(seen ? 1.0 : -1.0);
    }
    map.rows.push_back(std::move(row));
  }
  return map;
}

int64_t SmallestWindow(const Plan& plan, int64_t& layers) {
  int64_t window = 0;
  layers = 0;
  for (const KvSpec& kv : plan.kv_layers) {
    if (kv.window == 0) continue;
    ++layers;
    window = window == 0 ? kv.window : std::min(window, kv.window);
  }
  return window;
}

// What the queries of one head give out, on average.
struct HeadHabit {
  size_t map = 0;
  int64_t head = 0;
  double self = 0, before = 0, first = 0, far = 0;  // shares: itself, the token before, the first,
                                                    // all others
};

// Of every head, over the queries that have at least two tokens before them.
std::vector<HeadHabit> HabitsOf(const std::vector<AttentionMap>& maps) {
  std::vector<HeadHabit> habits;
  for (size_t m = 0; m < maps.size(); ++m) {
    for (int64_t head = 0; head < maps[m].n_heads; ++head) {
      HeadHabit habit{.map = m, .head = head};
      double queries = 0;
      for (const AttentionQuery& query : maps[m].queries) {
        if (query.position < 2 || query.n_keys < 2) continue;
        ++queries;
        for (int64_t key = 0; key < query.n_keys; ++key) {
          const auto weight = static_cast<double>(query.Weight(head, key));
          const int64_t position = query.first_key + key;
          if (position == query.position) {
            habit.self += weight;
          } else if (position == query.position - 1) {
            habit.before += weight;
          } else if (position == 0) {
            habit.first += weight;
          } else {
            habit.far += weight;
          }
        }
      }
      if (queries == 0) continue;
      for (double* share : {&habit.self, &habit.before, &habit.first, &habit.far}) {
        *share /= queries;
      }
      habits.push_back(habit);
    }
  }
  return habits;
}

HeatMap MapOf(const AttentionMap& map, int64_t head, const std::vector<std::string>& labels) {
  HeatMap heat;
  heat.row_names = heat.column_names = labels;
  heat.rows.assign(labels.size(), std::vector<double>(labels.size(), -1));
  for (const AttentionQuery& query : map.queries) {
    for (int64_t key = 0; key < query.n_keys; ++key) {
      heat.rows[static_cast<size_t>(query.position)][static_cast<size_t>(query.first_key + key)] =
          static_cast<double>(query.Weight(head, key));
    }
  }
  return heat;
}

// Maps of the heads that show a habit most clearly, and how the layers differ.
Status AttentionMaps(Subject& subject, Page& page) {
  page.Heading("Maps of this prompt");
  if (!subject.has_weights()) {
    page.Text(NoWeights(subject));
    return {};
  }
  LUCID_ASSIGN_OR_RETURN(const PromptAttention* attention, subject.attention());
  const std::vector<AttentionMap>* const maps = &attention->maps;
  const std::vector<HeadHabit> habits = HabitsOf(*maps);
  if (habits.empty()) {
    page.Text("The prompt is too short for a map.");
    return {};
  }
  const auto most = [&](double HeadHabit::*share) {
    return *std::max_element(
        habits.begin(), habits.end(),
        [share](const HeadHabit& a, const HeadHabit& b) { return a.*share < b.*share; });
  };
  const HeadHabit before = most(&HeadHabit::before), far = most(&HeadHabit::far);
  page.Text(
      "A row is a query, a column a key; the darker, the larger the weight, and each row adds "
      "up to 1. Two of the heads, with habits that many models have:");
  const auto draw = [&](const HeadHabit& habit, const std::string& what) {
    const AttentionMap& map = (*maps)[habit.map];
    page.Draw({fmt::format("`{}`, head {}: {}.", map.op, habit.head, what),
               MapOf(map, habit.head, subject.Labels())});
  };
  draw(before,
       fmt::format("looks at the token before, with {} on average", Percent(before.before)));
  draw(far, fmt::format("looks far back, with {} on other tokens than itself, the one before and "
                        "the first",
                        Percent(far.far)));
  page.Text(
      "How much each layer gives, over its heads, to the first token, to the token itself, and "
      "to the one before. A large share of the first is an attention sink: a head that finds "
      "nothing puts its weight there.");
  std::vector<std::vector<std::string>> rows;
  constexpr size_t kShown = 8;
  const size_t step = std::max<size_t>(1, (maps->size() + kShown - 1) / kShown);
  for (size_t m = 0; m < maps->size(); m += step) {
    HeadHabit mean;
    double heads = 0;
    for (const HeadHabit& habit : habits) {
      if (habit.map != m) continue;
      ++heads;
      mean.first += habit.first;
      mean.self += habit.self;
      mean.before += habit.before;
      mean.far += habit.far;
    }
    if (heads == 0) continue;
    rows.push_back({(*maps)[m].op, Percent(mean.first / heads), Percent(mean.self / heads),
                    Percent(mean.before / heads), Percent(mean.far / heads)});
  }
  page.Table({"layer", "first token", "itself", "the one before", "others"}, std::move(rows));
  return {};
}

}  // namespace

Status Attention(Subject& subject, Page& page) {
  const HeadShape heads = HeadsOf(subject.plan());
  const int64_t tokens = std::ssize(subject.ids());
  page.Text(
      "A query is compared with every key by a dot product: numbers are multiplied pair by pair "
      "and added up. A large score means that the position has what the query looks for. Softmax "
      "makes weights of the scores, and the result is the mean of the values with those weights: "
      "information of other positions, mixed by relevance. Each head does this by itself.");
  page.Formula(
      "scores = Q K^T / sqrt(d) + M        weights = softmax(scores)        out = weights V",
      {{"d", "numbers of a key; M: the causal mask (see `mask`)"},
       {"[1, 2] . [3, 4]", "1 x 3 + 2 x 4 = 11: a dot product"}});
  page.Heading("Why divide by sqrt(d)?");
  page.Text(
      "A dot product of d independent numbers of variance 1 has variance d. Without the "
      "division scores would grow with the width of a head, softmax would give nearly all to "
      "one key, and training would have next to no gradient.");
  std::vector<std::vector<std::string>> rows;
  for (const int64_t d : {16, 64, 128}) {
    const auto spread = static_cast<float>(std::sqrt(static_cast<double>(d)));
    const std::vector<double> plain = Probabilities(std::vector<float>{spread, 0, -spread});
    const std::vector<double> scaled = Probabilities(std::vector<float>{1, 0, -1});
    rows.push_back({std::to_string(d), Fixed(static_cast<double>(spread), 2), Fixed(plain[0], 6),
                    Fixed(scaled[0], 6)});
  }
  page.Table({"d", "sqrt(d)", "share of the best of three, undivided", "divided"}, std::move(rows),
             0);
  page.Heading("In this model");
  page.Facts(
      {{"heads", std::to_string(heads.queries)},
       {"numbers of a key", std::to_string(heads.k_dim)},
       {"factor of the scores", fmt::format("{:.6g} = 1 / {:.2f}", heads.scale, 1 / heads.scale)},
       {"scores of this prompt", fmt::format("[{}, {}, {}] in each layer: heads, queries, keys",
                                             heads.queries, tokens, tokens)},
       {"scores of the next token", fmt::format("[{}, 1, {}]", heads.queries, tokens + 1)},
       {"result", fmt::format("[{}, {}]: heads side by side, to the output projection", tokens,
                              heads.queries * (heads.v_dim > 0 ? heads.v_dim : heads.k_dim))}});
  page.Text(
      "Attention is the only op that moves anything between positions; everything else works "
      "on each position alone. So keys and values are all that has to be kept of earlier "
      "ones.");
  return AttentionMaps(subject, page);
}

Status Softmax(Subject& subject, Page& page) {
  page.Text(
      "Scores may be any numbers; shares must be positive and add up to 1. Softmax takes the "
      "exponential of each score and divides by the sum. Differences of scores become ratios of "
      "shares: one more point is always 2.718 times the share. Attention uses it to turn scores "
      "of keys into weights, sampling to turn logits into probabilities.");
  page.Formula("softmax(z)[i] = exp(z[i] - m) / sum_j exp(z[j] - m),     m = max z",
               {{"z", "scores"},
                {"m",
                 "the largest; taking it off changes no share, and keeps exp from "
                 "overflowing: exp(89) is too large for float32"}});
  page.Heading("By hand");
  SmallSoftmax(page);
  page.Heading("By this model");
  if (!subject.has_weights()) {
    page.Text(NoWeights(subject));
    return {};
  }
  LUCID_ASSIGN_OR_RETURN(const PromptRun* run, subject.run());
  const std::vector<float>& logits = run->logits.back();
  const std::vector<double> p = Probabilities(logits);
  double sum = 0;
  for (const double value : p) sum += value;
  std::vector<std::vector<std::string>> rows;
  const std::vector<int32_t> top = Largest(p, 6);
  const auto logit = [&](int32_t id) {
    return static_cast<double>(logits[static_cast<size_t>(id)]);
  };
  for (const int32_t id : top) {
    rows.push_back({subject.Label(id), Fixed(logit(id), 3), Fixed(logit(id) - logit(top[0]), 3),
                    Fixed(std::exp(logit(id) - logit(top[0])), 4),
                    Fixed(p[static_cast<size_t>(id)], 5)});
  }
  page.Table({"next token", "logit z", "z - m", "exp(z - m)", "share"}, std::move(rows));
  page.Text(fmt::format("All {} shares add up to {:.6f}.", units::Thousands(std::ssize(p)), sum));
  page.Text(
      "In attention the same happens for every head and every query over the keys that it "
      "may see; the shares there are called weights (see `attention`, `mask`).");
  return {};
}

Status Mask(Subject& subject, Page& page) {
  page.Text(
      "A model that is trained to predict the next token must not see it. So query i may attend "
      "to keys 0 to i only: the scores of later keys become minus infinity before softmax, and "
      "exp of that is 0. All positions of a prompt can then be computed at once, each as if the "
      "text ended there. And since no later token changes an earlier one, keys and values never "
      "change once they are computed: that is why they can be cached.");
  page.Formula("weights = softmax(Q K^T / sqrt(d) + M),     M[i][j] = 0 if j <= i, else -infinity",
               {{"M", "the causal mask; with a window of W keys also -infinity where i - j >= W"}});
  int64_t windowed = 0;
  const int64_t window = SmallestWindow(subject.plan(), windowed);
  const std::vector<std::string> labels = subject.Labels();
  const auto shown = std::min<size_t>(labels.size(), 24);
  page.Heading("The mask of this prompt");
  page.Draw({"Rows are queries, columns keys; filled: may be seen.",
             MaskMap({labels.begin(), labels.begin() + static_cast<ptrdiff_t>(shown)}, 0)});
  const auto tokens = static_cast<int64_t>(labels.size());
  Workload work = PromptWork(1, tokens, subject.types());
  const int64_t seen = work.AttendedPairs(0);
  work.causal = false;
  page.Facts({{"pairs without a mask", units::Thousands(work.AttendedPairs(0))},
              {"pairs with it", fmt::format("{}: about half; no kernel here computes the others",
                                            units::Thousands(seen))},
              {"windows",
               window == 0 ? "none: every layer sees all earlier positions"
                           : fmt::format("{} of {} layers see the last {} positions only (sliding "
                                         "window)",
                                         windowed, subject.plan().kv_layers.size(), window)}});
  if (window > 0 && window < tokens) {
    page.Draw({"The same with the window.",
               MaskMap({labels.begin(), labels.begin() + static_cast<ptrdiff_t>(shown)}, window)});
  }
  page.Heading("Why decoding needs no mask");
  page.Text(
      "A decode step brings one token, the newest. All keys of the cache are earlier ones, "
      "so there is nothing to hide: its row of the mask is all zeros. That is not a "
      "different rule but the last row of the same one. Windows, and several new tokens of "
      "one sequence in a step, do need it.");
  return {};
}

}  // namespace lucid::topics
