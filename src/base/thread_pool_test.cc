// ThreadPool: each task runs exactly once, on a worker in range, and is done when run returns.
#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <vector>

namespace stemma {
namespace {

TEST(ThreadPool, RunsEachTaskOnce) {
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    for (const std::int64_t tasks : {0, 1, 2, 7, 1000}) {
      std::vector<int> runs(static_cast<std::size_t>(tasks), 0);
      pool.run(tasks, [&](std::int64_t task, int worker) {
        EXPECT_GE(worker, 0);
        EXPECT_LT(worker, threads);
        ++runs[static_cast<std::size_t>(task)];
      });
      for (const int count : runs) EXPECT_EQ(count, 1);
    }
  }
}

TEST(ThreadPool, ManyShortRunsNeverLoseAWakeUp) {
  ThreadPool pool(3);
  std::vector<std::int64_t> sums(8, 0);
  for (int round = 0; round < 20'000; ++round) {
    pool.run(8, [&](std::int64_t task, int) { sums[static_cast<std::size_t>(task)] += task; });
  }
  for (std::int64_t task = 0; task < 8; ++task) {
    EXPECT_EQ(sums[static_cast<std::size_t>(task)], 20'000 * task);
  }
}

}  // namespace
}  // namespace stemma
