// MemoryRoom: the least that the machine and each of the groups around a process leave it.
#include "base/memory_room.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "base/system_files_fixture.h"

namespace stemma {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

class MemoryRoomTest : public SystemFilesFixture {
 protected:
  std::optional<std::int64_t> room() const { return memory_room(root()); }

  void write_machine(std::int64_t available_bytes) {
    write("/proc/meminfo",
          "MemTotal:       99999999 kB\nMemFree: 1 kB\nHugePages_Total:       0\n"
          "MemAvailable:   " +
              std::to_string(available_bytes / 1024) + " kB\n");
  }
  void write_group(const std::string& path, const std::string& limit, std::int64_t used_bytes) {
    write("/sys/fs/cgroup" + path + "/memory.max", limit + "\n");
    write("/sys/fs/cgroup" + path + "/memory.current", std::to_string(used_bytes) + "\n");
  }
};

TEST_F(MemoryRoomTest, IsUnknownWhereNothingSaysIt) {
  EXPECT_EQ(room(), std::nullopt);
  EXPECT_EQ(memory_room("/nowhere"), std::nullopt);
  EXPECT_TRUE(check_memory_room(std::int64_t{1} << 60, "/nowhere").ok());
  write("/sys/fs/cgroup/memory.max", "1000\n");  // of how many, nobody knows
  EXPECT_EQ(room(), std::nullopt);
}

TEST_F(MemoryRoomTest, IsWhatTheMachineHasWhereNobodyLimits) {
  write_machine(300 * kMiB);
  write_group("", "max", 5000 * kMiB);
  EXPECT_EQ(room(), 300 * kMiB);
}

TEST_F(MemoryRoomTest, IsTheLeastOfTheGroupsAroundTheProcess) {
  write_machine(4000 * kMiB);
  write("/proc/self/cgroup", "0::/pod/container\n");
  write_group("/pod/container", "max", 100 * kMiB);
  EXPECT_EQ(room(), 4000 * kMiB);
  write_group("/pod", std::to_string(1000 * kMiB), 300 * kMiB);
  EXPECT_EQ(room(), 700 * kMiB);
  write_group("/pod/container", std::to_string(256 * kMiB), 100 * kMiB);
  EXPECT_EQ(room(), 156 * kMiB);
  write_group("/pod/container", std::to_string(900 * kMiB), 100 * kMiB);
  EXPECT_EQ(room(), 700 * kMiB);
}

// Within a container the path is that of outside, and what is mounted is the container's own group.
TEST_F(MemoryRoomTest, IsFoundAtTheTopWhereThePathIsNotMounted) {
  write("/proc/self/cgroup", "0::/../docker/0123\n");
  write_group("", std::to_string(256 * kMiB), 56 * kMiB);
  EXPECT_EQ(room(), 200 * kMiB);
}

// The system takes them back rather than end a process.
TEST_F(MemoryRoomTest, PagesOfFilesAreFree) {
  write_group("", std::to_string(256 * kMiB), 250 * kMiB);
  write("/sys/fs/cgroup/memory.stat", "anon 7\ninactive_file 52428800\nactive_file 41943040\n");
  EXPECT_EQ(room(), 96 * kMiB);
  write_group("", std::to_string(256 * kMiB), 20 * kMiB);  // they were counted at another moment
  EXPECT_EQ(room(), 256 * kMiB);
}

TEST_F(MemoryRoomTest, IsNothingWhereMoreIsUsedThanMayBe) {
  write_group("", std::to_string(256 * kMiB), 300 * kMiB);
  EXPECT_EQ(room(), 0);
  EXPECT_FALSE(check_memory_room(1, root()).ok());
  EXPECT_TRUE(check_memory_room(0, root()).ok());
}

TEST_F(MemoryRoomTest, IsThatOfTheFirstVersionToo) {
  write_machine(4000 * kMiB);
  write("/proc/self/cgroup", "9:cpu,cpuacct:/b\n4:memory:/a/b\n0::/\n");
  const std::string group = "/sys/fs/cgroup/memory/a/b";
  write(group + "/memory.limit_in_bytes", "9223372036854771712\n");  // none
  write(group + "/memory.usage_in_bytes", "1000\n");
  EXPECT_EQ(room(), 4000 * kMiB);
  write("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", std::to_string(256 * kMiB));
  write("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", std::to_string(100 * kMiB));
  write("/sys/fs/cgroup/memory/a/memory.stat",
        "inactive_file 1048576\ntotal_inactive_file 2097152\ntotal_active_file 1048576\n");
  EXPECT_EQ(room(), 159 * kMiB);
}

TEST_F(MemoryRoomTest, WhatIsRefusedSaysBothNumbers) {
  write_machine(1024 * kMiB);
  EXPECT_TRUE(check_memory_room(960 * kMiB, root()).ok());
  const Status refused = check_memory_room(960 * kMiB + 1, root());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(refused.error().detail, testing::HasSubstr("1006632961 bytes"));
  EXPECT_THAT(refused.error().detail, testing::HasSubstr("room for 1073741824"));
}

TEST(MemoryRoom, OfThisMachineIsKnown) {
  EXPECT_GT(memory_room().value_or(1), 0);
}

}  // namespace
}  // namespace stemma
