// File: exact reads, and the errors of files that are missing, short, too large or not files.
#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/faulty_files.h"
#include "base/temp_directory.h"

namespace stemma {
namespace {

class FileTest : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(directory_.file(name), std::ios::binary) << text;
    return directory_.file(name);
  }

  TempDirectory directory_;
  PosixFiles files_;
};

TEST_F(FileTest, ReadsAPieceFromTheMiddle) {
  const auto file = files_.open(write("a", "0123456789"));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->size_bytes(), 10);
  std::array<std::byte, 4> piece = {};
  ASSERT_TRUE((*file)->read_exact(3, piece).ok());
  EXPECT_EQ(piece[0], std::byte{'3'});
  EXPECT_EQ(piece[3], std::byte{'6'});
}

TEST_F(FileTest, AReadBeyondTheEndIsCorruptAndNamesTheFile) {
  const std::string path = write("a", "0123456789");
  const auto file = files_.open(path);
  std::array<std::byte, 4> piece = {};
  const Status status = (*file)->read_exact(8, piece);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(status.error().detail, path + ": ends at byte 10, 2 bytes before it should");
}

TEST_F(FileTest, AFileThatShrinksWhileOpenIsAnError) {
  const std::string path = write("a", std::string(100, 'x'));
  const auto file = files_.open(path);
  std::filesystem::resize_file(path, 50);
  std::array<std::byte, 100> piece = {};
  EXPECT_EQ((*file)->read_exact(0, piece).error().code, ErrorCode::kCorrupt);
}

TEST_F(FileTest, AMissingFileIsNotFoundWithErrno) {
  const auto file = files_.open(directory_.file("none"));
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(file.error().sys_errno, ENOENT);
  EXPECT_NE(file.error().detail.find("/none: cannot open"), std::string::npos);
}

TEST_F(FileTest, OnlyRegularFilesAreRead) {
  EXPECT_EQ(files_.open(directory_.path()).error().code, ErrorCode::kInvalidArgument);
  const std::string fifo = directory_.file("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(files_.open(fifo).error().code, ErrorCode::kInvalidArgument);  // and it does not wait
}

TEST_F(FileTest, ReadFileHonoursItsLimit) {
  const std::string path = write("a", "0123456789");
  EXPECT_EQ(*read_file(files_, path, 10), "0123456789");
  const auto refused = read_file(files_, path, 9);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kTooLarge);
  EXPECT_EQ(*read_file(files_, write("empty", ""), 0), "");
}

TEST_F(FileTest, OnlyAMissingFileIsNoFile) {
  EXPECT_EQ(*read_file_if_exists(files_, directory_.file("none"), 10), std::nullopt);
  EXPECT_EQ(*read_file_if_exists(files_, write("a", "0123456789"), 10), "0123456789");
  EXPECT_EQ(read_file_if_exists(files_, directory_.file("a"), 9).error().code,
            ErrorCode::kTooLarge);
  EXPECT_FALSE(read_file_if_exists(files_, directory_.path(), 10).ok());
}

TEST_F(FileTest, JoinsPathsWithOneSlash) {
  EXPECT_EQ(join_path("a", "b"), "a/b");
  EXPECT_EQ(join_path("a/", "b"), "a/b");
  EXPECT_EQ(join_path("", "b"), "b");
}

TEST_F(FileTest, EachFailedOperationIsReported) {
  const std::string path = write("a", "0123456789");
  std::int64_t fail_at = 0;
  for (;; ++fail_at) {
    FaultyFiles faulty(files_, fail_at);
    const auto text = read_file(faulty, path, 100);
    if (!faulty.failed()) {
      EXPECT_TRUE(text.ok());
      break;
    }
    ASSERT_FALSE(text.ok());
    EXPECT_EQ(text.error().sys_errno, EIO);
  }
  EXPECT_EQ(fail_at, 2);  // open and read
}

}  // namespace
}  // namespace stemma
