// Files of a directory, through io_uring and through threads: bytes come and go whole, whichever of
// them the system allows.
#include "store/directory_files.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <fstream>
#include <limits>
#include <thread>

#include "base/open_files_fixture.h"
#include "base/refused_calls.h"
#include "base/temp_directory.h"
#include "store/disk_index.h"
#include "store/has_io_uring.h"

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

class DirectoryFilesTest : public ::testing::TestWithParam<DiskIo> {
 protected:
  void SetUp() override {
    if (GetParam() == DiskIo::kUring && !has_io_uring()) GTEST_SKIP() << "no io_uring is allowed";
  }
};

INSTANTIATE_TEST_SUITE_P(Each, DirectoryFilesTest,
                         ::testing::Values(DiskIo::kUring, DiskIo::kThreads), [](const auto& each) {
                           return each.param == DiskIo::kUring ? "Uring" : "Threads";
                         });

// Whoever can put a link into the directory has no other file written over or read by it.
TEST_P(DirectoryFilesTest, LinksAreNotFollowed) {
  const TempDirectory directory;
  const MonotonicClock clock;
  auto files = DirectoryFiles::open(directory.file("cache"), clock, {.io = GetParam()});
  ASSERT_TRUE(files.ok()) << to_string(files.error());
  const std::string outside = directory.file("outside");
  std::ofstream(outside) << "another program's";
  ASSERT_EQ(::symlink(outside.c_str(), directory.file("cache/index.new").c_str()), 0);
  EXPECT_FALSE((*files)->create("index.new", DiskAccess::kBuffered, kNoDeadline).ok());
  EXPECT_FALSE((*files)->open("index.new", DiskAccess::kBuffered, kNoDeadline).ok());
  std::string left;
  std::getline(std::ifstream(outside), left);
  EXPECT_EQ(left, "another program's");
}

// What an earlier life left under the name would stand behind what is written.
TEST_P(DirectoryFilesTest, AFileThatIsMadeAnewIsEmpty) {
  const TempDirectory directory;
  const MonotonicClock clock;
  auto files = DirectoryFiles::open(directory.file("cache"), clock, {.io = GetParam()});
  ASSERT_TRUE(files.ok()) << to_string(files.error());
  for (int time = 0; time < 2; ++time) {
    const auto file = (*files)->create("index.new", DiskAccess::kBuffered, kNoDeadline);
    ASSERT_TRUE(file.ok());
    EXPECT_EQ((*files)->size_bytes(*file), 0);
    const std::vector<std::byte> bytes = pattern(8192, time);
    DiskWrite write = {*file, 0, bytes};
    (*files)->write(std::span(&write, 1), kNoDeadline);
    ASSERT_EQ(write.outcome, DiskOutcome::kDone);
    (*files)->close(*file);
  }
}

TEST_P(DirectoryFilesTest, ReadsWhatItWroteInPiecesAndManyAtOnce) {
  const TempDirectory directory;
  const MonotonicClock clock;
  auto files = DirectoryFiles::open(directory.file("cache"), clock,
                                    {.io = GetParam(), .queue = {.depth = 4, .piece_bytes = 8192}});
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

TEST_P(DirectoryFilesTest, FilesAreTheOwnersAlone) {
  const TempDirectory directory;
  const MonotonicClock clock;
  auto files = DirectoryFiles::open(directory.file("cache"), clock, {.io = GetParam()});
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
TEST_P(DirectoryFilesTest, ASecondOpenerIsRefusedWithAClearMessage) {
  const TempDirectory directory;
  const MonotonicClock clock;
  auto first = DirectoryFiles::open(directory.path(), clock, {.io = GetParam()});
  ASSERT_TRUE(first.ok());
  const auto second = DirectoryFiles::open(directory.path(), clock, {.io = GetParam()});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(second.error().detail, HasSubstr("another process uses this cache directory"));
  EXPECT_TRUE(
      DirectoryFiles::open(directory.path(), clock, {.exclusive = false, .io = GetParam()}).ok());
  first->reset();
  EXPECT_TRUE(DirectoryFiles::open(directory.path(), clock, {.io = GetParam()}).ok());
}

// Fault 29.
TEST_P(DirectoryFilesTest, AReadBehindTheEndIsShortAndNothingElse) {
  const TempDirectory directory;
  const MonotonicClock clock;
  auto files = DirectoryFiles::open(directory.path(), clock, {.io = GetParam()});
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

// Whatever is opened next would have its number, and what was given up would go on there.
TEST_P(DirectoryFilesTest, ADescriptorStaysWhileAnOperationOnItMayStillGoOn) {
  const TempDirectory directory;
  const MonotonicClock clock;
  auto files = DirectoryFiles::open(directory.path(), clock, {.io = GetParam()});
  ASSERT_TRUE(files.ok());
  const std::string pipe = directory.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const auto file = (*files)->open("pipe", DiskAccess::kBuffered, kNoDeadline);
  ASSERT_TRUE(file.ok()) << to_string(file.error());
  std::vector<std::byte> bytes(4096);
  DiskRead read = {*file, 0, bytes};
  (*files)->read(DiskLane::kRead, {&read, 1}, clock.now_us() + 10'000);
  ASSERT_EQ(read.outcome, DiskOutcome::kOverdue);
  (*files)->close(*file);
  EXPECT_TRUE(is_any_open(pipe));
  {
    std::ofstream writer(pipe);
    writer << "what the read waits for";
  }
  while ((*files)->overdue(DiskLane::kRead) > 0) std::this_thread::yield();
  EXPECT_FALSE(is_any_open(pipe));
}

// Nor does a read that never ends keep what others have closed: an index that was written anew.
TEST_P(DirectoryFilesTest, AReadThatDoesNotEndKeepsNoOtherFileOpen) {
  const TempDirectory directory;
  const MonotonicClock clock;
  auto files = DirectoryFiles::open(directory.path(), clock, {.io = GetParam()});
  ASSERT_TRUE(files.ok());
  const std::string pipe = directory.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const auto hung = (*files)->open("pipe", DiskAccess::kBuffered, kNoDeadline);
  ASSERT_TRUE(hung.ok()) << to_string(hung.error());
  std::vector<std::byte> bytes(4096);
  DiskRead read = {*hung, 0, bytes};
  (*files)->read(DiskLane::kRead, {&read, 1}, clock.now_us() + 10'000);
  ASSERT_EQ(read.outcome, DiskOutcome::kOverdue);
  EXPECT_TRUE((*files)->is_held(*hung));
  DiskIndex index(**files);
  const auto write_index = [&] {
    return index.rewrite([](IndexCells&) { return false; }, kNoDeadline).ok();
  };
  ASSERT_TRUE(write_index());
  const std::int64_t before = count_open();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(write_index());
  EXPECT_EQ(count_open(), before);
  (*files)->close(*hung);
  EXPECT_TRUE(is_any_open(pipe));
  std::ofstream(pipe) << "what the read waits for";
  while ((*files)->overdue(DiskLane::kRead) > 0) std::this_thread::yield();
  EXPECT_FALSE(is_any_open(pipe));
}

TEST_P(DirectoryFilesTest, NamesAreListedRenamedAndRemoved) {
  const TempDirectory directory;
  const MonotonicClock clock;
  auto files = DirectoryFiles::open(directory.path(), clock, {.io = GetParam()});
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

TEST(DirectoryFilesIo, AFileOfWhichNothingIsToldIsListedAllTheSame) {
  const TempDirectory directory;
  const MonotonicClock clock;
  bool refuses = false;
  std::thread([&] {
    refuses = refuse_stat_of_names(EIO);
    if (!refuses) return;
    auto files = DirectoryFiles::open(directory.path(), clock, {.io = DiskIo::kThreads});
    ASSERT_TRUE(files.ok()) << to_string(files.error());
    ASSERT_TRUE((*files)->create("slab", DiskAccess::kBuffered, kNoDeadline).ok());
    const auto entries = (*files)->list();
    ASSERT_TRUE(entries.ok()) << to_string(entries.error());
    const auto found = std::ranges::find(*entries, "slab", &DiskEntry::name);
    ASSERT_NE(found, entries->end());
    EXPECT_EQ(found->bytes, std::nullopt);
  }).join();
  if (!refuses) GTEST_SKIP() << "this system allows no seccomp filter";
}

// What the usual filter of a container's system calls does.
TEST(DirectoryFilesIo, GoesThroughThreadsWhereNoRingIsAllowed) {
  const TempDirectory directory;
  const MonotonicClock clock;
  bool refuses = false;
  std::thread([&] {
    refuses = refuse_system_call(SYS_io_uring_setup, EPERM);
    if (!refuses) return;
    const auto ring = DirectoryFiles::open(directory.path(), clock, {.io = DiskIo::kUring});
    ASSERT_FALSE(ring.ok());
    EXPECT_EQ(ring.error().code, ErrorCode::kUnsupported);
    auto files = DirectoryFiles::open(directory.path(), clock);
    ASSERT_TRUE(files.ok()) << to_string(files.error());
    const auto file = (*files)->create("slab", DiskAccess::kDirect, kNoDeadline);
    ASSERT_TRUE(file.ok());
    const std::vector<std::byte> bytes = pattern(8192, 1);
    std::vector<DiskWrite> writes = {{*file, 4096, bytes}};
    (*files)->write(writes, kNoDeadline);
    EXPECT_EQ(writes[0].outcome, DiskOutcome::kDone);
    std::vector<std::byte> found(8192);
    std::vector<DiskRead> reads = {{*file, 4096, found}};
    (*files)->read(DiskLane::kRead, reads, kNoDeadline);
    EXPECT_EQ(found, bytes);
  }).join();
  if (!refuses) GTEST_SKIP() << "this system allows no seccomp filter";
}

// As NFS before 4.2 and ext3 say.
TEST(DirectoryFilesIo, AFileIsAsLongAsItShouldBeWhereNoRoomCanBeKept) {
  const TempDirectory directory;
  const MonotonicClock clock;
  bool refuses = false;
  std::thread([&] {
    refuses = refuse_system_call(SYS_fallocate, EOPNOTSUPP);
    if (!refuses) return;
    auto files = DirectoryFiles::open(directory.path(), clock, {.io = DiskIo::kThreads});
    ASSERT_TRUE(files.ok()) << to_string(files.error());
    const auto file = (*files)->create("slab", DiskAccess::kDirect, kNoDeadline);
    ASSERT_TRUE(file.ok());
    const Status allocated = (*files)->allocate(*file, 1 << 20, kNoDeadline);
    EXPECT_TRUE(allocated.ok()) << to_string(allocated.error());
    EXPECT_EQ((*files)->size_bytes(*file), 1 << 20);
    std::vector<std::byte> found(8192, std::byte{1});
    std::vector<DiskRead> reads = {{*file, 0, found}};
    (*files)->read(DiskLane::kRead, reads, kNoDeadline);
    EXPECT_EQ(reads[0].outcome, DiskOutcome::kDone);
    EXPECT_EQ(found, std::vector<std::byte>(8192));
  }).join();
  if (!refuses) GTEST_SKIP() << "this system allows no seccomp filter";
}

}  // namespace
}  // namespace stemma
