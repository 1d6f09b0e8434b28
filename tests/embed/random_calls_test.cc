// The embedding API under random calls: the C ABI's, and those that KvCache has beside it, in any
// order that the headers allow, and others that are to be refused. What is opened is random too:
// pools of each kind and format, caches of each eviction order, with windows, with few names of
// namespaces, and below them host memory, stores that misbehave, or a disk, with their files from
// one life to the next. EmbeddedEngine says what must hold after every call.
//
// 60 engines of 200 calls a run; 1,000 of 1,000 with STEMMA_LONG_TESTS=1. A failure names its seed.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/long_tests_fixture.h"
#include "embed/embedded_engine.h"
#include "stemma/c.h"

namespace stemma {
namespace {

constexpr std::int64_t kCallsOfALife = 120;

class RandomCalls : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { stemma_set_log(nullptr, nullptr, 3); }

  void run(std::uint64_t seed, std::int64_t calls) {
    EmbeddedEngine engine(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + " " + to_string(engine.plan()));
    for (std::int64_t i = 1; i <= calls && !HasFailure(); ++i) {
      engine.call();
      if (!HasFailure()) engine.check();
      if (!HasFailure() && i % kCallsOfALife == 0) engine.begin_anew();
      if (HasFailure()) ADD_FAILURE() << "at call " << i;
    }
    for (const auto& [what, times] : engine.tally()) tally_[what] += times;
  }

  std::map<std::string, std::int64_t> tally_;
};

TEST_F(RandomCalls, KeepWhatTheHeadersPromise) {
  const std::uint64_t seeds = long_tests() ? 1'000 : 60;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    run(seed, long_tests() ? 1'000 : 200);
    ASSERT_FALSE(HasFailure());
  }
  for (const char* const what : {"begin_hit", "fork", "adopt", "promote", "purge", "quarantine",
                                 "no_pages", "no_namespace"}) {
    EXPECT_GT(tally_[what], 0) << "it was to be met";
  }
}

}  // namespace
}  // namespace stemma
