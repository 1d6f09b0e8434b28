// A draft is beside a file until it is whole, and then is that file.
#include "base/draft_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/temp_directory.h"

namespace stemma {
namespace {

namespace fs = std::filesystem;

class DraftFileTest : public ::testing::Test {
 protected:
  static std::string text_of(const std::string& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  void write(const std::string& path) {
    const DraftFile draft(path);
    std::ofstream(draft.path()) << "after";
    EXPECT_FALSE(draft.take_name());
  }
  std::ptrdiff_t files() const {
    return std::distance(fs::directory_iterator(directory_.path()), {});
  }

  const TempDirectory directory_;
  const std::string path_ = directory_.file("a");
};

TEST_F(DraftFileTest, LeavesTheFileAsItWasWhereItDoesNotTakeItsName) {
  std::ofstream(path_) << "before";
  {
    const DraftFile draft(path_);
    std::ofstream(draft.path()) << "half";
    EXPECT_EQ(text_of(path_), "before");
  }
  EXPECT_EQ(text_of(path_), "before");
  EXPECT_EQ(files(), 1);
}

TEST_F(DraftFileTest, TakesTheNameAndTheRightsOfTheFile) {
  std::ofstream(path_) << "before";
  fs::permissions(path_, fs::perms::owner_read | fs::perms::owner_write);
  write(path_);
  EXPECT_EQ(text_of(path_), "after");
  EXPECT_EQ(fs::status(path_).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(files(), 1);
}

TEST_F(DraftFileTest, OfALinkIsOfWhatItNamesThereOrNot) {
  const std::string link = directory_.file("link");
  fs::create_symlink("a", link);
  for (const bool is_there : {false, true}) {
    EXPECT_EQ(fs::exists(path_), is_there);
    write(link);
    EXPECT_TRUE(fs::is_symlink(link));
    EXPECT_EQ(text_of(path_), "after");
  }
}

TEST_F(DraftFileTest, SaysWhyItHasNoName) {
  const DraftFile draft(directory_.file("none/a"));
  EXPECT_EQ(draft.take_name(), std::errc::no_such_file_or_directory);
}

TEST_F(DraftFileTest, TakesThePlaceOfAFileAndOfNothingElse) {
  EXPECT_TRUE(is_replaceable(path_)) << "nothing has the name";
  std::ofstream(path_) << "before";
  EXPECT_TRUE(is_replaceable(path_));
  fs::create_symlink("a", directory_.file("link"));
  EXPECT_TRUE(is_replaceable(directory_.file("link")));
  EXPECT_FALSE(is_replaceable(directory_.path()));
  const std::string pipe = directory_.file("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_FALSE(is_replaceable(pipe));
}

}  // namespace
}  // namespace stemma
