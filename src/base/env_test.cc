#include "base/env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace lucid {
namespace {

TEST(EnvTest, ReadsVariablesOfTheTable) {
  unsetenv("LUCID_OFFLINE");
  EXPECT_EQ(Env("LUCID_OFFLINE"), std::nullopt);
  EXPECT_FALSE(EnvFlag("LUCID_OFFLINE"));
  setenv("LUCID_OFFLINE", "", 1);
  EXPECT_EQ(Env("LUCID_OFFLINE"), std::nullopt);
  setenv("LUCID_OFFLINE", "0", 1);
  EXPECT_EQ(Env("LUCID_OFFLINE"), "0");
  EXPECT_FALSE(EnvFlag("LUCID_OFFLINE"));
  setenv("LUCID_OFFLINE", "1", 1);
  EXPECT_TRUE(EnvFlag("LUCID_OFFLINE"));
  unsetenv("LUCID_OFFLINE");
}

TEST(EnvTest, HelpNamesEveryVariable) {
  const std::string help = EnvHelp();
  for (const EnvVariable& variable : EnvVariables()) {
    EXPECT_THAT(help, ::testing::HasSubstr(std::string(variable.name)));
  }
}

TEST(EnvDeathTest, AnUndocumentedVariableIsABug) {
  EXPECT_DEATH(Env("LUCID_SECRET"), "has no row");
}

}  // namespace
}  // namespace lucid
