// stemma serve: how signals end it.
#include <gtest/gtest.h>

#include "server/served_program.h"

namespace stemma {
namespace {

TEST(Serve, AnEndIsTakenFromTheServerAlone) {
  ServedProgram server({});
  ASSERT_GT(server.port(), 0);
  server.send(SIGUSR1);  // by which the server tells itself that it has ended
  EXPECT_EQ(server.stop(), 0);
}

}  // namespace
}  // namespace stemma
