// How positions enter attention: rope, its stretching, ALiBi.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "explain/topics/topics.h"

namespace lucid::topics {
namespace {

// Of the first layer that rotates.
const RopeAttrs* FirstRope(const Plan& plan) {
  for (const Op& op : plan.ops) {
    if (const auto* rope = std::get_if<RopeAttrs>(&op.attrs)) return rope;
    if (const auto* both = std::get_if<NormRopeAttrs>(&op.attrs)) return &both->rope;
  }
  return nullptr;
}

double Degrees(double radians) {
  return radians * 180 / std::numbers::pi;
}

// A pair of numbers, turned.
std::pair<double, double> Turned(double a, double b, double angle) {
  return {a * std::cos(angle) - b * std::sin(angle), a * std::sin(angle) + b * std::cos(angle)};
}

// Scores of one query and one key pair at two places of the same distance.
void DistanceOnly(double frequency, Page& page) {
  constexpr double kQuery[] = {1.0, 0.5}, kKey[] = {0.8, -0.3};
  std::vector<std::vector<std::string>> rows;
  for (const auto& [m, n] : {std::pair{5, 2}, {105, 102}, {1005, 1002}, {5, 4}}) {
    const auto [qa, qb] = Turned(kQuery[0], kQuery[1], m * frequency);
    const auto [ka, kb] = Turned(kKey[0], kKey[1], n * frequency);
    rows.push_back(
        {std::to_string(m), std::to_string(n), std::to_string(m - n), Fixed(qa * ka + qb * kb, 6)});
  }
  page.Table({"query at m", "key at n", "m - n", "their product"}, std::move(rows), 0);
}

std::string Words(RopeSpec::Scaling scaling) {
  switch (scaling) {
    case RopeSpec::Scaling::kNone:
      return "none: the frequencies are those of the formula";
    case RopeSpec::Scaling::kLinear:
      return "linear: every frequency is divided by the factor (position interpolation)";
    case RopeSpec::Scaling::kNtk:
      return "NTK-aware: a larger base, so high frequencies stay and low ones are stretched";
    case RopeSpec::Scaling::kDynamic:
      return "dynamic NTK: the base grows with the sequence once it is longer than trained";
    case RopeSpec::Scaling::kYarn:
      return "YaRN: high frequencies stay, low ones are divided, a ramp between; cos and sin get a "
             "factor";
    case RopeSpec::Scaling::kLlama3:
      return "bands (Llama 3.1): short wavelengths stay, long ones are divided, a ramp between";
    case RopeSpec::Scaling::kLongRope:
      return "LongRoPE: a divisor for every frequency, from a list";
  }
  return "";
}

// The same rotations under each rule, stretched four times, for pairs from first to last.
void ScalingTable(const RopeSpec& base, Page& page) {
  RopeSpec plain = base;
  plain.scaling = RopeSpec::Scaling::kNone;
  constexpr double kFactor = 4;
  const int64_t trained = 8192;
  std::vector<std::pair<std::string, RopeSpec>> rules = {{"none", plain}};
  for (const auto scaling : {RopeSpec::Scaling::kLinear, RopeSpec::Scaling::kNtk,
                             RopeSpec::Scaling::kYarn, RopeSpec::Scaling::kLlama3}) {
    RopeSpec spec = plain;
    spec.scaling = scaling;
    spec.factor = kFactor;
    spec.original_context = static_cast<double>(trained);
    rules.emplace_back(Name(scaling), spec);
  }
  const auto pairs = static_cast<size_t>(plain.rotary_dim / 2);
  std::vector<std::string> head = {"pair"};
  std::vector<std::vector<float>> frequencies;
  Plot plot;
  plot.x_title = "pair of the head";
  plot.log_y = true;
  plot.y_label = [](double value) { return fmt::format("{:.3g}", value); };
  for (const auto& [name, spec] : rules) {
    head.push_back(name);
    frequencies.push_back(InverseFrequencies(spec, trained));
    Plot::Line line{name, {}};
    for (size_t i = 0; i < pairs; ++i) {
      line.points.emplace_back(static_cast<double>(i), static_cast<double>(frequencies.back()[i]));
    }
    plot.lines.push_back(std::move(line));
  }
  std::vector<std::vector<std::string>> rows;
  const size_t steps = std::min<size_t>(7, pairs);
  for (size_t s = 0; s < steps; ++s) {
    const size_t pair = steps == 1 ? 0 : s * (pairs - 1) / (steps - 1);
    std::vector<std::string> row = {std::to_string(pair)};
    for (const auto& list : frequencies) row.push_back(fmt::format("{:.3g}", list[pair]));
    rows.push_back(std::move(row));
  }
  page.Table(std::move(head), std::move(rows));
  page.Draw(
      {"Frequencies (radians a position) under each rule, stretched by 4 from 8,192 "
       "positions.",
       plot});
}

}  // namespace

Status Rope(Subject& subject, Page& page) {
  page.Text(
      "The products of attention do not know order: shuffled keys give shuffled weights and the "
      "same result. Rotary embedding tells them, without adding anything to the vectors. A head "
      "of d numbers is read as d/2 pairs, each a point of the plane, and each point is turned by "
      "an angle: the position times a frequency of its own. First pairs turn fast, last ones "
      "hardly at all, like the hands of a clock. Queries and keys are turned, values are not: "
      "they are what is mixed, and need no place.");
  page.Formula("(a, b) -> (a cos mt - b sin mt, a sin mt + b cos mt)      t[k] = base^(-2k/d)",
               {{"m", "the position"},
                {"t[k]", "frequency of pair k, radians a position"},
                {"base", "often 10,000; larger for longer contexts"}});
  const RopeAttrs* rope = FirstRope(subject.plan());
  if (rope == nullptr) {
    page.Text(fmt::format("{} does not rotate: it knows positions by {}.", subject.name(),
                          subject.config().alibi_max_bias > 0
                              ? "a penalty for distance (see `alibi`)"
                              : "a learned vector for each, added to the embedding"));
    DistanceOnly(0.5, page);
    return {};
  }
  const std::vector<float> frequencies =
      InverseFrequencies(rope->spec, subject.config().context_length);
  page.Heading("In this model");
  page.Facts({{"rotations", Describe(rope->spec, rope->head_dim)},
              {"pairs", fmt::format("{} in a head of {} numbers", rope->spec.rotary_dim / 2,
                                    rope->head_dim)},
              {"which numbers pair up", rope->spec.style == RopeStyle::kHalfSplit
                                            ? "k and k + d/2 (halves, as Hugging Face files)"
                                            : "2k and 2k + 1 (neighbours, as GGUF files of Llama)"},
              {"scaling", Words(rope->spec.scaling)}});
  Turns turns;
  std::vector<std::vector<std::string>> rows;
  const size_t pairs = frequencies.size();
  for (const size_t pair : {size_t{0}, pairs / 8, pairs / 4, pairs - 1}) {
    const auto f = static_cast<double>(frequencies[pair]);
    rows.push_back({std::to_string(pair), fmt::format("{:.6g}", f), Fixed(Degrees(f), 3),
                    fmt::format("{:.0f}", 2 * std::numbers::pi / f)});
  }
  for (const size_t pair : {size_t{0}, pairs / 8, pairs / 4}) {
    Turns::Circle circle{fmt::format("pair {}", pair), {}};
    for (int m = 0; m < 6; ++m) circle.angles.push_back(m * static_cast<double>(frequencies[pair]));
    turns.circles.push_back(std::move(circle));
  }
  page.Table({"pair", "radians a position", "degrees a position", "positions for a full turn"},
             std::move(rows), 0);
  page.Draw({"Where positions 0 to 5 turn a pair that starts at (1, 0).", turns});
  page.Heading("Only the distance counts");
  page.Text(
      "Turning both of two vectors by the same angle changes no product between them. So the "
      "product of a query at m and a key at n depends on m - n: below, a query pair (1, 0.5) "
      "and a key pair (0.8, -0.3) with the first frequency of this model.");
  DistanceOnly(static_cast<double>(frequencies[0]), page);
  return {};
}

Status PositionScaling(Subject& subject, Page& page) {
  page.Text(
      "A model meets angles in training up to its trained length. Beyond it, slow pairs come to "
      "angles that they have never had, and quality breaks down. All remedies slow some rotations "
      "so that a longer text stays within known angles. They differ in which: fast pairs tell "
      "neighbours apart and should stay, slow ones carry the far positions and can be stretched.");
  page.Formula(
      "linear:     t'[k] = t[k] / s\n"
      "NTK-aware:  base' = base s^(d / (d - 2))\n"
      "YaRN:       t'[k] = (1 - r) t[k] / s + r t[k],  cos and sin times 0.1 ln s + 1\n"
      "Llama 3.1:  t[k] where 2 pi / t[k] < L / high,  t[k] / s where > L / low, between: mixed",
      {{"s", "how many times longer the context becomes"},
       {"r",
        "1 for pairs that turn often within the trained length, 0 for those that hardly do, "
        "a ramp between (YaRN: from 32 turns down to 1)"},
       {"L", "positions that the model was trained for before"},
       {"low, high", "factors of the bands: 1 and 4"}});
  const RopeAttrs* rope = FirstRope(subject.plan());
  RopeSpec base;
  if (rope == nullptr || rope->spec.rotary_dim < 4) {
    page.Text(fmt::format("{} has no rotations; the table below takes base 10,000 and heads of 64.",
                          subject.name()));
    base.rotary_dim = 64;
  } else {
    base = rope->spec;
    page.Heading("In this model");
    page.Facts({{"rotations", Describe(rope->spec, rope->head_dim)},
                {"rule", Words(rope->spec.scaling)},
                {"trained for", fmt::format("{} positions", subject.config().context_length)}});
    if (rope->spec.scaling == RopeSpec::Scaling::kYarn) {
      page.Text(
          fmt::format("Its factor of cos and sin is {:.4f}.", YarnAttnFactor(rope->spec.factor)));
    }
  }
  page.Heading("The rules side by side");
  ScalingTable(base, page);
  page.Text(
      fmt::format("YaRN multiplies cos and sin with {:.4f} for a factor of 4: scores of longer "
                  "texts get a little sharper. `--rope-scaling` and `--yarn-*` of `lucid run` "
                  "set all of this by hand.",
                  YarnAttnFactor(4)));
  return {};
}

Status Alibi(Subject& subject, Page& page) {
  page.Text(
      "Attention with linear biases adds no positions to vectors and turns nothing. It takes a "
      "penalty off each score: the distance between query and key, times a slope that each head "
      "has for itself. Heads with steep slopes look at neighbours, flat ones far back. The rule "
      "goes on beyond the trained length by itself; most newer models rotate nevertheless.");
  page.Formula("score[i][j] = q[i] . k[j] / sqrt(d) - m_h (i - j)",
               {{"m_h",
                 "slope of head h: powers of 2^(-b/n), n heads, b usually 8; where n is no "
                 "power of two, odd powers of its root fill up"}});
  const HeadShape heads = HeadsOf(subject.plan());
  const bool own = heads.alibi > 0;
  const int64_t n = own ? heads.queries : 8;
  const double max_bias = own ? heads.alibi : 8;
  page.Heading(own ? "In this model" : "For a model with 8 heads");
  if (!own) {
    page.Text(fmt::format("{} does not use ALiBi; BLOOM and MPT do.", subject.name()));
  }
  const std::vector<float> slopes =
      AlibiSlopes(n, max_bias, own ? subject.config().alibi_factor : 1);
  std::vector<std::vector<std::string>> rows;
  HeatMap map;
  constexpr int kDistances = 16;
  for (int j = 0; j < kDistances; ++j) map.column_names.push_back(std::to_string(j));
  for (int64_t h = 0; h < std::min<int64_t>(n, 12); ++h) {
    const auto slope = static_cast<double>(slopes[static_cast<size_t>(h)]);
    rows.push_back({std::to_string(h), fmt::format("{:.6g}", slope), Fixed(-slope, 4),
                    Fixed(-8 * slope, 4), Fixed(-64 * slope, 3)});
    map.row_names.push_back(fmt::format("head {}", h));
    std::vector<double> row;
    for (int j = 0; j < kDistances; ++j) row.push_back(std::exp(-slope * j));
    map.rows.push_back(std::move(row));
  }
  page.Table({"head", "slope", "1 back", "8 back", "64 back"}, std::move(rows));
  page.Draw(
      {"What is left of a weight (exp of the penalty) by distance, scores being equal.", map});
  return {};
}

}  // namespace lucid::topics
