// The benchmark of the disk tier runs and measures what it says, on a few megabytes.
#include "store/disk_bench.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/temp_directory.h"
#include "store/has_io_uring.h"

namespace stemma {
namespace {

TEST(DiskBench, EveryCaseGivesALineAndNothingStays) {
  if (!has_io_uring()) GTEST_SKIP() << "fio is asked for it too";
  const TempDirectory directory;
  const auto lines = bench_disk({.directory = directory.path(),
                                 .bytes = std::int64_t{16} << 20,
                                 .samples = 2,
                                 .reopened_pages = 1000});
  ASSERT_TRUE(lines.ok()) << to_string(lines.error());
  ASSERT_EQ(lines->size(), 5u);
  for (const BenchLine& line : *lines) {
    EXPECT_EQ(line.bench, "tier");
    EXPECT_GT(line.value, 0);
    EXPECT_GT(line.bound, 0);
    EXPECT_GT(line.ratio, 0);
    EXPECT_EQ(line.repeats, 2);
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

}  // namespace
}  // namespace stemma
