#include "engine/invariants.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

namespace lucid {
namespace {

// Kernels may round queries and keys of a prompt to bfloat16 (docs/adr/0011): 8 bits.
constexpr double kOutputTolerance = 0.03;
constexpr double kRotationTolerance = 1e-3;  // of angles at far positions
constexpr double kValueTolerance = 1e-5;     // the same number, encoded twice
constexpr double kSumTolerance = 1e-5;

// One invariant being checked: counts, and remembers the first thing that is wrong.
class Check {
 public:
  Check(std::string id, std::string claim) : result_{std::move(id), std::move(claim)} {}

  // Returns `holds`.
  template <typename... Args>
  bool Expect(bool holds, fmt::format_string<Args...> text, Args&&... args) {
    ++count_;
    if (!holds && failures_++ == 0) failure_ = fmt::format(text, std::forward<Args>(args)...);
    return holds;
  }
  int64_t count() const { return count_; }
  InvariantResult Passed(std::string found) { return Done(Verdict::kPass, std::move(found)); }
  InvariantResult NotApplicable(std::string why) {
    return Done(Verdict::kNotApplicable, std::move(why));
  }

 private:
  InvariantResult Done(Verdict verdict, std::string found) {
    result_.verdict = failures_ > 0 ? Verdict::kFail : verdict;
    result_.found = std::move(found);
    if (failures_ > 0) {
      result_.found = failure_;
      if (failures_ > 1) result_.found += fmt::format(" ({} more)", failures_ - 1);
    }
    return std::move(result_);
  }

  InvariantResult result_;
  int64_t count_ = 0, failures_ = 0;
  std::string failure_;
};

std::string_view PhaseOf(const StepRecord& step) {
  return step.generated() ? "decode" : "prefill";
}

InvariantResult CheckResidual(std::span<const StepRecord> steps, const ModelConfig& config) {
  Check check("residual-shape", "the residual stream keeps its shape in every layer");
  for (const StepRecord& step : steps) {
    int64_t tokens = 0;
    for (const RecordedSequence& sequence : step.sequences) tokens += sequence.count;
    std::set<int32_t> layers;
    for (const RecordedShape& shape : step.residual) {
      layers.insert(shape.layer);
      check.Expect(shape.rows == tokens && shape.width == config.dim,
                   "{} wrote [{}, {}] in a {} step, not [{}, {}]", shape.op, shape.rows,
                   shape.width, PhaseOf(step), tokens, config.dim);
    }
    for (int32_t layer = 0; layer < config.n_layers; ++layer) {
      check.Expect(layers.contains(layer), "layer {} did not write to it in a {} step", layer,
                   PhaseOf(step));
    }
  }
  const int64_t writes = steps.empty() ? 0 : std::ssize(steps.front().residual);
  check.Expect(writes > 0, "nothing wrote to it");
  return check.Passed(fmt::format("[tokens, {}] at {} ops that write it, in each of {} steps",
                                  config.dim, writes, steps.size()));
}

InvariantResult CheckHeads(std::span<const StepRecord> steps, const ModelConfig& config) {
  Check check("qkv-shapes", "queries, keys and values have the shapes of their heads");
  const bool latent = config.mla.kv_lora > 0;
  const int64_t n_kv = latent ? 1 : config.n_kv_heads;
  const int64_t k_dim = latent ? config.mla.kv_lora + config.mla.rope : config.head_dim;
  for (const StepRecord& step : steps) {
    for (const RecordedHeads& h : step.heads) {
      // Absorbed queries meet the latents themselves.
      const int64_t q_dim = latent && step.generated() ? k_dim : config.head_dim;
      const int64_t v_dim = latent ? 0 : config.head_dim;
      check.Expect(h.n_q == config.n_heads && h.n_kv == n_kv && h.n_q % h.n_kv == 0,
                   "{} has {} query heads and {} key heads, not {} and {}", h.op, h.n_q, h.n_kv,
                   config.n_heads, n_kv);
      check.Expect(h.q_numbers == h.rows * config.n_heads * q_dim,
                   "queries of {} are {} numbers, not {} tokens x {} heads x {}", h.op, h.q_numbers,
                   h.rows, config.n_heads, q_dim);
      check.Expect(h.k_dim == k_dim && h.k_numbers == h.rows * n_kv * k_dim,
                   "keys of {} are {} numbers, not {} tokens x {} heads x {}", h.op, h.k_numbers,
                   h.rows, n_kv, k_dim);
      check.Expect(h.v_dim == v_dim && h.v_numbers == h.rows * n_kv * v_dim,
                   "values of {} are {} numbers, not {} tokens x {} heads x {}", h.op, h.v_numbers,
                   h.rows, n_kv, v_dim);
    }
    check.Expect(std::ssize(step.heads) == config.n_layers, "{} of {} layers ran attention in {}",
                 step.heads.size(), config.n_layers, PhaseOf(step));
  }
  check.Expect(!steps.empty(), "nothing ran");
  if (latent) {
    return check.Passed(fmt::format(
        "Q {} heads of {} ({} absorbed, in decode); cached latents of {} + {} shared by all heads; "
        "{} layers x {} steps",
        config.n_heads, config.head_dim, k_dim, config.mla.kv_lora, config.mla.rope,
        config.n_layers, steps.size()));
  }
  const int64_t group = config.n_heads / n_kv;
  return check.Passed(
      fmt::format("Q {} heads of {}, K and V {} heads of {}{}; {} layers x {} steps",
                  config.n_heads, config.head_dim, n_kv, config.head_dim,
                  group > 1 ? fmt::format(" ({} query heads to each)", group) : "", config.n_layers,
                  steps.size()));
}

InvariantResult CheckCache(std::span<const StepRecord> steps) {
  Check check("cache-appended", "the cache is only appended to");
  std::map<std::pair<int32_t, int32_t>, std::vector<uint64_t>> before;  // by layer and sequence
  int64_t compared = 0, left = 0;
  for (const StepRecord& step : steps) {
    for (const RecordedCache& now : step.cache) {
      std::vector<uint64_t>& old = before[{now.layer, now.sequence}];
      const RecordedSequence& sequence = step.sequences[static_cast<size_t>(now.sequence)];
      check.Expect(
          std::ssize(old) == sequence.start &&
              std::ssize(now.places) == sequence.start + sequence.count,
          "layer {} held {} places of sequence {} and then {}, where {} tokens came behind "
          "{}",
          now.layer, old.size(), now.sequence, now.places.size(), sequence.count, sequence.start);
      for (size_t i = 0; i < std::min(old.size(), now.places.size()); ++i) {
        if (old[i] == 0 || now.places[i] == 0) {
          ++left;
          continue;
        }
        ++compared;
        check.Expect(old[i] == now.places[i],
                     "layer {}: position {} of sequence {} has changed in a {} step", now.layer, i,
                     now.sequence, PhaseOf(step));
      }
      old = now.places;
    }
  }
  check.Expect(compared > 0, "no step came behind another");
  std::string found = fmt::format(
      "{} cached positions (K and V, all layers) kept their bytes over "
      "the steps behind them",
      compared);
  if (left > 0) found += fmt::format("; {} more have left a window", left);
  return check.Passed(std::move(found));
}

std::string_view PartName(RotatedPart part) {
  constexpr std::array<std::string_view, 4> kNames = {"a query", "a key", "a value", "nothing"};
  return kNames[static_cast<size_t>(part)];
}

// What stands in for rotations, for people.
std::string OtherPositions(const ModelConfig& config) {
  std::string text;
  for (const std::string& way : DescribePositions(config)) {
    text += (text.empty() ? "" : "; ") + way;
  }
  return text;
}

InvariantResult CheckRotations(std::span<const StepRecord> steps, const ModelConfig& config) {
  Check check("rope-on-qk", "RoPE turns queries and keys, never values");
  int64_t queries = 0, keys = 0;
  double worst = 0, worst_value = 0;
  for (const StepRecord& step : steps) {
    for (const RecordedRotation& r : step.rotations) {
      const bool fits = r.part == RotatedPart::kQuery || r.part == RotatedPart::kKey;
      check.Expect(fits, "{} turns {}", r.op, PartName(r.part));
      check.Expect(r.error <= kRotationTolerance, "{} is {:.2g} away from the formula", r.op,
                   r.error);
      check.Expect(r.moved || !step.generated(), "{} left a token behind position 0 as it was",
                   r.op);
      (r.part == RotatedPart::kQuery ? queries : keys) += 1;
      worst = std::max(worst, r.error);
    }
    for (const RecordedValues& v : step.values) {
      check.Expect(v.error <= kValueTolerance, "{} stored values {:.2g} away from the layer's own",
                   v.op, v.error);
      worst_value = std::max(worst_value, v.error);
    }
  }
  if (queries + keys == 0) return check.NotApplicable("no rotation: " + OtherPositions(config));
  check.Expect(queries == keys, "{} rotations of queries and {} of keys", queries, keys);
  return check.Passed(fmt::format(
      "{} rotations of queries, {} of keys, 0 of values, at most {:.1g} away from the formula; "
      "values stored as they were projected",
      queries, keys, worst));
}

// Of a row that saw other keys, or weighed them otherwise, the sum would be another.
double CheckOutputs(const StepRecord& step, Check& check) {
  double worst = 0;
  for (const RecordedOutput& output : step.outputs) {
    worst = std::max(worst, output.error);
    check.Expect(output.error <= kOutputTolerance,
                 "{}: the kernel's result is {:.2g} away from weights times values of these keys",
                 output.op, output.error);
  }
  return worst;
}

InvariantResult CheckMask(std::span<const StepRecord> steps, const ModelConfig& config) {
  Check check("causal-mask", "a mask in prefill alone: a query sees its own and earlier positions");
  int64_t prompt_rows = 0, masked = 0, decode_rows = 0, most = 0;
  for (const StepRecord& step : steps) {
    CheckOutputs(step, check);
    for (const AttentionMap& map : step.attention) {
      const int64_t window = config.layers[static_cast<size_t>(map.layer)].window;
      for (const AttentionQuery& query : map.queries) {
        const RecordedSequence& sequence = step.sequences[static_cast<size_t>(query.sequence)];
        const int64_t first = window > 0 ? std::max<int64_t>(0, query.position - window + 1) : 0;
        const int64_t last = query.first_key + query.n_keys - 1;
        check.Expect(query.first_key == first && last == query.position,
                     "{}: the query at {} sees the keys at {} to {}, not {} to {}", map.op,
                     query.position, query.first_key, last, first, query.position);
        const int64_t later = sequence.start + sequence.count - 1 - query.position;
        if (query.phase == Phase::kPrompt) {
          ++prompt_rows;
          masked += later;
        } else {
          ++decode_rows;
          check.Expect(later == 0, "{}: a decode step hides {} later keys", map.op, later);
          most = std::max(most, query.n_keys);
        }
      }
    }
  }
  check.Expect(prompt_rows > 0 && decode_rows > 0, "the run has {} prompt and {} decode queries",
               prompt_rows, decode_rows);
  return check.Passed(fmt::format(
      "{} prompt queries see themselves and what came before ({} later keys masked); {} decode "
      "queries see all there is, up to {} keys{}",
      prompt_rows, masked, decode_rows, most,
      std::ranges::any_of(config.layers, [](const LayerConfig& l) { return l.window > 0; })
          ? ", or their window"
          : ""));
}

InvariantResult CheckSoftmax(std::span<const StepRecord> steps) {
  Check check("softmax-rows", "attention weights of every row sum to 1");
  int64_t rows = 0;
  double worst = 0, worst_output = 0;
  bool sinks = false;
  for (const StepRecord& step : steps) {
    for (const AttentionMap& map : step.attention) {
      for (const AttentionQuery& query : map.queries) {
        for (int64_t head = 0; head < map.n_heads; ++head) {
          sinks = sinks || !query.sinks.empty();
          double sum = query.sinks.empty() ? 0 : query.sinks[static_cast<size_t>(head)];
          bool proper = true;
          for (int64_t key = 0; key < query.n_keys; ++key) {
            const double weight = query.Weight(head, key);
            proper = proper && weight >= 0;
            sum += weight;
          }
          ++rows;
          const double off = std::isfinite(sum) ? std::abs(sum - 1) : INFINITY;
          worst = std::max(worst, off);
          check.Expect(proper && off <= kSumTolerance,
                       "{}: the weights of head {} at position {} sum to {}", map.op, head,
                       query.position, sum);
        }
      }
    }
    worst_output = std::max(worst_output, CheckOutputs(step, check));
  }
  check.Expect(rows > 0, "no attention ran");
  return check.Passed(
      fmt::format("{} rows{}, at most {:.1g} off; times the values they give what the kernel gave, "
                  "within {:.1g}",
                  rows, sinks ? " with their sinks" : "", worst, worst_output));
}

}  // namespace

std::string_view Name(Verdict verdict) {
  constexpr std::array<std::string_view, 3> kNames = {"PASS", "FAIL", "n/a"};
  return kNames[static_cast<size_t>(verdict)];
}

std::vector<InvariantResult> CheckInvariants(std::span<const StepRecord> steps,
                                             const ModelConfig& config) {
  return {CheckResidual(steps, config),  CheckHeads(steps, config), CheckCache(steps),
          CheckRotations(steps, config), CheckMask(steps, config),  CheckSoftmax(steps)};
}

}  // namespace lucid
