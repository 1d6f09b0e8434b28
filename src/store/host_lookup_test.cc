// Looking names up: what becomes of a name where the system has no thread for it.
#include "store/host_lookup.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "base/forked_child.h"
#include "base/scarce_threads.h"

namespace stemma {
namespace {

constexpr std::int64_t kLongUs = 10'000'000;

TEST(HostLookup, WithoutAThreadItIsAnErrorAndLaterItIsTriedAgain) {
  const int said = in_forked_child([] {
    const MonotonicClock clock;
    const RedisEndpoint endpoint = {"localhost", 6379};
    HostLookup lookup;
    if (!limit_threads(0)) return 1;
    const auto refused = lookup.resolve(endpoint, clock, clock.now_us() + kLongUs);
    if (refused.ok() || refused.error().sys_errno != EAGAIN) return 2;
    if (!limit_threads(1)) return 3;
    const auto found = lookup.resolve(endpoint, clock, clock.now_us() + kLongUs);
    return found.ok() ? 0 : 4;
  });
  EXPECT_EQ(said, 0) << "-1: the process ended";
}

}  // namespace
}  // namespace stemma
