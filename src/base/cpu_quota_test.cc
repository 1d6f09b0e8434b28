#include "base/cpu_quota.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "base/system_files_fixture.h"
#include "base/thread_pool.h"

namespace stemma {
namespace {

class CpuQuotaTest : public SystemFilesFixture {
 protected:
  std::optional<int> quota() const { return cpu_quota(root()); }
};

TEST_F(CpuQuotaTest, IsNoneWhereNobodyLimits) {
  EXPECT_EQ(quota(), std::nullopt);
  write("/sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), std::nullopt);
  EXPECT_EQ(cpu_quota("/nowhere"), std::nullopt);
}

TEST_F(CpuQuotaTest, IsWholeCpusAtLeastOne) {
  for (const auto& [text, cpus] :
       {std::pair("200000 100000", 2), {"150000 100000", 2}, {"1000 100000", 1}}) {
    write("/sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(quota(), cpus) << text;
  }
}

TEST_F(CpuQuotaTest, IsTheLeastOfTheGroupsAroundTheProcess) {
  write("/proc/self/cgroup", "0::/pod/container\n");
  write("/sys/fs/cgroup/pod/container/cpu.max", "max 100000");
  EXPECT_EQ(quota(), std::nullopt);
  write("/sys/fs/cgroup/pod/cpu.max", "400000 100000");
  EXPECT_EQ(quota(), 4);
  write("/sys/fs/cgroup/pod/container/cpu.max", "600000 100000");
  EXPECT_EQ(quota(), 4);
  write("/sys/fs/cgroup/pod/container/cpu.max", "300000 100000");
  EXPECT_EQ(quota(), 3);
}

// Within a container the path is that of outside, and what is mounted is the container's own group.
TEST_F(CpuQuotaTest, IsFoundAtTheTopWhereThePathIsNotMounted) {
  write("/proc/self/cgroup", "0::/../docker/0123\n");
  write("/sys/fs/cgroup/cpu.max", "200000 100000");
  EXPECT_EQ(quota(), 2);
}

TEST_F(CpuQuotaTest, IsThatOfTheFirstVersionToo) {
  write("/proc/self/cgroup", "9:memory:/a\n4:cpu,cpuacct:/a\n3:cpuset:/\n0::/\n");
  write("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), std::nullopt);
  write("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "250000\n");
  EXPECT_EQ(quota(), 3);
}

TEST(BusyThreads, AreNoMoreThanTheCpusThatMayBeUsed) {
  EXPECT_GE(busy_threads(), 1);
  EXPECT_LE(busy_threads(), usable_cpus());
}

}  // namespace
}  // namespace stemma
