// The file of host memory: what was written is read again, in its order; a file that is not
// finished is none; what is cut off, flipped or cannot be read costs the frames it hit; another
// model's file is refused. Faults: rows 2, 3, 16 and 29 (docs/FAULTS.md).
#include "tier/host_image_file.h"

#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "base/flip_bit.h"
#include "base/prng.h"
#include "base/refused_calls.h"
#include "base/temp_directory.h"
#include "tier/page_frame_fixture.h"

namespace stemma {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::size_t kHeaderBytes = 4096;

// Two pages fill what is written at once.
PageFormat large_format() {
  PageFormat format = small_format();
  format.layer_bytes = 1 << 20;
  return format;
}

class HostImageFileTest : public ::testing::Test {
 protected:
  // Pages 0 ... of a text of this seed.
  void write(std::uint64_t seed, std::int64_t pages, const PageFormat& format = small_format()) {
    auto writer = HostImageWriter::open(path, {.format = format, .model = model});
    ASSERT_TRUE(writer.ok()) << to_string(writer.error());
    for (std::int64_t page = 0; page < pages; ++page) {
      std::ranges::copy(TestPage(format, seed, page).frame(), (*writer)->next_frame().begin());
      ASSERT_TRUE((*writer)->keep().ok());
    }
    ASSERT_TRUE((*writer)->finish().ok());
  }
  // The ordinals that the file gives, each of which must be a whole page of the text.
  std::vector<std::int64_t> read(std::uint64_t seed, const PageFormat& format = small_format()) {
    std::vector<std::int64_t> ordinals;
    auto reader = HostImageReader::open(*files, path, {.format = format, .model = model});
    EXPECT_TRUE(reader.ok()) << to_string(reader.error());
    if (!reader.ok()) return ordinals;
    while (const auto frame = (*reader)->try_next()) {
      const TestPage page(format, seed, frame->identity.ordinal);
      EXPECT_EQ(frame->identity.key, page.key());
      EXPECT_TRUE(check_body(*frame).ok());
      ordinals.push_back(frame->identity.ordinal);
    }
    bad_frames = (*reader)->bad_frames();
    return ordinals;
  }
  Error refusal(const PageFormat& format = small_format()) {
    const auto reader = HostImageReader::open(*files, path, {.format = format, .model = model});
    EXPECT_FALSE(reader.ok());
    return reader.ok() ? Error{} : reader.error();
  }

  TempDirectory directory;
  std::string path = directory.file("host");
  NamespaceDigest model = {{5}};
  ThreadPool threads{1};
  std::unique_ptr<HostPool> pool =
      HostPool::create(
          {.pages = 2, .layers = small_format().layers, .layer_bytes = small_format().layer_bytes},
          threads)
          .value();
  PosixFiles posix;
  Files* files = &posix;
  std::int64_t bad_frames = 0;
};

TEST_F(HostImageFileTest, GivesWhatWasWrittenInItsOrder) {
  write(1, 4);
  EXPECT_THAT(read(1), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(bad_frames, 0);
  write(2, 5, large_format());
  EXPECT_THAT(read(2, large_format()), ElementsAre(0, 1, 2, 3, 4)) << "in several pieces";
  write(3, 0);
  EXPECT_THAT(read(3), IsEmpty());
  struct stat status = {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u) << "prompts are the owner's";
  EXPECT_FALSE(std::filesystem::exists(path + ".new"));
}

TEST_F(HostImageFileTest, AFileThatIsNotFinishedLeavesTheOldOneAsItIs) {
  write(1, 2);
  {
    auto writer = HostImageWriter::open(path, {.format = small_format(), .model = model});
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE((*writer)->keep().ok());
  }
  EXPECT_THAT(read(1), ElementsAre(0, 1));
  EXPECT_FALSE(std::filesystem::exists(path + ".new"));
}

// What a life that was killed has left is written over.
TEST_F(HostImageFileTest, WhatLiesThereOfAnEarlierAttemptDoesNotMatter) {
  std::ofstream(path + ".new") << std::string(100'000, 'x');
  write(1, 2);
  EXPECT_THAT(read(1), ElementsAre(0, 1));
  EXPECT_EQ(std::filesystem::file_size(path), kHeaderBytes + 2 * frame_bytes(small_format()));
}

// Whoever may read what an earlier life left of it may not read the new one.
TEST_F(HostImageFileTest, WhatLiesThereOfAnEarlierAttemptBecomesTheOwners) {
  std::ofstream(path + ".new") << "x";
  std::filesystem::permissions(path + ".new", std::filesystem::perms::all);
  write(1, 2);
  struct stat status = {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
}

TEST_F(HostImageFileTest, WhatALinkPointsToIsNotWrittenOver) {
  std::ofstream(directory.file("letter")) << "dear";
  std::filesystem::create_symlink(directory.file("letter"), path + ".new");
  EXPECT_FALSE(HostImageWriter::open(path, {.format = small_format(), .model = model}).ok());
  EXPECT_EQ(std::filesystem::file_size(directory.file("letter")), 4u);
}

// What a power cut could take back is not said to be written; the old file is then as it was.
TEST_F(HostImageFileTest, WhatIsNotKnownToBeDurableIsNotFinished) {
  write(1, 2);
  bool refuses = false;
  std::thread([&] {
    auto writer = HostImageWriter::open(path, {.format = small_format(), .model = model});
    ASSERT_TRUE(writer.ok());
    refuses = refuse_system_call(SYS_fdatasync, EIO);
    if (!refuses) return;
    EXPECT_EQ((*writer)->finish().error().sys_errno, EIO);
  }).join();
  if (!refuses) GTEST_SKIP() << "this system allows no seccomp filter";
  EXPECT_THAT(read(1), ElementsAre(0, 1));
  EXPECT_FALSE(std::filesystem::exists(path + ".new"));
  std::thread([&] {
    auto writer = HostImageWriter::open(path, {.format = small_format(), .model = model});
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(refuse_opening_directories(EIO));
    EXPECT_EQ((*writer)->finish().error().sys_errno, EIO) << "nor is its name";
  }).join();
}

// Its name is gone, and after a loss of power it may be back.
TEST_F(HostImageFileTest, WhatIsNotKnownToBeGoneForGoodIsAskedForAgain) {
  write(1, 2);
  bool refuses = false;
  std::thread([&] {
    refuses = refuse_opening_directories(EIO);
    if (!refuses) return;
    EXPECT_EQ(remove_host_image(path).error().sys_errno, EIO);
    EXPECT_EQ(remove_host_image(path).error().sys_errno, EIO) << "though there is no file by now";
  }).join();
  if (!refuses) GTEST_SKIP() << "this system allows no seccomp filter";
  EXPECT_TRUE(remove_host_image(path).ok());
}

// Where nothing says whose it is, it may be what a process that was killed had written.
TEST_F(HostImageFileTest, WhatMayBeAKilledLifesIsNotSaidToBeGone) {
  std::ofstream(path + ".new") << "x";
  bool refuses = false;
  std::thread([&] {
    refuses = refuse_system_call(SYS_flock, ENOLCK);
    if (!refuses) return;
    EXPECT_EQ(remove_host_image(path).error().sys_errno, ENOLCK);
  }).join();
  if (!refuses) GTEST_SKIP() << "this system allows no seccomp filter";
}

// Of layers with a window there is another file: both go, and an error of either is one.
TEST_F(HostImageFileTest, EveryFileIsRemovedWhateverBecomesOfTheOther) {
  const std::string impossible = directory.file(std::string(300, 'x'));  // too long for a name
  const auto image = [&](const std::string& at) { return HostImage{*pool, at, {}}; };
  const HostImage right = image(path);
  const HostImage wrong = image(impossible);
  for (const HostImages& images : {HostImages{&right, &wrong}, HostImages{&wrong, &right}}) {
    write(1, 2);
    EXPECT_FALSE(remove_host_images(images).ok());
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  write(1, 2);
  EXPECT_TRUE(remove_host_images({&right, nullptr}).ok());
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE(remove_host_images({}).ok());
}

// I8: a page that host memory has under another key, or wrong, leaves no trace in the file.
TEST_F(HostImageFileTest, AWrongPageOfHostMemoryIsNotKept) {
  const TestPage first(small_format(), 1, 0);
  const TestPage second(small_format(), 1, 1);
  const auto fill = [&](PageId id, const TestPage& page) {
    const auto frame = read_frame(page.frame());
    ASSERT_EQ(pool->write_image(id, page.key(), frame->body, frame->layer_sums),
              MoveVerdict::kDone);
  };
  fill(PageId(0), first);
  fill(PageId(1), second);
  auto writer = HostImageWriter::open(path, {.format = small_format(), .model = model});
  ASSERT_TRUE(writer.ok());
  const auto write_page = [&](PageId from, const TestPage& page) {
    return (*writer)->write_page(*pool, from, page.key(), page.identity()).value();
  };
  EXPECT_FALSE(write_page(PageId(1), first)) << "another's";
  EXPECT_TRUE(write_page(PageId(0), first));
  pool->layer_image(PageId(1), 1)[9] ^= std::byte{1};
  EXPECT_FALSE(write_page(PageId(1), second));
  fill(PageId(1), second);
  EXPECT_TRUE(write_page(PageId(1), second));
  EXPECT_TRUE((*writer)->finish().ok());
  EXPECT_THAT(read(1), ElementsAre(0, 1));
  EXPECT_EQ(bad_frames, 0);
}

TEST_F(HostImageFileTest, WhatAKilledLifeHadWrittenIsRemovedWithTheFile) {
  write(1, 2);
  std::ofstream(path + ".new") << std::string(100'000, 'x');
  ASSERT_TRUE(remove_host_image(path).ok());
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_FALSE(std::filesystem::exists(path + ".new"));
  std::ofstream(path + ".new") << "x";
  ASSERT_TRUE(remove_host_image(path).ok()) << "where there is no file yet, too";
  EXPECT_FALSE(std::filesystem::exists(path + ".new"));
}

TEST_F(HostImageFileTest, WhatIsBeingWrittenIsNotRemoved) {
  auto writer = HostImageWriter::open(path, {.format = small_format(), .model = model});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(remove_host_image(path).ok());
  EXPECT_TRUE((*writer)->finish().ok());
  EXPECT_THAT(read(1), IsEmpty());
}

TEST_F(HostImageFileTest, OneWritesAtATime) {
  const HostImageLabel label = {.format = small_format(), .model = model};
  auto first = HostImageWriter::open(path, label);
  ASSERT_TRUE(first.ok());
  const auto second = HostImageWriter::open(path, label);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.error().detail, HasSubstr("another process writes it"));
  EXPECT_TRUE((*first)->finish().ok());
  auto third = HostImageWriter::open(path, label);
  ASSERT_TRUE(third.ok());
  EXPECT_THAT(read(1), IsEmpty()) << "the finished one has its name";
  first->reset();
  EXPECT_TRUE((*third)->finish().ok()) << "and leaves the next one alone";
}

TEST_F(HostImageFileTest, WhereItCannotBeWrittenIsSaid) {
  path = directory.file("none/host");
  const auto writer = HostImageWriter::open(path, {.format = small_format(), .model = model});
  ASSERT_FALSE(writer.ok());
  EXPECT_EQ(writer.error().code, ErrorCode::kIo);
  EXPECT_THAT(writer.error().detail, HasSubstr(path));
}

TEST_F(HostImageFileTest, MayReplaceNothingAnEmptyFileAndOneOfHostMemory) {
  EXPECT_TRUE(check_host_image_path(path).ok());
  std::ofstream(path).flush();
  EXPECT_TRUE(check_host_image_path(path).ok());
  write(1, 2, large_format());
  EXPECT_TRUE(check_host_image_path(path).ok());
  constexpr std::size_t kVersionAt = 8;
  flip_bit(path, kVersionAt);
  EXPECT_TRUE(check_host_image_path(path).ok()) << "of another version";
  std::filesystem::resize_file(path, 100);
  EXPECT_TRUE(check_host_image_path(path).ok()) << "cut off";
}

TEST_F(HostImageFileTest, ReplacesNothingElse) {
  std::ofstream(path) << "{\"prompt\": \"a\"}\n";
  EXPECT_EQ(check_host_image_path(path).error().detail,
            path + ": not a file of host memory, and is not written over");
  const auto writer = HostImageWriter::open(path, {.format = small_format(), .model = model});
  EXPECT_FALSE(writer.ok()) << "nor what came there after it was looked at";
  EXPECT_FALSE(std::filesystem::exists(path + ".new"));
  EXPECT_EQ(std::filesystem::file_size(path), 16u);
  std::filesystem::resize_file(path, 3);
  EXPECT_FALSE(check_host_image_path(path).ok());
  EXPECT_EQ(check_host_image_path(directory.path()).error().detail,
            directory.path() + ": not a regular file");
  ASSERT_EQ(::mkfifo(directory.file("pipe").c_str(), 0600), 0);
  EXPECT_FALSE(check_host_image_path(directory.file("pipe")).ok());
  std::filesystem::create_symlink("/dev/null", directory.file("link"));
  EXPECT_FALSE(check_host_image_path(directory.file("link")).ok());
}

TEST_F(HostImageFileTest, WhatLiesBesideItIsNotWrittenOverUnlessAKilledLifeLeftIt) {
  std::ofstream(path + ".new") << "somebody's";
  EXPECT_EQ(check_host_image_path(path).error().detail,
            path + ".new: not a file of host memory, and is not written over");
  write(1, 2);
  std::filesystem::rename(path, path + ".new");
  EXPECT_TRUE(check_host_image_path(path).ok());
  std::ofstream(path + ".new") << std::string(8192, '\0');
  EXPECT_TRUE(check_host_image_path(path).ok()) << "it had room, and lost its bytes";
}

TEST_F(HostImageFileTest, ItsDirectoryIsOneThatCanBeWritten) {
  EXPECT_EQ(check_host_image_path(directory.file("none/host")).error().detail,
            directory.file("none") + ": cannot be written");
  std::ofstream(path) << "x";
  EXPECT_FALSE(check_host_image_path(path + "/host").ok());
}

TEST_F(HostImageFileTest, WhatIsCutOffCostsItsFrameAlone) {
  write(1, 4);
  const std::size_t frame = frame_bytes(small_format());
  std::filesystem::resize_file(path, kHeaderBytes + 3 * frame + 100);
  EXPECT_THAT(read(1), ElementsAre(0, 1, 2));
  EXPECT_EQ(bad_frames, 1);
  std::filesystem::resize_file(path, kHeaderBytes + 2 * frame);
  EXPECT_THAT(read(1), ElementsAre(0, 1));
  EXPECT_EQ(bad_frames, 0);
  std::filesystem::resize_file(path, 100);
  EXPECT_EQ(refusal().code, ErrorCode::kCorrupt);
}

TEST_F(HostImageFileTest, AFlippedHeaderCostsItsFrameAlone) {
  write(1, 4);
  const std::size_t frame = frame_bytes(small_format());
  flip_bit(path, kHeaderBytes + frame + 90);
  EXPECT_THAT(read(1), ElementsAre(0, 2, 3));
  EXPECT_EQ(bad_frames, 1);
  flip_bit(path, 20);
  EXPECT_EQ(refusal().code, ErrorCode::kCorrupt);
  flip_bit(path, 20);
  flip_bit(path, 0);
  EXPECT_THAT(refusal().detail, HasSubstr("not a file of host memory"));
}

TEST_F(HostImageFileTest, AFileOfALaterVersionIsUnsupportedAndNotCorrupt) {
  write(1, 2);
  const auto set_version = [&](char version) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(8);
    file.put(version);
  };
  set_version(2);
  EXPECT_EQ(refusal().code, ErrorCode::kUnsupported);
  EXPECT_THAT(refusal().detail, HasSubstr("of a later version"));
  set_version(0);
  EXPECT_EQ(refusal().code, ErrorCode::kCorrupt);
}

TEST_F(HostImageFileTest, AnotherModelsOrFormatsPagesAreRefused) {
  EXPECT_EQ(refusal().code, ErrorCode::kNotFound);
  std::ofstream(path).flush();
  EXPECT_EQ(refusal().code, ErrorCode::kNotFound) << "an empty file, which may be named, has none";
  write(1, 2);
  EXPECT_EQ(refusal(large_format()).code, ErrorCode::kUnsupported);
  model.bytes[31] ^= 1;
  EXPECT_EQ(refusal().code, ErrorCode::kUnsupported);
  EXPECT_THAT(refusal().detail, HasSubstr("another model or format"));
}

// The same size of a frame, and another meaning.
TEST_F(HostImageFileTest, AFrameOfAnotherFormatIsPassedOver) {
  write(1, 2);
  PageFormat other = small_format();
  other.dtype = DType::kBF16;
  EXPECT_THAT(read(1, other), IsEmpty());
  EXPECT_EQ(bad_frames, 2);
}

// A disk that cannot read one place of a file. What lies before it may have come by then.
class SpoiltFiles final : public Files {
 public:
  explicit SpoiltFiles(std::int64_t offset_bytes) : offset_bytes_(offset_bytes) {}
  Result<std::unique_ptr<ReadableFile>> open(const std::string& path) override {
    STEMMA_ASSIGN_OR_RETURN(auto inner, posix_.open(path));
    return std::unique_ptr<ReadableFile>(new File(std::move(inner), offset_bytes_));
  }

 private:
  class File final : public ReadableFile {
   public:
    File(std::unique_ptr<ReadableFile> inner, std::int64_t offset_bytes)
        : inner_(std::move(inner)), spoilt_(offset_bytes) {}
    const std::string& path() const override { return inner_->path(); }
    std::int64_t size_bytes() const override { return inner_->size_bytes(); }
    Status read_exact(std::int64_t offset_bytes, std::span<std::byte> target) const override {
      const bool hit = offset_bytes <= spoilt_ && spoilt_ < offset_bytes + std::ssize(target);
      if (!hit) return inner_->read_exact(offset_bytes, target);
      const auto before = target.first(static_cast<std::size_t>(spoilt_ - offset_bytes));
      STEMMA_RETURN_IF_ERROR(inner_->read_exact(offset_bytes, before));
      return Error{ErrorCode::kIo, "spoilt", EIO};
    }

   private:
    std::unique_ptr<ReadableFile> inner_;
    std::int64_t spoilt_;
  };

  PosixFiles posix_;
  std::int64_t offset_bytes_;
};

TEST_F(HostImageFileTest, APlaceThatCannotBeReadCostsItsFrameAlone) {
  write(1, 6);
  const auto frame = static_cast<std::int64_t>(frame_bytes(small_format()));
  SpoiltFiles spoilt(static_cast<std::int64_t>(kHeaderBytes) + 2 * frame + 5000);
  files = &spoilt;
  EXPECT_THAT(read(1), ElementsAre(0, 1, 3, 4, 5));
  EXPECT_EQ(bad_frames, 1);
}

// Frames that were given before may be asked for again, whatever has failed meanwhile.
TEST_F(HostImageFileTest, WhatAFailedReadLeftIsNotTakenForTheFramesThatWereThere) {
  write(1, 4, large_format());
  const auto frame = static_cast<std::int64_t>(frame_bytes(large_format()));
  SpoiltFiles spoilt(static_cast<std::int64_t>(kHeaderBytes) + 3 * frame + 5000);
  const auto reader = HostImageReader::open(spoilt, path, {large_format(), model});
  ASSERT_TRUE(reader.ok()) << to_string(reader.error());
  for (std::int64_t page = 0; page < 3; ++page) {
    EXPECT_EQ((*reader)->try_next()->identity.ordinal, page);
  }
  EXPECT_FALSE((*reader)->try_next().has_value());
  const auto again = (*reader)->try_read(0);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->identity.ordinal, 0);
  EXPECT_TRUE(check_body(*again).ok());
}

TEST_F(HostImageFileTest, NoFlippedBitOfAHeaderIsRead) {
  const std::uint64_t seed = 20261125;
  SCOPED_TRACE(seed);
  Prng prng(seed);
  write(1, 3);
  for (int i = 0; i < 300; ++i) {
    const auto at = static_cast<std::size_t>(prng.below(2 * kFrameAlignment));
    flip_bit(path, at);
    const auto reader = HostImageReader::open(posix, path, {small_format(), model});
    const bool in_file_header = at < kHeaderBytes;
    ASSERT_EQ(reader.ok(), !in_file_header) << at;
    if (reader.ok()) {
      const auto first = (*reader)->try_next();
      ASSERT_TRUE(first.has_value()) << at;
      EXPECT_EQ(first->identity.ordinal, 1) << at;
    }
    flip_bit(path, at);
  }
}

// As where it is mounted by itself. Whoever runs the tests, the child may not write the directory.
class FixedHostImage : public HostImageFileTest {
 protected:
  void SetUp() override {
    write(1, 3);
    fs::permissions(path, fs::perms::all);
  }
  void TearDown() override { fs::permissions(directory.path(), fs::perms::owner_all); }

  // What comes of removing it: 0, or the error of the system.
  void expect_removal(
      int sys_errno, const std::function<bool()>& first = [] { return true; }) {
    fs::permissions(directory.path(), fs::perms(0555));
    const auto remove_as_nobody = [&] {
      const bool dropped = ::geteuid() != 0 || ::setuid(65534) == 0;
      if (!first()) ::_exit(sys_errno);  // this system allows no seccomp filter
      if (!dropped || ::unlink(path.c_str()) == 0) ::_exit(255);
      const Status removed = remove_host_image(path);
      ::_exit(removed.ok() ? 0 : removed.error().sys_errno);
    };
    EXPECT_EXIT(remove_as_nobody(), ::testing::ExitedWithCode(sys_errno), "");
  }
};

TEST_F(FixedHostImage, ThatCannotBeRemovedIsEmptied) {
  expect_removal(0);
  EXPECT_TRUE(fs::exists(path));
  EXPECT_EQ(fs::file_size(path), 0u);
}

TEST_F(FixedHostImage, IsNotSaidToBeEmptyBeforeThatIsDurable) {
  expect_removal(EACCES, [] { return refuse_system_call(SYS_fsync, EIO); });
}

TEST_F(FixedHostImage, ThatIsALinkIsNoFileToBeEmptied) {
  const std::string letter = directory.file("letter");
  fs::rename(path, letter);
  fs::create_symlink(letter, path);
  const auto size_bytes = fs::file_size(letter);
  expect_removal(EACCES);
  EXPECT_EQ(fs::file_size(letter), size_bytes);
}

}  // namespace
}  // namespace stemma
