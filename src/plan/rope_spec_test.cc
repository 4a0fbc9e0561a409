// Rope tables and ALiBi slopes against Hugging Face transformers (fixtures/component), and what a
// user may change of them.
#include "plan/rope_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "base/component_test_util.h"
#include "plan/rope_overrides.h"

namespace lucid {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing_util::ComponentFixture;
using Scaling = RopeSpec::Scaling;

Scaling ScalingOf(const std::string& type) {
  for (const Scaling scaling : {Scaling::kLinear, Scaling::kDynamic, Scaling::kYarn,
                                Scaling::kLlama3, Scaling::kLongRope}) {
    if (Name(scaling) == type) return scaling;
  }
  return Scaling::kNone;
}

RopeSpec SpecOf(const Json& c) {
  const Json& p = c["rope_parameters"];
  RopeSpec spec;
  spec.theta = p["rope_theta"];
  spec.rotary_dim = c["rotary_dim"];
  spec.scaling = ScalingOf(p["rope_type"]);
  spec.factor = p.value("factor", 1.0);
  spec.original_context =
      p.value("original_max_position_embeddings", c["max_position_embeddings"].get<double>());
  spec.low_freq_factor = p.value("low_freq_factor", 1.0);
  spec.high_freq_factor = p.value("high_freq_factor", 4.0);
  spec.beta_fast = p.value("beta_fast", 32.0);
  spec.beta_slow = p.value("beta_slow", 1.0);
  spec.truncate = p.value("truncate", true);
  spec.short_factors = p.value("short_factor", std::vector<float>());
  spec.long_factors = p.value("long_factor", std::vector<float>());
  return spec;
}

TEST(RopeSpecTest, FrequenciesEqualTheFixtures) {
  LUCID_NEEDS_COMPONENTS();
  const ComponentFixture fixture("rope");
  for (const Json& c : fixture.cases) {
    if (!c.contains("rope_parameters")) continue;
    const std::string name = c["name"];
    const int64_t length = c["seq_len"].is_null() ? 1 : c["seq_len"].get<int64_t>();
    const std::vector<float> got = InverseFrequencies(SpecOf(c), length);
    const std::vector<float> want = fixture.Floats(name + ".inv_freq");
    ASSERT_EQ(got.size(), want.size()) << name;
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(got[i], want[i], 1e-6 * std::abs(want[i])) << name << " " << i;
    }
  }
  fixture.ExpectAllRead([](const std::string& array) {  // kernels/component_test.cc
    return !array.ends_with(".inv_freq");
  });
}

// The same model by the two ways of saying it: theta times factor^(d / (d - 2)).
TEST(RopeSpecTest, NtkScalingIsABaseOfItsOwn) {
  const RopeSpec ntk{.rotary_dim = 64, .scaling = Scaling::kNtk, .factor = 8.0};
  const RopeSpec plain{.theta = 10000.0 * std::pow(8.0, 64.0 / 62.0), .rotary_dim = 64};
  EXPECT_EQ(InverseFrequencies(ntk, 1), InverseFrequencies(plain, 1));
  const RopeSpec by_hand =
      *Override({.rotary_dim = 64}, {.scaling = Scaling::kNtk, .scale = 8.0}, 2048);
  EXPECT_EQ(InverseFrequencies(by_hand, 1), InverseFrequencies(plain, 1));
}

TEST(RopeSpecTest, SlopesEqualTheFixtures) {
  LUCID_NEEDS_COMPONENTS();
  const ComponentFixture fixture("alibi");
  for (const Json& c : fixture.cases) {
    const int64_t heads = c["heads"];
    const std::vector<float> got = AlibiSlopes(heads, 8.0, 1.0);
    const std::vector<double> values = c["values"];
    const std::vector<float> want = fixture.Floats(c["slopes"]);
    const std::vector<float> rounded = fixture.Floats(c["falcon_slopes"]);  // to bfloat16
    ASSERT_EQ(got.size(), values.size());
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(got[i], values[i], 1e-6 * values[i]) << heads << " heads, " << i;
      EXPECT_NEAR(got[i], want[i], 1e-6 * want[i]) << heads << " heads, " << i;
      EXPECT_NEAR(got[i], rounded[i], got[i] / 256) << heads << " heads, " << i;
    }
  }
  fixture.ExpectAllRead();
}

TEST(RopeOverridesTest, AScaleIsLinearUnlessSaidOtherwise) {
  const RopeSpec plain{.rotary_dim = 64};
  const RopeSpec linear = *Override(plain, {.scale = 4.0}, 2048);
  EXPECT_EQ(linear.scaling, Scaling::kLinear);
  EXPECT_EQ(linear.factor, 4.0);
  EXPECT_EQ(Override(plain, {.freq_scale = 0.25}, 2048)->factor, 4.0);
  const RopeSpec yarn = *Override(plain, {.scaling = Scaling::kYarn, .scale = 4.0}, 2048);
  EXPECT_EQ(yarn.original_context, 2048.0);
  EXPECT_DOUBLE_EQ(yarn.attn_factor, 0.1 * std::log(4.0) + 1.0);
  EXPECT_EQ(Override(yarn, {.scaling = Scaling::kNone}, 2048)->attn_factor, 1.0);
  EXPECT_EQ(Override(plain, {.freq_base = 500000.0}, 2048)->theta, 500000.0);
}

TEST(RopeOverridesTest, YarnTakesWhatItIsToldAndKeepsTheRest) {
  const RopeSpec model{.rotary_dim = 64,
                       .scaling = Scaling::kYarn,
                       .factor = 4.0,
                       .original_context = 4096,
                       .attn_factor = 1.2,
                       .beta_fast = 16.0};
  const RopeSpec changed = *Override(model, {.yarn_orig_ctx = 1024, .yarn_beta_slow = 2.0}, 16384);
  EXPECT_EQ(changed.original_context, 1024.0);
  EXPECT_EQ(changed.beta_slow, 2.0);
  EXPECT_EQ(changed.beta_fast, 16.0);
  EXPECT_EQ(changed.attn_factor, 1.2);
  EXPECT_DOUBLE_EQ(Override(model, {.yarn_attn_factor = 0.5}, 16384)->attn_factor,
                   0.5 * (0.1 * std::log(4.0) + 1.0));
  EXPECT_EQ(Override(model, {.yarn_ext_factor = 0.5}, 16384)->attn_factor, 1.2);
  const RopeSpec fast = *Override(model, {.yarn_beta_slow = 3.0, .yarn_beta_fast = 24.0}, 16384);
  EXPECT_EQ(fast.beta_fast, 24.0);
  EXPECT_EQ(fast.beta_slow, 3.0);
}

// llama.cpp and the help say so: nothing stays, and cosines keep their size.
TEST(RopeOverridesTest, YarnWithoutFrequenciesThatStayIsLinear) {
  const RopeSpec plain{.rotary_dim = 64};
  const RopeOverrides overrides{.scaling = Scaling::kYarn, .scale = 4.0, .yarn_ext_factor = 0.0};
  const RopeSpec yarn = *Override(plain, overrides, 2048);
  const RopeSpec linear = *Override(plain, {.scale = 4.0}, 2048);
  EXPECT_EQ(InverseFrequencies(yarn, 1), InverseFrequencies(linear, 1));
  EXPECT_EQ(yarn.attn_factor, 1.0);
}

TEST(RopeOverridesTest, AnotherScalingTakesThePlaceOfTheModelsWhole) {
  const RopeSpec llama3{.rotary_dim = 4, .scaling = Scaling::kLlama3, .factor = 8.0};
  const RopeSpec file{.rotary_dim = 4, .divisors = {1.0f, 8.0f}};
  const RopeSpec yarn{.rotary_dim = 4, .scaling = Scaling::kYarn, .factor = 8.0};
  for (const Scaling scaling : {Scaling::kNone, Scaling::kLinear, Scaling::kNtk, Scaling::kYarn}) {
    const RopeSpec want = *Override({.rotary_dim = 4}, {.scaling = scaling}, 2048);
    EXPECT_EQ(*Override(file, {.scaling = scaling}, 2048), want) << Name(scaling);
    EXPECT_EQ(Override(llama3, {.scaling = scaling}, 2048)->factor, 1.0) << Name(scaling);
  }
  EXPECT_EQ(Override(yarn, {.scaling = Scaling::kLinear}, 2048)->factor, 8.0);
  EXPECT_THAT(Override(file, {.scale = 2.0}, 2048).error().message, HasSubstr("rope_freqs"));
  EXPECT_EQ(Override(file, {.freq_base = 500.0}, 2048)->divisors, file.divisors);
}

TEST(RopeOverridesTest, WhatDoesNotGoTogetherIsNamed) {
  const RopeSpec plain{.rotary_dim = 64};
  EXPECT_THAT(Override(plain, {.yarn_beta_slow = 2.0}, 2048).error().message,
              HasSubstr("--rope-scaling yarn"));
  EXPECT_THAT(Override(plain, {.scale = 2.0, .freq_scale = 0.5}, 2048).error().message,
              HasSubstr("--rope-freq-scale"));
  const RopeSpec llama3{.rotary_dim = 64, .scaling = Scaling::kLlama3, .factor = 8.0};
  EXPECT_THAT(Override(llama3, {.scale = 2.0}, 2048).error().message, HasSubstr("llama3"));
  EXPECT_EQ(Override(llama3, {.scaling = Scaling::kLinear, .scale = 2.0}, 2048)->factor, 2.0);
  EXPECT_THAT(
      Override(plain, {.scaling = Scaling::kYarn, .yarn_beta_fast = 0.5}, 2048).error().message,
      HasSubstr("--yarn-beta-fast"));
  EXPECT_THAT(Override(plain, {.scaling = Scaling::kYarn, .freq_base = 0.5}, 2048).error().message,
              HasSubstr("--rope-freq-base"));
}

TEST(RopeSpecTest, DescribesItself) {
  EXPECT_EQ(Describe({.rotary_dim = 64}, 64), "theta 10000, 64 dimensions");
  EXPECT_EQ(Describe({.rotary_dim = 16,
                      .scaling = Scaling::kYarn,
                      .factor = 4.0,
                      .original_context = 64,
                      .attn_factor = 1.25},
                     32),
            "theta 10000, 16 of 32 dimensions, yarn by 4 from 64, attention factor 1.25");
  EXPECT_EQ(Describe({.rotary_dim = 16,
                      .scaling = Scaling::kYarn,
                      .factor = 4.0,
                      .original_context = 64,
                      .beta_fast = 8.0,
                      .ext_factor = 0.5,
                      .truncate = false},
                     16),
            "theta 10000, 16 dimensions, yarn by 4 from 64, betas 8 and 1, ext factor 0.5, ramp "
            "not rounded");
  EXPECT_EQ(Describe({.rotary_dim = 8, .divisors = {1.0f, 1.0f, 2.5f, 8.0f}}, 8),
            "theta 10000, 8 dimensions, divided by the file's rope_freqs: 2 frequencies by 1, 1 by "
            "8, 1 between");
}

}  // namespace
}  // namespace lucid
