// Files that are written: each is one of its own, whatever it is called.
#include "cli/written_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "base/temp_directory.h"

namespace stemma {
namespace {

class WrittenFiles : public testing::Test {
 protected:
  std::string refusal(const std::string& written, const std::string& other) {
    const Status two = check_apart({.written = {{"--a", other}, {"--b", written}}});
    const Status one = check_apart({.written = {{"--b", written}}, .read = {{"--a", other}}});
    EXPECT_EQ(two.ok(), one.ok());
    if (two.ok() || one.ok()) return "";
    EXPECT_EQ(two.error().detail, one.error().detail);
    return two.error().detail;
  }

  TempDirectory directory_;
  std::string here_ = directory_.file("here");
};

TEST_F(WrittenFiles, AreNoneThatIsWrittenOrReadToo) {
  EXPECT_EQ(refusal(here_, here_), "--b: " + here_ + " is the file of --a") << "to be made";
  std::ofstream(here_) << "x";
  EXPECT_EQ(refusal(here_, here_), "--b: " + here_ + " is the file of --a");
  EXPECT_EQ(refusal(here_, directory_.file("there")), "");
  EXPECT_EQ(refusal("", ""), "");
}

TEST_F(WrittenFiles, AreNoneThatAModelIsReadFrom) {
  const auto is_free = [&](const std::string& name) {
    return check_apart({.written = {{"--a", directory_.file(name)}},
                        .read = files_of_model("--model", directory_.path())})
        .ok();
  };
  for (const char* const name : {"config.json", "tokenizer.json", "model-00001-of-2.safetensors"}) {
    EXPECT_EQ(is_free(name), name == std::string("model-00001-of-2.safetensors")) << "to be made";
    std::ofstream(directory_.file(name)) << "x";
    EXPECT_FALSE(is_free(name)) << name;
  }
  EXPECT_TRUE(is_free("answers.jsonl"));
  EXPECT_TRUE(files_of_model("--model", "").empty());
  EXPECT_FALSE(files_of_model("--model", "/nonexistent").empty()) << "known by their names";
}

TEST_F(WrittenFiles, AreTheSameUnderOtherNames) {
  EXPECT_NE(refusal(directory_.path() + "/./here", here_), "") << "to be made";
  std::ofstream(here_) << "x";
  EXPECT_NE(refusal(directory_.path() + "/./here", here_), "");
  std::filesystem::create_symlink(here_, directory_.file("link"));
  std::filesystem::create_hard_link(here_, directory_.file("other"));
  EXPECT_NE(refusal(directory_.file("link"), here_), "");
  EXPECT_NE(refusal(directory_.file("other"), here_), "");
}

TEST_F(WrittenFiles, AreTheSameBesideWhereTheProgramRuns) {
  EXPECT_NE(refusal("no_file", "./no_file"), "");
  EXPECT_NE(refusal("no_file", std::filesystem::current_path() / "no_file"), "");
}

TEST_F(WrittenFiles, OfPipesMayBeTheSame) {
  ASSERT_EQ(::mkfifo(here_.c_str(), 0600), 0);
  EXPECT_EQ(refusal(here_, here_), "");
}

}  // namespace
}  // namespace stemma
