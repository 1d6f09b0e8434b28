// What every command does with its standard output.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/temp_directory.h"
#include "cli/program.h"

namespace stemma {
namespace {

// As who starts daemons may have it.
TEST(Output, ThatIsClosedIsNotWrittenToWhatIsOpenedInItsPlace) {
  const TempDirectory directory;
  const std::string disk = directory.file("disk");
  const std::string model = STEMMA_SOURCE_DIR "/models/scribe-3m";
  const ProgramRun run = run_stemma("generate --model " + model +
                                    " --prompt Hello --max-tokens 4 --disk " + disk + " <&- >&-");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(std::filesystem::file_size(disk + "/lock"), 0U);
}

// Whoever takes 2 for flags that are wrong would not try again.
TEST(Output, OnAFullDiskIsNoErrorOfUsage) {
  const std::string model = STEMMA_SOURCE_DIR "/models/scribe-3m";
  for (const char* const flag : {"--logits", "--capture"}) {
    const ProgramRun run = run_stemma("generate --prompt Hello --max-tokens 1 --model " + model +
                                      " " + flag + " /dev/full");
    EXPECT_EQ(run.exit_code, 1) << run.err;
    EXPECT_THAT(run.err, testing::HasSubstr(std::string("io: ") + flag + ": cannot write"));
  }
}

TEST(Output, ThatCannotBeWrittenIsAFailure) {
  for (const char* const command : {"--help", "--version", "replay --help"}) {
    EXPECT_EQ(run_stemma(command).exit_code, 0) << command;
    const ProgramRun full = run_stemma(std::string(command) + " >/dev/full");
    EXPECT_EQ(full.exit_code, 1) << command;
    EXPECT_THAT(full.err, testing::HasSubstr("cannot write to standard output")) << command;
  }
}

}  // namespace
}  // namespace stemma
