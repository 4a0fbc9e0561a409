// Binding to memory nodes, on this machine and on one that hwloc is told to see.
#include "base/numa.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>

#include "base/topology.h"

namespace lucid {
namespace {

// Whether `body` holds in a process of its own, where every CPU that this one may use has a memory
// node to itself. What hwloc is told is in its manual, "Environment Variables".
bool HoldsWithANodePerCpu(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    const std::string nodes = "node:" + std::to_string(sysconf(_SC_NPROCESSORS_CONF));
    setenv("HWLOC_SYNTHETIC", (nodes + " core:1 pu:1").c_str(), 1);
    setenv("HWLOC_THISSYSTEM", "1", 1);
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(Numa, SaysWhatItDidOrThatThereIsNothingToDo) {
  const int before = AllowedCpuCount();
  const Result<std::string> done = UseNuma(NumaMode::kDistribute);
  ASSERT_TRUE(done.has_value()) << done.error().message;
  EXPECT_NE(done->find("memory node"), std::string::npos) << *done;
  EXPECT_EQ(AllowedCpuCount(), before);
}

TEST(Numa, IsolatedThreadsStayOnTheirNode) {
  if (sysconf(_SC_NPROCESSORS_CONF) < 2) GTEST_SKIP() << "one CPU has one node";
  EXPECT_TRUE(HoldsWithANodePerCpu([] {
    const Result<std::string> done = UseNuma(NumaMode::kIsolate);
    if (!done) return false;
    // One CPU a node, so the process cannot have moved since.
    return AllowedCpuCount() == 1 &&
           done->find("the 1 CPUs of memory node " + std::to_string(sched_getcpu()) + " of ") !=
               std::string::npos;
  }));
}

}  // namespace
}  // namespace lucid
