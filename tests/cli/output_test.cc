// What every command does with its standard output.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "cli/program.h"

namespace stemma {
namespace {

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
