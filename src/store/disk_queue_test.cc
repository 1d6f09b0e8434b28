// Operations on descriptors: a deadline ends every wait, and what is given up keeps its buffer, not
// its caller's.
#include "store/disk_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/refused_calls.h"
#include "base/temp_directory.h"
#include "store/directory_files.h"
#include "store/has_io_uring.h"
#include "store/thread_queue.h"
#include "store/uring_queue.h"

namespace stemma {
namespace {

constexpr std::int64_t kNoDeadline = std::numeric_limits<std::int64_t>::max();

// A pipe whose reader waits for as long as nobody writes: a disk that hangs, and then does not.
class Pipe {
 public:
  Pipe() { EXPECT_EQ(::pipe2(ends_.data(), O_CLOEXEC), 0); }
  ~Pipe() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  int reading_end() const { return ends_[0]; }
  void write_byte() const { EXPECT_EQ(::write(ends_[1], "x", 1), 1); }

 private:
  std::array<int, 2> ends_ = {};
};

std::unique_ptr<DiskQueue> open_queue(DiskIo io, const Clock& clock, int depth) {
  const DiskQueueOptions options = {.depth = depth, .piece_bytes = 8192};
  if (io == DiskIo::kThreads) return ThreadQueue::open(clock, options).value();
  return UringQueue::open(clock, options).value();
}

DiskTransfer read_of(const Pipe& pipe, std::span<std::byte> target) {
  DiskTransfer transfer;
  transfer.descriptor = pipe.reading_end();
  transfer.target = target;
  return transfer;
}

// Reads from the pipe until as many operations hang: a thread may need longer to begin than they
// wait.
void hang(DiskQueue& queue, const Clock& clock, const Pipe& pipe, std::int64_t operations) {
  while (queue.overdue() < operations) {
    std::array<std::byte, 1> target = {};
    std::array<DiskTransfer, 1> hung = {read_of(pipe, target)};
    queue.run(hung, clock.now_us() + 1'000);
    ASSERT_EQ(hung[0].outcome, DiskOutcome::kOverdue);
  }
}

class DiskQueueTest : public ::testing::TestWithParam<DiskIo> {
 protected:
  void SetUp() override {
    if (GetParam() == DiskIo::kUring && !has_io_uring()) GTEST_SKIP() << "no io_uring is allowed";
  }
};

INSTANTIATE_TEST_SUITE_P(Each, DiskQueueTest, ::testing::Values(DiskIo::kUring, DiskIo::kThreads),
                         [](const auto& each) {
                           return each.param == DiskIo::kUring ? "Uring" : "Threads";
                         });

// One that has an answer to each operation by the time that it is waited for.
class PromptQueue final : public DiskQueue {
 public:
  static constexpr std::int64_t kEachUs = 1'000;

  PromptQueue(FakeClock& clock, int answer)
      : DiskQueue(clock, {.depth = 2, .piece_bytes = 4096}), time_(clock), says_(answer) {
    EXPECT_TRUE(allocate_buffers().ok());
  }

 private:
  void start(Flight& flight, const Piece&) override { started_.push_back(&flight); }
  void start(Flight& flight, const DiskCall&) override { started_.push_back(&flight); }
  bool wait(std::int64_t) override {
    time_.advance_us(kEachUs);
    reap();
    return time_.now_us() < kGivenUpUs;
  }
  void reap() override {
    for (Flight* const flight : std::exchange(started_, {})) take_answer(*flight, says_);
  }
  void take_back_unstarted() override {
    for (Flight* const flight : std::exchange(started_, {})) make_free(*flight);
  }

  static constexpr std::int64_t kGivenUpUs = 1'000'000;  // or the test would not end
  FakeClock& time_;
  int says_;
  std::vector<Flight*> started_;
};

TEST(DiskQueueDeadline, EndsWhatAnswersGoOnToComeTo) {
  std::vector<std::byte> target(100 * 4096);
  for (const int answer : {4096, -EAGAIN, -EINTR}) {
    SCOPED_TRACE(answer);
    FakeClock clock;
    PromptQueue queue(clock, answer);
    std::array<DiskTransfer, 1> read = {};
    read[0].target = target;
    queue.run(read, 10 * PromptQueue::kEachUs);
    EXPECT_EQ(read[0].outcome, DiskOutcome::kOverdue);
    EXPECT_EQ(clock.now_us(), 10 * PromptQueue::kEachUs);
    EXPECT_EQ(queue.overdue(), 0);
  }
}

TEST(DiskQueueDeadline, EndsACallThatIsAlwaysToBeRepeated) {
  FakeClock clock;
  PromptQueue queue(clock, -EINTR);
  EXPECT_EQ(queue.run(DiskCall{}, 10 * PromptQueue::kEachUs), std::nullopt);
  EXPECT_EQ(clock.now_us(), 10 * PromptQueue::kEachUs);
}

// A file that opens only when somebody writes to it: by then nobody wants its descriptor.
// (A ring opens it without waiting.)
TEST(ThreadQueue, ADescriptorThatComesTooLateIsClosed) {
  const TempDirectory directory;
  const std::string path = directory.file("fifo");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const MonotonicClock clock;
  const auto queue = open_queue(DiskIo::kThreads, clock, 1);
  while (queue->overdue() == 0) {
    const DiskCall call = {.kind = DiskCall::Kind::kOpen,
                           .descriptor = AT_FDCWD,
                           .name = path,
                           .flags = O_RDONLY | O_CLOEXEC};
    ASSERT_EQ(queue->run(call, clock.now_us() + 1'000), std::nullopt);
  }
  const int writer = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_GE(writer, 0);
  while (queue->overdue() > 0) std::this_thread::yield();
  pollfd entry = {writer, POLLOUT, 0};
  EXPECT_EQ(::poll(&entry, 1, 0), 1);
  EXPECT_NE(entry.revents & POLLERR, 0) << "nobody has it open to read";
  ::close(writer);
}

// A place that opened a file reads the next time: how many bytes came is no descriptor.
TEST_P(DiskQueueTest, WhatIsReadTooLateClosesNothing) {
  const MonotonicClock clock;
  const Pipe pipe;
  const auto queue = open_queue(GetParam(), clock, 1);
  const auto opened = queue->run({.kind = DiskCall::Kind::kOpen,
                                  .descriptor = AT_FDCWD,
                                  .name = "/dev/null",
                                  .flags = O_RDONLY | O_CLOEXEC},
                                 kNoDeadline);
  ASSERT_TRUE(opened.has_value());
  ASSERT_GE(*opened, 0);
  ::close(*opened);
  hang(*queue, clock, pipe, 1);
  pipe.write_byte();
  while (queue->overdue() > 0) std::this_thread::yield();
  EXPECT_GE(::fcntl(1, F_GETFD), 0) << "one byte was read";
}

// Fault 6, with a real operation that does not end.
TEST_P(DiskQueueTest, AHungReadEndsAtItsDeadlineAndItsBufferStaysTheQueues) {
  const MonotonicClock clock;
  const auto queue = open_queue(GetParam(), clock, 2);
  const Pipe pipe;
  std::array<std::byte, 1> target = {std::byte{0}};
  std::array<DiskTransfer, 1> hung = {read_of(pipe, target)};
  while (queue->overdue() == 0) queue->run(hung, clock.now_us() + 1'000);
  EXPECT_EQ(hung[0].outcome, DiskOutcome::kOverdue);
  EXPECT_EQ(queue->overdue(), 1);

  // The other place still works.
  const Pipe working;
  working.write_byte();
  std::array<DiskTransfer, 1> fine = {read_of(working, target)};
  queue->run(fine, kNoDeadline);
  EXPECT_EQ(fine[0].outcome, DiskOutcome::kDone);
  EXPECT_EQ(target[0], std::byte{'x'});

  // The late answer goes to nobody.
  target[0] = std::byte{0};
  pipe.write_byte();
  while (queue->overdue() > 0) {
  }
  EXPECT_EQ(target[0], std::byte{0});
}

TEST_P(DiskQueueTest, WhereEveryPlaceHangsAnOperationStillEndsAtItsDeadline) {
  const MonotonicClock clock;
  auto queue = open_queue(GetParam(), clock, 2);
  const Pipe pipe;
  hang(*queue, clock, pipe, 2);
  EXPECT_EQ(queue->run(DiskCall{.descriptor = pipe.reading_end()}, clock.now_us() + 1'000),
            std::nullopt);
  pipe.write_byte();
  // One place is free again: a sync of a pipe is refused, which is an answer.
  EXPECT_EQ(queue->run(DiskCall{.descriptor = pipe.reading_end()}, kNoDeadline), -EINVAL);
  pipe.write_byte();
  queue.reset();  // before the pipe, which the other one still reads
}

// A ninth operation waits for a thread, and its caller has gone when there is one.
TEST(ThreadQueue, WhatNoThreadHasBegunIsNotDoneLater) {
  const TempDirectory directory;
  const MonotonicClock clock;
  const auto queue = open_queue(DiskIo::kThreads, clock, 9);  // eight threads
  const Pipe pipe;
  std::ofstream(directory.file("kept")) << "bytes";
  const int folder = ::open(directory.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  hang(*queue, clock, pipe, 8);
  const DiskCall removal = {.kind = DiskCall::Kind::kRemove, .descriptor = folder, .name = "kept"};
  EXPECT_EQ(queue->run(removal, clock.now_us() + 1'000), std::nullopt);
  for (int i = 0; i < 8; ++i) pipe.write_byte();
  EXPECT_EQ(queue->run(DiskCall{.descriptor = folder}, kNoDeadline), 0);
  while (queue->overdue() > 0) {
  }
  EXPECT_TRUE(std::ifstream(directory.file("kept")).is_open());
  ::close(folder);
}

// So that no thread outlives its queue.
TEST(ThreadQueue, WaitsForWhatHangsWhenItIsDestroyed) {
  const MonotonicClock clock;
  auto queue = open_queue(DiskIo::kThreads, clock, 1);
  const Pipe pipe;
  std::array<std::byte, 1> target = {};
  std::array<DiskTransfer, 1> hung = {read_of(pipe, target)};
  queue->run(hung, clock.now_us() + 1'000);
  EXPECT_EQ(hung[0].outcome, DiskOutcome::kOverdue);
  pipe.write_byte();
  queue.reset();
  EXPECT_EQ(target[0], std::byte{0}) << "its answer goes to nobody";
}

TEST(UringQueue, WhatTheSystemHasNoMemoryForIsTriedUntilItsDeadline) {
  if (!has_io_uring()) GTEST_SKIP() << "no io_uring is allowed";
  const MonotonicClock clock;
  const auto queue = open_queue(DiskIo::kUring, clock, 4);
  bool refuses = false;
  std::thread([&] {
    refuses = refuse_system_call(SYS_io_uring_enter, EAGAIN);
    if (!refuses) return;
    const std::int64_t deadline_us = clock.now_us() + 2'000;
    EXPECT_EQ(queue->run(DiskCall{}, deadline_us), std::nullopt);
    EXPECT_GE(clock.now_us(), deadline_us);
  }).join();
  if (!refuses) GTEST_SKIP() << "this system allows no seccomp filter";
}

// The names of a call and the descriptors of a transfer are its caller's, who has gone.
TEST(UringQueue, WhatTheSystemNeverTookIsNotHandedOverLater) {
  if (!has_io_uring()) GTEST_SKIP() << "no io_uring is allowed";
  const TempDirectory directory;
  const MonotonicClock clock;
  const auto queue = open_queue(DiskIo::kUring, clock, 4);
  const Pipe pipe;
  pipe.write_byte();
  std::ofstream(directory.file("kept")) << "bytes";
  const int folder = ::open(directory.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  bool refuses = false;
  std::thread([&] {
    refuses = refuse_system_call(SYS_io_uring_enter, EAGAIN);
    if (!refuses) return;
    const DiskCall removal = {
        .kind = DiskCall::Kind::kRemove, .descriptor = folder, .name = "kept"};
    EXPECT_EQ(queue->run(removal, clock.now_us() + 1'000), std::nullopt);
    std::array<std::byte, 1> target = {};
    std::array<DiskTransfer, 1> read = {read_of(pipe, target)};
    queue->run(read, clock.now_us() + 1'000);
    EXPECT_EQ(read[0].outcome, DiskOutcome::kOverdue);
  }).join();
  if (!refuses) GTEST_SKIP() << "this system allows no seccomp filter";
  EXPECT_EQ(queue->overdue(), 0) << "every place is free at once";

  EXPECT_EQ(queue->run(DiskCall{.descriptor = folder}, kNoDeadline), 0);
  EXPECT_TRUE(std::ifstream(directory.file("kept")).is_open());
  std::array<std::byte, 1> target = {};
  std::array<DiskTransfer, 1> read = {read_of(pipe, target)};
  queue->run(read, kNoDeadline);
  EXPECT_EQ(target[0], std::byte{'x'}) << "nobody else has read it";
  ::close(folder);
}

TEST(UringQueue, CanBeDestroyedWhileAnOperationHangs) {
  if (!has_io_uring()) GTEST_SKIP() << "no io_uring is allowed";
  const MonotonicClock clock;
  auto queue = open_queue(DiskIo::kUring, clock, 1);
  const Pipe pipe;
  std::array<std::byte, 1> target = {};
  std::array<DiskTransfer, 1> hung = {read_of(pipe, target)};
  queue->run(hung, clock.now_us() + 1'000);
  queue.reset();
  EXPECT_EQ(hung[0].outcome, DiskOutcome::kOverdue);
}

}  // namespace
}  // namespace stemma
