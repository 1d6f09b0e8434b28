// The purge file: it says what was kept last, is one process's, and never says anything else.
#include "tier/purge_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "base/crc32c.h"
#include "base/flip_bit.h"
#include "base/forked_child.h"
#include "base/refused_calls.h"
#include "base/temp_directory.h"
#include "prefix/namespace_examples.h"

namespace stemma {
namespace {

PageKey key_of(int number) {
  PageKey key;
  key.bytes.fill(static_cast<std::uint8_t>(number));
  return key;
}

Unconfirmed example() {
  return {.host_file = true,
          .purges = {{"disk:disk", {family_of(digest_of(1)), family_of(digest_of(2))}, 7},
                     {.store = "remote:redis", .namespaces = {}}},
          .removals = {{"remote:redis", LayerGroup::kWindowed, {key_of(3), key_of(4)}}},
          .shared = {{digest_of(5), 64}}};
}

std::string with_checksum(std::string file) {
  const auto bytes = std::as_bytes(std::span(file));
  const std::uint32_t sum = crc32c(bytes.subspan(16), crc32c(bytes.first(12)));
  std::memcpy(file.data() + 12, &sum, sizeof(sum));
  return file;
}

class PurgeFileTest : public ::testing::Test {
 protected:
  std::unique_ptr<PurgeFile> open() { return PurgeFile::open(path).value(); }
  std::unique_ptr<PurgeFile> open_own() { return PurgeFile::open(path, /*is_own=*/true).value(); }
  ErrorCode refused() const {
    const auto opened = PurgeFile::open(path);
    return opened.ok() ? ErrorCode::kInternal : opened.error().code;
  }
  void keep(const Unconfirmed& unconfirmed) { EXPECT_TRUE(open()->keep(unconfirmed).ok()); }
  std::string bytes() const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Where the headers of the file and of its two copies are.
  std::vector<std::size_t> headers() const { return {0, 24, 24 + (bytes().size() - 24) / 2}; }
  // With one copy of what this one says.
  std::string of_first_version() const {
    std::string copy = bytes().substr(24, headers()[2] - 24);
    copy[8] = 1;
    return with_checksum(copy);
  }
  void write(const std::string& bytes) const { std::ofstream(path, std::ios::binary) << bytes; }

  TempDirectory directory;
  std::string path = directory.file("purges");
};

TEST_F(PurgeFileTest, ANewOneSaysNothing) {
  EXPECT_EQ(*open()->said_or_null(), Unconfirmed());
  EXPECT_EQ(*open()->said_or_null(), Unconfirmed()) << "nor one that nothing was kept in";
}

TEST_F(PurgeFileTest, SaysWhatWasKeptLast) {
  keep(example());
  EXPECT_EQ(*open()->said_or_null(), example());
  const auto file = open();
  ASSERT_TRUE(file->keep({}).ok());
  EXPECT_EQ(*file->said_or_null(), Unconfirmed());
  EXPECT_TRUE(file->keep(example()).ok());
  EXPECT_EQ(*file->said_or_null(), example());
}

TEST_F(PurgeFileTest, IsOnesAtATime) {
  auto file = open();
  EXPECT_EQ(refused(), ErrorCode::kInvalidArgument);
  ASSERT_TRUE(file->keep(example()).ok());
  EXPECT_EQ(refused(), ErrorCode::kInvalidArgument) << "nor is the new one";
  file.reset();
  EXPECT_EQ(*open()->said_or_null(), example());
}

TEST_F(PurgeFileTest, WhatCannotBeWrittenLeavesWhatItSaid) {
  const auto file = open();
  ASSERT_TRUE(file->keep(example()).ok());
  std::filesystem::create_directory(path + ".new");
  EXPECT_FALSE(file->keep({}).ok());
  EXPECT_EQ(*file->said_or_null(), example());
  EXPECT_EQ(refused(), ErrorCode::kInvalidArgument);
  std::filesystem::remove(path + ".new");
  EXPECT_TRUE(file->keep({}).ok());
}

// Before it has the name it changes nothing, and the next one can be written.
TEST_F(PurgeFileTest, WhatIsNotDurableYetDoesNotTakeItsPlace) {
  const auto file = open();
  ASSERT_TRUE(file->keep(example()).ok());
  const std::string kept = bytes();
  bool refuses = false;
  std::thread([&] {
    refuses = refuse_system_call(SYS_fsync, EIO);
    if (!refuses) return;
    EXPECT_EQ(file->keep({}).error().sys_errno, EIO);
  }).join();
  if (!refuses) GTEST_SKIP() << "this system allows no seccomp filter";
  ASSERT_NE(file->said_or_null(), nullptr);
  EXPECT_EQ(*file->said_or_null(), example());
  EXPECT_EQ(bytes(), kept);
  EXPECT_TRUE(file->keep({}).ok());
}

TEST_F(PurgeFileTest, WhatCannotTakeItsPlaceIsWrittenAgain) {
  const auto file = open();
  ASSERT_TRUE(file->keep(example()).ok());
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_FALSE(file->keep({}).ok());
  EXPECT_EQ(file->said_or_null(), nullptr);
  std::filesystem::remove(path);
  EXPECT_TRUE(file->keep(example()).ok());
  EXPECT_EQ(*file->said_or_null(), example());
}

// As where the disk is full: a child may not make a file so long.
TEST_F(PurgeFileTest, WhatWasWrittenInPartDoesNotTakeItsPlace) {
  keep({});
  const std::string kept = bytes();
  const auto keep_in_part = [&] {
    const rlimit room = {kept.size() + 1, kept.size() + 1};
    if (::setrlimit(RLIMIT_FSIZE, &room) != 0) return 1;
    std::signal(SIGXFSZ, SIG_IGN);
    const auto file = open();
    return !file->keep(example()).ok() && file->said_or_null() != nullptr ? 0 : 2;
  };
  EXPECT_EQ(in_forked_child(keep_in_part), 0);
  EXPECT_EQ(bytes(), kept);
  EXPECT_EQ(*open()->said_or_null(), Unconfirmed());
}

TEST_F(PurgeFileTest, WhatLiesThereOfAnEarlierAttemptDoesNotMatter) {
  keep(example());
  const std::string kept = bytes();
  std::ofstream(path + ".new") << std::string(100'000, 'x');
  keep(example());
  EXPECT_EQ(bytes(), kept);
}

TEST_F(PurgeFileTest, WhatALinkPointsToIsNotWrittenOver) {
  std::ofstream(directory.file("letter")) << "dear";
  std::filesystem::create_symlink(directory.file("letter"), path + ".new");
  EXPECT_FALSE(open()->keep(example()).ok());
  EXPECT_EQ(std::filesystem::file_size(directory.file("letter")), 4u);
}

// Its name is the new one's already, and after a loss of power it may be the old one's again.
TEST_F(PurgeFileTest, WhatIsNotKnownToBeDurableIsNotSaidToBeWhatItSays) {
  const auto file = open();
  ASSERT_TRUE(file->keep(example()).ok());
  bool refuses = false;
  std::thread([&] {
    refuses = refuse_opening_directories(EIO);
    if (!refuses) return;
    EXPECT_FALSE(file->keep({}).ok());
  }).join();
  if (!refuses) GTEST_SKIP() << "this system allows no seccomp filter";
  EXPECT_EQ(file->said_or_null(), nullptr);
  EXPECT_EQ(refused(), ErrorCode::kInvalidArgument) << "it is this one's still";
  EXPECT_TRUE(file->keep(example()).ok());
  ASSERT_NE(file->said_or_null(), nullptr);
  EXPECT_EQ(*file->said_or_null(), example());
}

TEST_F(PurgeFileTest, IsGivenUpThoughAChildLives) {
  auto file = open();
  beside_child([&] {
    file.reset();
    EXPECT_EQ(*open()->said_or_null(), Unconfirmed());
  });
}

TEST_F(PurgeFileTest, IsNotAChilds) {
  const auto file = open();
  EXPECT_EQ(in_forked_child([&] { return file->keep(example()).ok() ? 0 : 1; }), 0);
  EXPECT_EQ(bytes(), "");
}

TEST_F(PurgeFileTest, WhatIsNoneIsNotWrittenOver) {
  write("a letter");
  EXPECT_EQ(refused(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(bytes(), "a letter");
  std::filesystem::remove(path);
  std::filesystem::create_symlink(directory.file("letter"), path);
  EXPECT_EQ(refused(), ErrorCode::kIo);
}

TEST_F(PurgeFileTest, OneOfALaterVersionIsRefused) {
  keep(example());
  std::string later = bytes();
  for (const std::size_t header : headers()) later[header + 8] = 3;
  write(with_checksum(later));
  EXPECT_EQ(refused(), ErrorCode::kUnsupported);
}

// Wherever it is, one of the two copies says what was kept.
TEST_F(PurgeFileTest, DamageInOnePlaceCostsNothing) {
  keep(example());
  const std::string whole = bytes();
  for (std::size_t at = 0; at < whole.size(); ++at) {
    flip_bit(path, at);
    const auto file = open_own();
    ASSERT_NE(file->said_or_null(), nullptr) << at;
    EXPECT_EQ(*file->said_or_null(), example()) << at;
    write(whole);
  }
  write(whole + '\0');
  EXPECT_EQ(*open()->said_or_null(), example());
}

TEST_F(PurgeFileTest, NoDamageMakesItSayAnythingElse) {
  keep(example());
  const std::string whole = bytes();
  const std::size_t second = headers()[2];
  for (std::size_t at = 1; at < whole.size(); ++at) {
    write(whole.substr(0, at));
    EXPECT_EQ(open_own()->said_or_null() != nullptr, at >= second) << "cut off at " << at;
  }
  for (std::size_t at = 24; at < second; ++at) {
    write(whole);
    flip_bit(path, at);
    flip_bit(path, at + second - 24);
    EXPECT_EQ(open_own()->said_or_null(), nullptr) << at << " of both copies";
  }
  EXPECT_TRUE(open()->keep(example()).ok());
  EXPECT_EQ(bytes(), whole);
}

TEST_F(PurgeFileTest, OneOfTheFirstVersionSaysWhatItSaid) {
  keep(example());
  write(of_first_version());
  EXPECT_EQ(*open()->said_or_null(), example());
}

// Lengths that are not there, under the right checksum.
TEST_F(PurgeFileTest, LiesAreReadWithinTheirFile) {
  keep(example());
  const std::string whole = of_first_version();
  for (std::size_t at = 16; at < whole.size(); ++at) {
    std::string lie = whole;
    lie[at] = '\xFF';
    write(with_checksum(lie));
    const auto file = open();
    const bool same = file->said_or_null() != nullptr && *file->said_or_null() == example();
    EXPECT_EQ(same, lie == whole || (at == 24)) << at;
  }
}

// Under the right checksum, and nothing that a life could have meant.
TEST_F(PurgeFileTest, WhatCannotBeMeantIsNotSaid) {
  Unconfirmed of_no_group = example();
  of_no_group.removals[0].group = static_cast<LayerGroup>(2);
  keep(of_no_group);
  EXPECT_EQ(open()->said_or_null(), nullptr);
  Unconfirmed behind_nothing = example();
  behind_nothing.purges[0].pages_before = -1;
  keep(behind_nothing);
  EXPECT_EQ(open()->said_or_null(), nullptr);
}

}  // namespace
}  // namespace stemma
