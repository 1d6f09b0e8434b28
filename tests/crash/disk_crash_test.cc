// Fault 1: the process of a disk store is killed as kill -9 does, at random and at every named
// point of its file operations, again and again over one directory. The oracle lies outside the
// store: every page is a function of its number, and the child says through a pipe what was
// confirmed. After each kill the store opens, each page is right or absent, and what was confirmed
// last is there.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <set>

#include "base/long_tests_fixture.h"
#include "base/temp_directory.h"
#include "crash/killing_files.h"
#include "stemma/log.h"
#include "store/directory_files.h"
#include "store/disk_store_fixture.h"

namespace stemma {
namespace {

constexpr std::int64_t kNoDeadline = std::int64_t{1} << 60;
constexpr std::int64_t kPages = 240;
constexpr DiskPageStoreOptions kOptions = {.bytes_max = 1 << 20, .slab_bytes = 64 << 10};
constexpr std::size_t kPagesOfCall = 6;

Result<std::unique_ptr<DiskPageStore>> open_store(const std::string& directory, const Clock& clock,
                                                  const KillPoint& point) {
  auto files = DirectoryFiles::open(directory, clock, {.queue = {.depth = 8, .piece_bytes = 8192}});
  if (!files.ok()) return files.error();
  return DiskPageStore::open(std::make_unique<KillingFiles>(*std::move(files), point), clock,
                             kOptions);
}

// The child: writes random pages and tells the numbers of those that were confirmed, call by call,
// until it is killed, or has made 40 calls.
[[noreturn]] void write_until_killed(const std::string& directory, std::uint64_t seed,
                                     const KillPoint& point, std::span<const TestPage> pages,
                                     int pipe_end) {
  const MonotonicClock clock;
  auto store = open_store(directory, clock, point);
  if (!store.ok()) ::_exit(2);
  Prng prng(seed);
  for (int call = 0; call < 40; ++call) {
    const auto first =
        static_cast<std::size_t>(prng.below(std::ssize(pages) - std::int64_t{kPagesOfCall}));
    std::vector<PageWrite> writes;
    for (std::size_t page = first; page < first + kPagesOfCall; ++page) {
      writes.push_back({pages[page].key(), pages[page].frame()});
    }
    (*store)->write(writes, kNoDeadline);
    std::array<std::int32_t, kPagesOfCall> confirmed = {};
    for (std::size_t i = 0; i < kPagesOfCall; ++i) {
      const bool done = writes[i].verdict == PageVerdict::kDone;
      confirmed[i] = done ? static_cast<std::int32_t>(first + i) : -1;
    }
    if (::write(pipe_end, confirmed.data(), sizeof(confirmed)) != sizeof(confirmed)) ::_exit(3);
    if (call % 3 == 0) {
      const PageRemoval removal{pages[first].key(), pages[first].frame()};
      (*store)->remove(std::span(&removal, 1), kNoDeadline);
      (*store)->write(std::span(writes).first(1), kNoDeadline);
    }
  }
  (*store).reset();  // its last words are a place to be killed at, too
  ::_exit(0);
}

class DiskCrash {
 public:
  explicit DiskCrash(std::uint64_t seed) : prng_(seed), seed_(seed) {}

  void run_cycle(int cycle) {
    const bool named = cycle % 2 == 0;
    const KillPoint point = named ? random_point() : KillPoint();
    SCOPED_TRACE("seed " + std::to_string(seed_) + " cycle " + std::to_string(cycle) + " at " +
                 point.operation + " " + std::to_string(point.countdown));
    std::array<int, 2> ends = {};
    ASSERT_EQ(::pipe(ends.data()), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::close(ends[0]);
      write_until_killed(directory_.path(), prng_() + 1, point, pages_, ends[1]);
    }
    ::close(ends[1]);
    const auto last = watch(ends[0], child, named ? -1 : prng_.below(12));
    ::close(ends[0]);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    ASSERT_TRUE(killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) << status;
    kills_ += killed ? 1 : 0;
    if (named && killed) points_.insert(point.operation);
    prng_();
    check(last);
  }

  int kills() const { return kills_; }
  const std::set<std::string>& points() const { return points_; }

 private:
  using Confirmed = std::array<std::int32_t, kPagesOfCall>;

  KillPoint random_point() {
    static constexpr std::array<const char*, 8> kOperations = {
        "create", "allocate",   "rename",      "remove",
        "sync",   "write_slab", "write_index", "sync_directory"};
    KillPoint point;
    point.operation = kOperations[static_cast<std::size_t>(prng_.below(kOperations.size()))];
    const bool rare = point.operation != "sync" && !point.operation.starts_with("write");
    point.countdown = static_cast<int>(prng_.below(rare ? 3 : 30));
    point.moment = static_cast<KillPoint::Moment>(prng_.below(3));
    return point;
  }

  // Reads what is confirmed until the child ends, and ends it after `kill_after` calls (-1: not).
  Confirmed watch(int pipe_end, pid_t child, std::int64_t kill_after) {
    Confirmed last;
    last.fill(-1);
    Confirmed next = {};
    if (kill_after == 0) ::kill(child, SIGKILL);
    for (std::int64_t calls = 1; ::read(pipe_end, next.data(), sizeof(next)) == sizeof(next);
         ++calls) {
      last = next;
      if (calls == kill_after) ::kill(child, SIGKILL);
    }
    return last;
  }

  void check(const Confirmed& last) {
    auto store = open_store(directory_.path(), clock_, {});
    ASSERT_TRUE(store.ok()) << to_string(store.error());
    std::vector<bool> right;
    for (const TestPage& page : pages_) {
      const Served served = serve(**store, page, kNoDeadline);
      ASSERT_TRUE(served == Served::kRight || served == Served::kMiss);
      right.push_back(served == Served::kRight);
    }
    // The first page of a call may have been removed again.
    for (std::size_t i = 1; i < last.size(); ++i) {
      ASSERT_TRUE(last[i] < 0 || right[static_cast<std::size_t>(last[i])]) << last[i];
    }
    ASSERT_LE((*store)->usage().bytes, kOptions.bytes_max);
  }

  TempDirectory directory_;
  MonotonicClock clock_;
  Prng prng_;
  std::uint64_t seed_;
  std::vector<TestPage> pages_ = make_pages(small_format(), 77, kPages);
  int kills_ = 0;
  std::set<std::string> points_;
};

TEST(DiskCrash, EachPageIsWholeOrAbsentAfterEveryKill) {
  set_log_sink({});
  const int cycles = long_tests() ? 10'000 : 200;
  DiskCrash crash(20261122);
  for (int cycle = 0; cycle < cycles; ++cycle) {
    crash.run_cycle(cycle);
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(crash.kills(), cycles / 2);
  EXPECT_GE(crash.points().size(), 5u);
}

}  // namespace
}  // namespace stemma
