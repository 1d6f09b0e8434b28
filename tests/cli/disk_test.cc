// stemma inspect DIR and stemma fsck DIR on a directory that a store has left.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/clock.h"
#include "base/temp_directory.h"
#include "program.h"
#include "store/disk_store_fixture.h"

namespace stemma {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kNoDeadline = std::int64_t{1} << 60;

class DiskCommands : public ::testing::Test {
 protected:
  void SetUp() override { open_and_fill().reset(); }

  std::unique_ptr<DiskPageStore> open_and_fill() {
    auto store = DiskPageStore::open(path_, clock_, {.bytes_max = 4 << 20});
    EXPECT_TRUE(store.ok()) << to_string(store.error());
    for (const TestPage& page : make_pages(small_format(), 1, 12)) {
      (*store)->describe(page.identity().namespace_digest, "model=scribe dtype=f16");
      EXPECT_EQ(put(**store, page, kNoDeadline), PageVerdict::kDone);
    }
    return *std::move(store);
  }
  void damage() {
    std::fstream slab(path_ + "/slab-0-8192", std::ios::in | std::ios::out | std::ios::binary);
    slab.seekp(2 * 8192 + 5000);
    slab.put('!').put('?');
  }

  TempDirectory directory_;
  MonotonicClock clock_;
  std::string path_ = directory_.file("cache");
};

TEST_F(DiskCommands, InspectListsNamespaces) {
  const ProgramRun text = run_stemma("inspect " + path_);
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("12 pages"));
  EXPECT_THAT(text.out, HasSubstr("model=scribe dtype=f16"));
  const ProgramRun json = run_stemma("inspect --json " + path_);
  ASSERT_EQ(json.exit_code, 0) << json.err;
  EXPECT_EQ(json.lines()[0]["pages"], 12);
  EXPECT_EQ(json.lines()[0]["bytes"], 12 * 8192);
  EXPECT_EQ(json.lines()[0]["tier"], "disk");
  EXPECT_EQ(json.lines()[1]["summary"]["slab_files"], 1);
}

TEST_F(DiskCommands, FsckSaysWhetherAllIsWell) {
  const ProgramRun clean = run_stemma("fsck " + path_);
  EXPECT_EQ(clean.exit_code, 0) << clean.err;
  EXPECT_EQ(clean.out, "12 pages are right, 0 are not\n");
  damage();
  const ProgramRun found = run_stemma("fsck --json " + path_);
  EXPECT_EQ(found.exit_code, 1);
  EXPECT_EQ(found.lines()[0]["slot"], 2);
  EXPECT_EQ(found.lines()[1]["summary"]["bad_pages"], 1);
  EXPECT_EQ(run_stemma("fsck --repair " + path_).exit_code, 1);
  EXPECT_EQ(run_stemma("fsck " + path_).out, "11 pages are right, 0 are not\n");
}

TEST_F(DiskCommands, FsckWantsTheDirectoryForItselfAndInspectDoesNot) {
  const auto store = open_and_fill();
  const ProgramRun fsck = run_stemma("fsck " + path_);
  EXPECT_EQ(fsck.exit_code, 1);
  EXPECT_THAT(fsck.err, HasSubstr("another process uses this cache directory"));
  EXPECT_EQ(run_stemma("inspect " + path_).exit_code, 0);
}

TEST_F(DiskCommands, WhatIsNoDiskTierIsSaidInOneLine) {
  for (const std::string arguments :
       {"fsck /nonexistent", "inspect /nonexistent", "fsck models", "inspect models"}) {
    const ProgramRun run = run_stemma(arguments);
    EXPECT_EQ(run.exit_code, 1) << arguments;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  }
  EXPECT_FALSE(std::ifstream("/nonexistent").good());
}

}  // namespace
}  // namespace stemma
