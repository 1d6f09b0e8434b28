// ThreadPool: each task runs exactly once, on a worker in range, and is done when run returns.
#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
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

TEST(ThreadPool, ARunDoesNotNeedItsWorkers) {
  // More workers than any machine has cores for: most of them come too late for most runs.
  ThreadPool pool(64);
  std::atomic<std::int64_t> done = 0;
  for (int round = 0; round < 200; ++round) {
    pool.run(2, [&](std::int64_t, int) { done.fetch_add(1, std::memory_order_relaxed); });
    ASSERT_EQ(done.load(), 2 * (round + 1));
  }
}

TEST(ThreadPool, TasksOfRunOnAllMayWaitForEachOther) {
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 20; ++round) {
      std::atomic<int> met = 0;
      pool.run_on_all([&](std::int64_t, int) {
        met.fetch_add(1);
        while (met.load() < threads) std::this_thread::yield();
      });
      ASSERT_EQ(met.load(), threads);
    }
  }
}

TEST(ThreadPool, PinsNobodyUnlessAsked) {
  EXPECT_FALSE(ThreadPool(2).pinned());
}

#if defined(__linux__)
TEST(ThreadPool, PinsWorkersOnlyWhereEachThreadHasACpu) {
  const int cpus = usable_cpus();
  EXPECT_EQ(ThreadPool(1, ThreadPinning::kWorkers).pinned(), false);
  EXPECT_EQ(ThreadPool(cpus + 1, ThreadPinning::kWorkers).pinned(), false);
  EXPECT_EQ(ThreadPool(cpus, ThreadPinning::kWorkers).pinned(), cpus > 1);
}

// Its own, or the caller's while another program has that.
TEST(ThreadPool, APinnedWorkerMayUseOneCpuAtATime) {
  const int cpus = usable_cpus();
  ThreadPool pool(cpus, ThreadPinning::kWorkers);
  if (!pool.pinned()) GTEST_SKIP() << "one CPU";
  std::vector<int> most(static_cast<std::size_t>(cpus));
  for (int round = 0; round < 1000; ++round) {
    pool.run(64, [&](std::int64_t, int worker) {
      int& most_of_worker = most[static_cast<std::size_t>(worker)];
      most_of_worker = std::max(most_of_worker, usable_cpus());
    });
  }
  for (std::size_t worker = 1; worker < most.size(); ++worker) {
    EXPECT_LE(most[worker], 1) << "worker " << worker;
  }
}

// Threads that never rest take half of each CPU: workers and caller lose theirs amid tasks.
TEST(ThreadPool, BesideOtherProgramsEachTaskRunsOnceAndTheCallerKeepsItsCpus) {
  const int cpus = usable_cpus();
  std::atomic<bool> enough = false;
  std::vector<std::jthread> others;
  for (int i = 0; i < cpus; ++i) {
    others.emplace_back([&] {
      while (!enough.load(std::memory_order_relaxed)) {
      }
    });
  }
  ThreadPool pool(cpus, ThreadPinning::kWorkers);
  std::vector<std::int64_t> sums(16, 0);
  constexpr int kRounds = 100;
  for (int round = 0; round < kRounds; ++round) {
    pool.run(16, [&](std::int64_t task, int) {
      volatile std::int64_t work = 0;
      while (work < 20'000) work = work + 1;
      sums[static_cast<std::size_t>(task)] += task;
    });
  }
  std::atomic<int> met = 0;
  pool.run_on_all([&](std::int64_t, int) {
    met.fetch_add(1);
    while (met.load() < cpus) std::this_thread::yield();
  });
  enough.store(true);
  for (std::int64_t task = 0; task < 16; ++task) {
    EXPECT_EQ(sums[static_cast<std::size_t>(task)], kRounds * task);
  }
  EXPECT_EQ(usable_cpus(), cpus);
}
#endif

}  // namespace
}  // namespace stemma
