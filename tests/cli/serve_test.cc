// stemma serve: how signals end it, and with what it does not begin.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "cli/program.h"
#include "server/served_program.h"

namespace stemma {
namespace {

TEST(Serve, AnEndIsTakenFromTheServerAlone) {
  ServedProgram server({});
  ASSERT_GT(server.port(), 0);
  server.send(SIGUSR1);  // by which the server tells itself that it has ended
  EXPECT_EQ(server.stop(), 0);
}

// What somebody typed for a reason never means the same as nothing.
TEST(Serve, NoFlagIsPassedOver) {
  const std::string license = std::string(STEMMA_SOURCE_DIR) + "/LICENSE";
  const std::pair<std::string, std::string> cases[] = {
      {"--api-keys ''", "--api-keys: is empty"},
      {"--api-keys=", "--api-keys: is empty"},
      {"--api-keys= --deterministic", "--api-keys: is empty"},
      {"--model ''", "--model: is empty"},
      {"--shared-prefixes ''", "--shared-prefixes: is empty"},
      {"--events ''", "--events: is empty"},
      {"--remote redis://127.0.0.1:1 --remote-secret ''", "--remote-secret: is empty"},
      {"--remote-secret " + license, "--remote-secret requires --remote"},
      {"--disk-bytes 1GiB", "--disk-bytes requires --disk"},
      {"--events-form maps", "--events-form requires --events"},
      {"--tier-codec foo", "--tier-codec must be plain, int8 or int4 (got foo)"},
      {"--host-layout foo", "--host-layout: "},
      {"--windowed-share 2", "--windowed-share must be above 0 and at most 1"},
      {"--adapters-from /nonexistent", "--adapters-from: /nonexistent is no directory"},
      {"--adapters-from " + license, "--adapters-from: " + license + " is no directory"},
      {"--drain-s nan", "--drain-s: nan is no finite number"}};
  for (const auto& [flags, line] : cases) {
    const ProgramRun run = run_stemma("serve --port 0 " + flags, "timeout 60");
    EXPECT_EQ(run.exit_code, 2) << flags << ": " << run.err;
    EXPECT_THAT(run.err, testing::HasSubstr(line)) << flags;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  }
}

}  // namespace
}  // namespace stemma
