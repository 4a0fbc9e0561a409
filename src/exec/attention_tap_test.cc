// The tap of attention weights against the formula of the paper, written out here over the queries,
// keys and values that the run itself had, for every reference model.
#include "exec/attention_tap.h"

#include <cmath>

#include "exec/reference_test_util.h"
#include "plan/op_table.h"

namespace lucid {
namespace {

using namespace testing_util;  // NOLINT: the models and their fixture

// Keeps what the attention ops of a step read and gave.
class Operands final : public Observer {
 public:
  struct Step {
    std::vector<float> q, y;
    AttentionMap map;
    Op op;
  };
  void AfterOp(const ObservedOp& observed) override {
    const Op& op = observed.op;
    const auto copy = [&](Value v) {
      const std::span<const float> read = observed.Read(v);
      return std::vector<float>(read.begin(), read.end());
    };
    if (op.kind == OpKind::kKvStore) {
      keys[op.outputs[0].id] = copy(op.inputs[1]);
      if (op.inputs[2].present()) values[op.outputs[0].id] = copy(op.inputs[2]);
    }
    if (std::optional<AttentionMap> map = AttentionWeightsOf(observed)) {
      steps.push_back({copy(op.inputs[0]), copy(op.outputs[0]), *std::move(map), op});
    }
  }
  std::map<int32_t, std::vector<float>> keys, values;  // by id of the cache's value
  std::vector<Step> steps;
};

class AttentionTapTest : public Fixture {
 protected:
  // One sequence, its last `generated` tokens as the model's own, each in a step.
  void Feed(std::span<const int32_t> ids, size_t generated, Observer* observer) {
    SetPrompt(ids.size() - generated, generated);
    Run(ids.first(ids.size() - generated), 0, /*all=*/false, observer);
    for (size_t i = ids.size() - generated; i < ids.size(); ++i) {
      Batch batch = NewBatch();
      AddSequence(batch, 0);
      batch.AddToken(ids[i], static_cast<int64_t>(i), Phase::kGenerated, true,
                     RopeLength(model_->config, static_cast<int64_t>(i), prompt_, ids.size()));
      runner_->Run(batch, observer);
    }
  }
  std::span<const float> Sinks(const Op& op) const {
    if (op.inputs.size() < 6 || !op.inputs[5].present()) return {};
    const Tensor& tensor = model_->weights[op.inputs[5]];
    return {tensor.f32(), static_cast<size_t>(tensor.elements())};
  }
};

// exp(score) of a query and a key as the paper has it, with what models add.
double Numerator(const AttentionAttrs& a, std::span<const float> q, std::span<const float> k,
                 double slope, int64_t distance) {
  double dot = 0;
  for (size_t i = 0; i < q.size(); ++i) dot += static_cast<double>(q[i]) * k[i];
  double score = dot * a.scale;
  if (a.softcap > 0) score = a.softcap * std::tanh(score / a.softcap);
  return std::exp(score - slope * static_cast<double>(distance));
}

TEST_P(AttentionTapTest, WeightsOfAPromptAreThoseOfTheFormula) {
  if (model_->config.mla.kv_lora > 0) GTEST_SKIP() << "expanded keys are no operand";
  StartExact();
  const std::vector<int32_t> ids = LongPrompt(40);
  Operands run;
  Feed(ids, 0, &run);
  ASSERT_EQ(run.steps.size(), model_->plan.kv_layers.size());
  for (const Operands::Step& step : run.steps) {
    const auto& a = std::get<AttentionAttrs>(step.op.attrs);
    const int32_t kv = step.op.inputs[1].id;
    const KvSpec& spec = model_->plan.kv_layers[static_cast<size_t>(step.map.layer)];
    const std::vector<float>& keys = run.keys.at(kv);
    const std::vector<float>& values = run.values.at(kv);
    const std::span<const float> sinks = Sinks(step.op);
    std::vector<float> slopes(static_cast<size_t>(a.n_heads), 0.0f);
    if (a.alibi_max_bias > 0) slopes = AlibiSlopes(a.n_heads, a.alibi_max_bias, a.alibi_factor);
    ASSERT_EQ(step.map.queries.size(), ids.size()) << step.map.op;
    for (int64_t t = 0; t < std::ssize(ids); ++t) {
      const AttentionQuery& query = step.map.queries[static_cast<size_t>(t)];
      const int64_t first = a.window > 0 ? std::max<int64_t>(0, t - a.window + 1) : 0;
      ASSERT_EQ(query.position, t);
      ASSERT_EQ(query.first_key, first) << step.map.op << " row " << t;
      ASSERT_EQ(query.n_keys, t + 1 - first) << step.map.op << " row " << t;
      for (int64_t h = 0; h < a.n_heads; ++h) {
        const int64_t kv_head = h / (a.n_heads / spec.heads);
        const std::span q(step.q.data() + (t * a.n_heads + h) * spec.k_dim,
                          static_cast<size_t>(spec.k_dim));
        std::vector<double> weight;
        double total = sinks.empty() ? 0 : std::exp(static_cast<double>(sinks[h]));
        for (int64_t j = first; j <= t; ++j) {
          const std::span k(keys.data() + (j * spec.heads + kv_head) * spec.k_dim,
                            static_cast<size_t>(spec.k_dim));
          weight.push_back(Numerator(a, q, k, slopes[static_cast<size_t>(h)], t - j));
          total += weight.back();
        }
        for (int64_t j = 0; j < query.n_keys; ++j) {
          EXPECT_NEAR(query.Weight(h, j), weight[static_cast<size_t>(j)] / total, 1e-5)
              << step.map.op << " head " << h << " row " << t << " key " << first + j;
        }
        for (int64_t d = 0; d < spec.v_dim; ++d) {
          double sum = 0;
          for (int64_t j = 0; j < query.n_keys; ++j) {
            sum +=
                query.Weight(h, j) *
                values[static_cast<size_t>(((first + j) * spec.heads + kv_head) * spec.v_dim + d)];
          }
          ASSERT_NEAR(step.y[static_cast<size_t>((t * a.n_heads + h) * spec.v_dim + d)], sum, 1e-3)
              << step.map.op << " head " << h << " row " << t;
        }
      }
    }
  }
}

TEST_P(AttentionTapTest, RowsSumToOneAndGeneratedTokensSeeWhatGivenOnesSee) {
  StartExact();
  const std::vector<int32_t> ids = LongPrompt(20);
  AttentionTap given, generated;
  Feed(ids, 0, &given);
  Feed(ids, 3, &generated);
  std::map<std::pair<int32_t, int64_t>, const AttentionQuery*> of_prompt;
  for (const AttentionMap& map : given.maps()) {
    for (const AttentionQuery& query : map.queries) {
      of_prompt[{map.layer, query.position}] = &query;
      for (int64_t h = 0; h < map.n_heads; ++h) {
        double sum = query.sinks.empty() ? 0 : query.sinks[static_cast<size_t>(h)];
        for (int64_t j = 0; j < query.n_keys; ++j) sum += query.Weight(h, j);
        EXPECT_NEAR(sum, 1, 1e-6) << map.op << " row " << query.position;
      }
    }
  }
  // Expanded and absorbed latent attention are one formula: a token has the same weights in both.
  size_t compared = 0;
  for (const AttentionMap& map : generated.maps()) {
    for (const AttentionQuery& query : map.queries) {
      if (query.phase != Phase::kGenerated) continue;
      const AttentionQuery& other = *of_prompt.at({map.layer, query.position});
      ASSERT_EQ(query.n_keys, other.n_keys) << map.op;
      for (size_t i = 0; i < query.weights.size(); ++i) {
        ASSERT_NEAR(query.weights[i], other.weights[i], 1e-4) << map.op;
      }
      ++compared;
    }
  }
  EXPECT_EQ(compared, 3 * model_->plan.kv_layers.size());
}

TEST_P(AttentionTapTest, OneLayerAloneIsKept) {
  AttentionTap tap(0);
  Run(LongPrompt(5), 0, /*all=*/false, &tap);
  ASSERT_EQ(tap.maps().size(), 1u);
  EXPECT_EQ(tap.maps()[0].layer, 0);
  EXPECT_EQ(tap.maps()[0].queries.size(), 5u);
}

// The tap has one formula whatever the kernels are: the best ones stand for all.
std::vector<Case> BestKernels() {
  std::vector<Case> cases = Cases();
  const auto tables = SelectTables("");
  std::erase_if(cases, [&](const Case& c) { return !tables || c.isa != tables->front()->isa; });
  return cases;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(AttentionTapTest);
INSTANTIATE_TEST_SUITE_P(Models, AttentionTapTest, testing::ValuesIn(BestKernels()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace lucid
