// Files through io_uring: bytes come and go whole; a deadline ends every wait, and what is given up
// keeps its buffer, not its caller's.
#include "store/uring_files.h"

#include <fcntl.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <fstream>
#include <limits>
#include <numeric>
#include <thread>

#include "base/temp_directory.h"

namespace stemma {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kNoDeadline = std::numeric_limits<std::int64_t>::max();

std::vector<std::byte> pattern(std::size_t size, int first) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>((static_cast<std::size_t>(first) + i * 7 + i / 4096) % 251);
  }
  return bytes;
}

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

std::unique_ptr<UringQueue> open_queue(const Clock& clock, int depth) {
  auto queue = UringQueue::open(clock, {.depth = depth, .piece_bytes = 8192});
  EXPECT_TRUE(queue.ok()) << to_string(queue.error());
  return *std::move(queue);
}

TEST(UringFiles, ReadsWhatItWroteInPiecesAndManyAtOnce) {
  const TempDirectory directory;
  const MonotonicClock clock;
  auto files = UringFiles::open(directory.file("cache"), clock,
                                {.queue = {.depth = 4, .piece_bytes = 8192}});
  ASSERT_TRUE(files.ok()) << to_string(files.error());
  const auto file = (*files)->create("slab", DiskAccess::kDirect, kNoDeadline);
  ASSERT_TRUE(file.ok()) << to_string(file.error());
  ASSERT_TRUE((*files)->allocate(*file, 1 << 20, kNoDeadline).ok());
  EXPECT_EQ((*files)->size_bytes(*file), 1 << 20);

  std::vector<std::vector<std::byte>> written;
  std::vector<DiskWrite> writes;
  for (int i = 0; i < 20; ++i) {
    written.push_back(pattern(static_cast<std::size_t>(4096 * (1 + i % 5)), i));
    writes.push_back({*file, i * 5 * 4096, written.back()});
  }
  (*files)->write(writes, kNoDeadline);
  for (const DiskWrite& write : writes) ASSERT_EQ(write.outcome, DiskOutcome::kDone);
  ASSERT_TRUE((*files)->sync(*file, kNoDeadline).ok());
  for (const DiskLane lane : {DiskLane::kRead, DiskLane::kWrite}) {
    std::vector<std::vector<std::byte>> found;
    std::vector<DiskRead> reads;
    for (const DiskWrite& write : writes) {
      found.emplace_back(write.bytes.size());
      reads.push_back({*file, write.offset_bytes, found.back()});
    }
    (*files)->read(lane, reads, kNoDeadline);
    for (const DiskRead& read : reads) ASSERT_EQ(read.outcome, DiskOutcome::kDone);
    EXPECT_EQ(found, written);
  }
}

TEST(UringFiles, FilesAreTheOwnersAlone) {
  const TempDirectory directory;
  const MonotonicClock clock;
  auto files = UringFiles::open(directory.file("cache"), clock);
  ASSERT_TRUE(files.ok());
  ASSERT_TRUE((*files)->create("slab", DiskAccess::kDirect, kNoDeadline).ok());
  struct stat status = {};
  for (const auto& [name, mode] :
       {std::pair{"cache", 0700u}, {"cache/slab", 0600u}, {"cache/lock", 0600u}}) {
    ASSERT_EQ(::stat(directory.file(name).c_str(), &status), 0) << name;
    EXPECT_EQ(status.st_mode & 0777u, mode) << name;
  }
}

// Fault 28.
TEST(UringFiles, ASecondOpenerIsRefusedWithAClearMessage) {
  const TempDirectory directory;
  const MonotonicClock clock;
  auto first = UringFiles::open(directory.path(), clock);
  ASSERT_TRUE(first.ok());
  const auto second = UringFiles::open(directory.path(), clock);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(second.error().detail, HasSubstr("another process uses this cache directory"));
  EXPECT_TRUE(UringFiles::open(directory.path(), clock, {.exclusive = false}).ok());
  first->reset();
  EXPECT_TRUE(UringFiles::open(directory.path(), clock).ok());
}

// Fault 29.
TEST(UringFiles, AReadBehindTheEndIsShortAndNothingElse) {
  const TempDirectory directory;
  const MonotonicClock clock;
  auto files = UringFiles::open(directory.path(), clock);
  ASSERT_TRUE(files.ok());
  const auto file = (*files)->create("slab", DiskAccess::kDirect, kNoDeadline);
  ASSERT_TRUE((*files)->allocate(*file, 16384, kNoDeadline).ok());
  std::vector<std::byte> bytes(8192);
  for (const off_t size : {0, 1, 4096, 8191, 12288, 12289}) {
    ASSERT_EQ(::truncate(directory.file("slab").c_str(), size), 0);
    std::vector<DiskRead> reads = {{*file, 8192, bytes}};
    (*files)->read(DiskLane::kRead, reads, kNoDeadline);
    EXPECT_EQ(reads[0].outcome, DiskOutcome::kShort) << size;
  }
}

TEST(UringFiles, NamesAreListedRenamedAndRemoved) {
  const TempDirectory directory;
  const MonotonicClock clock;
  auto files = UringFiles::open(directory.path(), clock);
  ASSERT_TRUE(files.ok());
  ASSERT_TRUE((*files)->create("a", DiskAccess::kBuffered, kNoDeadline).ok());
  ASSERT_TRUE((*files)->rename("a", "b", kNoDeadline).ok());
  ASSERT_TRUE((*files)->sync_directory(kNoDeadline).ok());
  const auto entries = (*files)->list();
  ASSERT_TRUE(entries.ok());
  ASSERT_EQ(entries->size(), 2u);
  EXPECT_EQ((*entries)[0].name, "b");
  ASSERT_TRUE((*files)->remove("b", kNoDeadline).ok());
  EXPECT_EQ((*files)->open("b", DiskAccess::kBuffered, kNoDeadline).error().code,
            ErrorCode::kNotFound);
}

// Fault 6, with a real operation that does not end.
TEST(UringQueue, AHungReadEndsAtItsDeadlineAndItsBufferStaysTheQueues) {
  const MonotonicClock clock;
  const auto queue = open_queue(clock, 2);
  const Pipe pipe;
  std::array<std::byte, 1> target = {std::byte{0}};
  std::array<UringTransfer, 1> hung;
  hung[0].descriptor = pipe.reading_end();
  hung[0].target = target;
  queue->run(hung, clock.now_us() + 1'000);
  EXPECT_EQ(hung[0].outcome, DiskOutcome::kOverdue);
  EXPECT_EQ(queue->overdue(), 1);

  // The other place still works.
  const Pipe working;
  working.write_byte();
  std::array<UringTransfer, 1> fine;
  fine[0].descriptor = working.reading_end();
  fine[0].target = target;
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

TEST(UringQueue, WhereEveryPlaceHangsAnOperationStillEndsAtItsDeadline) {
  const MonotonicClock clock;
  const auto queue = open_queue(clock, 2);
  const Pipe pipe;
  std::array<std::byte, 3> target = {};
  std::array<UringTransfer, 3> hung;
  for (std::size_t i = 0; i < hung.size(); ++i) {
    hung[i].descriptor = pipe.reading_end();
    hung[i].target = std::span(target).subspan(i, 1);
  }
  queue->run(hung, clock.now_us() + 1'000);
  EXPECT_EQ(queue->overdue(), 2);
  for (const UringTransfer& transfer : hung) EXPECT_EQ(transfer.outcome, DiskOutcome::kOverdue);
  EXPECT_EQ(queue->run(UringCall{.descriptor = pipe.reading_end()}, clock.now_us() + 1'000),
            std::nullopt);
  pipe.write_byte();
  // One place is free again: a sync of a pipe is refused, which is an answer.
  EXPECT_EQ(queue->run(UringCall{.descriptor = pipe.reading_end()}, kNoDeadline), -EINVAL);
}

// For the thread that calls it, and for as long as that lives.
bool have_the_ring_refuse_everything() {
  std::array<sock_filter, 4> program = {{
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_io_uring_enter},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EAGAIN},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  }};
  const sock_fprog filter = {.len = program.size(), .filter = program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// The names of a call and the descriptors of a transfer are its caller's, who has gone.
TEST(UringQueue, WhatTheSystemNeverTookIsNotHandedOverLater) {
  const TempDirectory directory;
  const MonotonicClock clock;
  const auto queue = open_queue(clock, 4);
  const Pipe pipe;
  pipe.write_byte();
  std::ofstream(directory.file("kept")) << "bytes";
  const int folder = ::open(directory.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  bool refuses = false;
  std::thread([&] {
    refuses = have_the_ring_refuse_everything();
    if (!refuses) return;
    const UringCall removal = {
        .kind = UringCall::Kind::kRemove, .descriptor = folder, .name = "kept"};
    EXPECT_EQ(queue->run(removal, clock.now_us() + 1'000), std::nullopt);
    std::array<std::byte, 1> target = {};
    std::array<UringTransfer, 1> read;
    read[0].descriptor = pipe.reading_end();
    read[0].target = target;
    queue->run(read, clock.now_us() + 1'000);
    EXPECT_EQ(read[0].outcome, DiskOutcome::kOverdue);
  }).join();
  if (!refuses) GTEST_SKIP() << "this system allows no seccomp filter";
  EXPECT_EQ(queue->overdue(), 0) << "every place is free at once";

  EXPECT_EQ(queue->run(UringCall{.descriptor = folder}, kNoDeadline), 0);
  EXPECT_TRUE(std::ifstream(directory.file("kept")).is_open());
  std::array<std::byte, 1> target = {};
  std::array<UringTransfer, 1> read;
  read[0].descriptor = pipe.reading_end();
  read[0].target = target;
  queue->run(read, kNoDeadline);
  EXPECT_EQ(target[0], std::byte{'x'}) << "nobody else has read it";
  ::close(folder);
}

TEST(UringQueue, CanBeDestroyedWhileAnOperationHangs) {
  const MonotonicClock clock;
  auto queue = open_queue(clock, 1);
  const Pipe pipe;
  std::array<std::byte, 1> target = {};
  std::array<UringTransfer, 1> hung;
  hung[0].descriptor = pipe.reading_end();
  hung[0].target = target;
  queue->run(hung, clock.now_us() + 1'000);
  queue.reset();
  EXPECT_EQ(hung[0].outcome, DiskOutcome::kOverdue);
}

}  // namespace
}  // namespace stemma
