// Cores, CPUs and the quota of control groups, in folders that look like those of the system.
#include "base/topology.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <string>

#include "base/thread_pool.h"

namespace lucid {
namespace {

TEST(Topology, CountsAtLeastOneCoreAndNoMoreThanTheAllowedCpus) {
  EXPECT_GE(PhysicalCoreCount(), 1);
  EXPECT_LE(PhysicalCoreCount(), AllowedCpuCount());
}

TEST(Topology, ReadsTheCpuQuota) {
  EXPECT_EQ(CpusOfQuota("max 100000"), std::nullopt);
  EXPECT_EQ(CpusOfQuota(""), std::nullopt);
  EXPECT_EQ(CpusOfQuota("100000"), std::nullopt);
  EXPECT_EQ(CpusOfQuota("100000 0"), std::nullopt);
  EXPECT_EQ(CpusOfQuota("100000 100000"), 1);
  EXPECT_EQ(CpusOfQuota("150000 100000"), 2);
  EXPECT_EQ(CpusOfQuota("5000 100000"), 1);
}

// What CgroupCpus finds in a root with these files.
std::optional<int> CpusIn(const std::map<std::string, std::string>& files) {
  const std::filesystem::path root = std::filesystem::path(testing::TempDir()) /
                                     ("lucid_topology_test_" + std::to_string(getpid()));
  std::filesystem::remove_all(root);
  for (const auto& [name, text] : files) {
    std::filesystem::create_directories((root / name).parent_path());
    std::ofstream(root / name) << text;
  }
  const std::optional<int> cpus = CgroupCpus(root);
  std::filesystem::remove_all(root);
  return cpus;
}

TEST(Topology, NoControlGroupIsNoLimit) {
  EXPECT_EQ(CpusIn({}), std::nullopt);
  EXPECT_EQ(CpusIn({{"proc/self/cgroup", "0::/\n"}}), std::nullopt);
  EXPECT_EQ(CpusIn({{"proc/self/cgroup", "0::/a\n"}, {"sys/fs/cgroup/a/cpu.max", "max 100000\n"}}),
            std::nullopt);
  EXPECT_EQ(CpusIn({{"proc/self/cgroup", "4:cpu:/\n"},
                    {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"},
                    {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}}),
            std::nullopt);
  EXPECT_EQ(CpusIn({{"proc/self/cgroup", "nonsense\n:\n0:\n0::/../..\n"},
                    {"cpu.max", "100000 100000\n"}}),
            std::nullopt);
}

TEST(Topology, TheTightestGroupOfVersion2Counts) {
  const std::string own = "sys/fs/cgroup/system.slice/lucid.service/cpu.max";
  const std::string outer = "sys/fs/cgroup/system.slice/cpu.max";
  const std::string groups = "0::/system.slice/lucid.service\n";
  EXPECT_EQ(CpusIn({{"proc/self/cgroup", groups}, {own, "350000 100000\n"}}), 4);
  EXPECT_EQ(
      CpusIn({{"proc/self/cgroup", groups}, {own, "max 100000\n"}, {outer, "150000 100000\n"}}), 2);
  EXPECT_EQ(
      CpusIn({{"proc/self/cgroup", groups}, {own, "350000 100000\n"}, {outer, "150000 100000\n"}}),
      2);
  // A container: its own group is the topmost that it sees.
  EXPECT_EQ(CpusIn({{"proc/self/cgroup", "0::/\n"}, {"sys/fs/cgroup/cpu.max", "50000 100000\n"}}),
            1);
}

TEST(Topology, TheQuotaOfVersion1Counts) {
  for (const std::string mount : {"cpu", "cpu,cpuacct"}) {
    const std::string group = "sys/fs/cgroup/" + mount + "/docker/f00";
    EXPECT_EQ(CpusIn({{"proc/self/cgroup", "5:memory:/docker/f00\n4:" + mount + ":/docker/f00\n"},
                      {group + "/cpu.cfs_quota_us", "250000\n"},
                      {group + "/cpu.cfs_period_us", "100000\n"}}),
              3);
  }
  // The path is that of the host, the mount that of the container.
  EXPECT_EQ(CpusIn({{"proc/self/cgroup", "4:cpuacct,cpu:/docker/f00\n"},
                    {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n"},
                    {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "50000\n"}}),
            2);
  // Another controller's folder is none of ours.
  EXPECT_EQ(CpusIn({{"proc/self/cgroup", "4:cpuset:/a\n"},
                    {"sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "100000\n"},
                    {"sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n"}}),
            std::nullopt);
}

}  // namespace
}  // namespace lucid
