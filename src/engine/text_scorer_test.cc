#include "engine/text_scorer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine_test_util.h"

namespace lucid {
namespace {

using testing::HasSubstr;

TEST(CountWindows, CutsEndToEndOrByTheStride) {
  EXPECT_EQ(CountWindows(1000, {.context = 512}).value(), 1);
  EXPECT_EQ(CountWindows(1024, {.context = 512}).value(), 2);
  EXPECT_EQ(CountWindows(1024, {.context = 512, .windows = 1}).value(), 1);
  // As llama-perplexity: (tokens - size + stride - 1) / stride windows of context + stride / 2.
  EXPECT_EQ(WindowTokens({.context = 512, .stride = 64}), 544);
  EXPECT_EQ(CountWindows(1024, {.context = 512, .stride = 64}).value(), 8);
  EXPECT_EQ(ScoredTokens({.context = 512}), 255);
  EXPECT_EQ(ScoredTokens({.context = 512, .stride = 64}), 64);
}

TEST(CountWindows, SaysWhatDoesNotFit) {
  EXPECT_THAT(CountWindows(511, {.context = 512}).error().message, HasSubstr("511"));
  EXPECT_FALSE(CountWindows(1000, {.context = 3}).has_value());
  EXPECT_FALSE(CountWindows(1000, {.context = 8, .stride = -1}).has_value());
  EXPECT_FALSE(CountWindows(1000, {.context = 8, .stride = 16}).has_value());
}

}  // namespace
}  // namespace lucid
