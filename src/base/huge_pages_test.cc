#include "base/huge_pages.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace lucid {
namespace {

// The error of DemandHugePages where the system's setting is `text`.
std::string ErrorOf(const std::string& text) {
  const std::filesystem::path root =
      std::filesystem::path(testing::TempDir()) / ("lucid_huge_pages_" + std::to_string(getpid()));
  const std::filesystem::path folder = root / "sys/kernel/mm/transparent_hugepage";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "enabled") << text;
  const Status status = DemandHugePages(root);
  std::filesystem::remove_all(root);
  return status ? "" : status.error().message;
}

TEST(HugePages, AreThereWhereTheSystemGivesThemToThoseWhoAsk) {
  EXPECT_EQ(ErrorOf("always [madvise] never\n"), "");
  EXPECT_EQ(ErrorOf("[always] madvise never\n"), "");
  EXPECT_NE(ErrorOf("always madvise [never]\n").find("says 'never'"), std::string::npos);
  EXPECT_NE(ErrorOf("no brackets\n").find("has no setting"), std::string::npos);
  const Status absent = DemandHugePages("/nowhere");
  ASSERT_FALSE(absent.has_value());
  EXPECT_NE(absent.error().message.find("/nowhere/sys/kernel/mm"), std::string::npos);
}

TEST(HugePages, CanBeForbidden) {
  if (prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) < 0)
    GTEST_SKIP() << "skipped: this kernel, or its emulation, has no PR_SET_THP_DISABLE";
  const pid_t child = fork();  // the setting stays for a process's life
  if (child == 0) {
    const bool forbidden = ForbidHugePages().has_value();
    _exit(forbidden && prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace lucid
