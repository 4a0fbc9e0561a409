// The executors against Hugging Face transformers: logits, likelihoods, hidden states and greedy
// continuations of the reference models of every architecture, from safetensors and from GGUF, on
// the reference kernels and on every instruction set of this machine.
#include "exec/runner.h"

#include <cmath>
#include <random>
#include <set>

#include "exec/key_rotation.h"
#include "exec/reference_test_util.h"

namespace lucid {
namespace {

using namespace testing_util;  // NOLINT: the models and their fixture

TEST_P(Fixture, LogitsOfEveryPositionMatch) {
  StartExact();
  for (const auto& [prompt, ids, greedy, mean_nll] : prompts_) {
    SetPrompt(ids.size());
    const std::span<const float> want = Expected(prompt + ".logits");
    Run(ids, 0, /*all=*/true);
    const size_t vocab = want.size() / ids.size();
    double nll = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      const std::span<const float> logits = runner_->Logits(static_cast<int64_t>(i));
      ExpectClose(logits, want.subspan(i * vocab, vocab), kLogitTolerance,
                  prompt + " row " + std::to_string(i));
      if (i + 1 < ids.size()) nll += NegativeLogLikelihood(logits, ids[i + 1]);
    }
    if (mean_nll >= 0) {
      EXPECT_NEAR(nll / static_cast<double>(ids.size() - 1), mean_nll, kNllTolerance) << prompt;
    }
  }
}

// The prompt in chunks of any size, its keys and values taken from the cache.
TEST_P(Fixture, LogitsMatchWhereverThePromptIsCut) {
  StartExact();
  std::mt19937 random(11);
  for (const auto& [prompt, ids, greedy, mean_nll] : prompts_) {
    SetPrompt(ids.size());
    const std::span<const float> want = Expected(prompt + ".logits");
    const size_t vocab = want.size() / ids.size();
    for (size_t begin = 0; begin < ids.size();) {
      const size_t n = std::min<size_t>(1 + random() % 23, ids.size() - begin);
      Run(std::span(ids).subspan(begin, n), static_cast<int64_t>(begin), /*all=*/true);
      for (size_t i = 0; i < n; ++i) {
        ExpectClose(runner_->Logits(static_cast<int64_t>(i)),
                    want.subspan((begin + i) * vocab, vocab), kLogitTolerance,
                    prompt + " row " + std::to_string(begin + i));
      }
      begin += n;
    }
  }
}

TEST_P(Fixture, LogitsMatchWithoutTheFusePass) {
  StartExact(/*fuse=*/false);
  EXPECT_EQ(runner_->plan().ops.size(), model_->plan.ops.size());
  const auto& [prompt, ids, greedy, mean_nll] = prompts_[0];
  SetPrompt(ids.size());
  const std::span<const float> want = Expected(prompt + ".logits");
  Run(ids, 0, /*all=*/true);
  const size_t vocab = want.size() / ids.size();
  for (size_t i = 0; i < ids.size(); ++i) {
    ExpectClose(runner_->Logits(static_cast<int64_t>(i)), want.subspan(i * vocab, vocab),
                kLogitTolerance, prompt + " row " + std::to_string(i));
  }
}

TEST_P(Fixture, HiddenStatesMatchLayerByLayer) {
  StartExact();
  HiddenTap tap;
  const auto& [prompt, ids, greedy, mean_nll] = prompts_[0];
  SetPrompt(ids.size());
  Run(ids, 0, /*all=*/true, &tap);
  std::set<std::string> compared;
  const auto check = [&](const std::string& ours, const std::string& theirs) {
    if (reference_->Find(prompt + "." + theirs) == nullptr) return;
    compared.insert(prompt + "." + theirs);
    const std::span<const float> want = Expected(prompt + "." + theirs);
    ASSERT_TRUE(tap.taps.contains(ours)) << ours;
    ExpectClose(tap.taps[ours], want, kHiddenTolerance * MaxAbs(want), theirs);
  };
  check("embed", "hidden.embed");
  for (int64_t i = 0; i < model_->config.n_layers; ++i) {
    const std::string n = std::to_string(i);
    check("blk." + n + ".out", "hidden.layer" + n);
  }
  check("output_norm", "hidden.final_norm");
  // Some of their modules add the residual themselves.
  check(facts_.value("attn_out_includes_residual", false) ? "blk.0.attn_output.add"
                                                          : "blk.0.attn_output",
        "layer0.attn_out");
  const std::string mlp = tap.taps.contains("blk.0.ffn_out") ? "blk.0.ffn_out" : "blk.0.ffn_down";
  check(facts_.value("mlp_out_includes_residual", false) ? "blk.0.out" : mlp, "layer0.mlp_out");
  for (int64_t i = 0; i < model_->config.n_layers; ++i) {
    const std::string theirs = prompt + ".router.layer" + std::to_string(i);
    const TensorEntry* experts = reference_->Find(theirs + ".experts");
    if (experts == nullptr) continue;
    compared.insert(theirs + ".experts");
    const std::string ours = "blk." + std::to_string(i) + ".ffn_gate_inp.route";
    ASSERT_TRUE(tap.taps.contains(ours + ".experts")) << ours;
    const std::vector<float>& chosen = tap.taps[ours + ".experts"];
    const auto* want = reinterpret_cast<const int32_t*>(experts->tensor.data);
    ASSERT_EQ(std::ssize(chosen), experts->tensor.elements());
    for (size_t j = 0; j < chosen.size(); ++j) EXPECT_EQ(chosen[j], want[j]) << theirs << " " << j;
    check(ours + ".weights", "router.layer" + std::to_string(i) + ".weights");
  }
  EXPECT_GE(std::ssize(compared), model_->config.n_layers);
  // Nothing that the reference holds is left out, here and in the tests of logits.
  for (const TensorEntry& entry : reference_->tensors()) {
    EXPECT_TRUE(compared.contains(entry.name) || entry.name.ends_with("logits") ||
                entry.name.starts_with("held_out."))
        << entry.name << " of the reference is compared with nothing";
  }
}

TEST_P(Fixture, GreedyContinuationThroughTheCacheMatches) {
  StartExact();
  size_t compared = 0;
  for (const auto& [prompt, ids, want, mean_nll] : prompts_) {
    SetPrompt(ids.size(), want.size());
    compared += want.size();
    // The prompt comes in two uneven chunks.
    const size_t cut = ids.size() / 3;
    Run(std::span(ids).first(cut), 0, false);
    Run(std::span(ids).subspan(cut), static_cast<int64_t>(cut), false);
    auto position = static_cast<int64_t>(ids.size());
    const Json& list = facts_["prompts"];
    const Json top =
        list.is_object() && list[prompt].contains("greedy") ? list[prompt]["greedy"] : Json();
    for (size_t i = 0; i < want.size(); ++i) {
      const std::span<const float> logits = runner_->Logits(0);
      const auto best =
          static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      ASSERT_EQ(best, want[i]) << prompt << " token " << i;
      if (!top.is_null()) {
        for (size_t k = 0; k < top["top5_ids"][i].size(); ++k) {
          EXPECT_NEAR(-NegativeLogLikelihood(logits, top["top5_ids"][i][k].get<int32_t>()),
                      top["top5_logprobs"][i][k].get<double>(), kLogitTolerance)
              << prompt << " token " << i << " choice " << k;
        }
      }
      if (i + 1 < want.size()) {
        Run(std::span(&best, 1), position++, false);
      } else if (!top.is_null()) {
        ExpectClose(logits, Expected(prompt + ".greedy_last_logits"), kLogitTolerance,
                    prompt + " last");
      }
    }
  }
  EXPECT_GE(compared, 16u);
}

TEST_P(Fixture, KeyRotationsAreThoseOfThePlan) {
  for (const Plan& plan : {model_->plan, runner_->plan()}) {
    const std::vector<KeyRotation> rotations = KeyRotations(plan);
    ASSERT_EQ(rotations.size(), model_->plan.kv_layers.size());
    for (size_t i = 0; i < rotations.size(); ++i) {
      if (model_->config.mla.kv_lora > 0) {
        EXPECT_TRUE(rotations[i].inv_freq.empty()) << "no policy moves latent keys";
        continue;
      }
      const LayerConfig& layer = model_->config.layers[i];
      const int64_t pairs = layer.use_rope ? layer.rope.rotary_dim / 2 : 0;
      ASSERT_EQ(std::ssize(rotations[i].inv_freq), pairs) << "layer " << i;
      if (pairs == 0) continue;
      float first = 1.0f;  // divided by the factor of linear scaling
      if (GetParam().model.ends_with("_linear")) first = 0.25f;
      if (GetParam().model.ends_with("_scaled") && model_->plan.kv_layers[i].window == 0) {
        first = 0.125f;
      }
      EXPECT_EQ(rotations[i].inv_freq[0], first) << "layer " << i;
    }
  }
}

// A row of the registry without a reference model would never be compared with anything.
TEST(RegistryTest, EveryArchitectureHasAReferenceModel) {
  if (!Exists("models")) GTEST_SKIP() << "the reference fixtures are not at " << kFixtures;
  std::set<std::string_view> seen;
  for (const fs::directory_entry& entry : fs::directory_iterator(kFixtures + "/models")) {
    const ArchSpec* arch = ArchOf("models/" + entry.path().filename().string());
    EXPECT_NE(arch, nullptr) << entry.path() << " is of an architecture that the registry lacks";
    if (arch != nullptr) seen.insert(arch->name);
  }
  for (const ArchSpec* arch : AllArchs()) {
    EXPECT_TRUE(seen.contains(arch->name))
        << "architecture " << arch->name << " has no reference model: make a folder " << kFixtures
        << "/models/" << arch->name
        << " with a tiny random checkpoint and what Hugging Face transformers computes with it "
           "(config.json in its three spellings, model.safetensors, reference.json, "
           "reference.safetensors): a row in oracle/make_fixtures.py beside fixtures/ makes it, "
           "fixtures/README.md describes it";
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Fixture);
INSTANTIATE_TEST_SUITE_P(Models, Fixture, testing::ValuesIn(Cases()),
                         [](const testing::TestParamInfo<Case>& test) { return test.param.name; });
}  // namespace
}  // namespace lucid
