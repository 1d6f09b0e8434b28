// What is said of a remote store's servers when it is opened.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "base/temp_directory.h"
#include "stemma/log.h"
#include "store/redis_fixture.h"
#include "store/redis_process.h"

namespace stemma {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class RedisGreetTest : public RedisFixture {
 protected:
  void SetUp() override {
    set_log_sink([this](LogLevel, std::string_view line) { lines_ += std::string(line) + "\n"; });
  }
  void TearDown() override { set_log_sink({}); }
  // What is logged of a server with these options.
  std::string greeted(const std::vector<std::string>& options, std::int64_t ttl_s = 86400) {
    auto started = RedisProcess::start({.directory = directory_.path(), .options = options});
    EXPECT_TRUE(started.ok()) << to_string(started.error());
    RedisPageStoreOptions store = options_for(started->unix_url());
    store.ttl_s = ttl_s;
    lines_.clear();
    open_store(store)->greet(deadline_us());
    return lines_;
  }

  TempDirectory directory_;
  std::string lines_;
};

TEST_F(RedisGreetTest, AServerThatMakesRoomIsToldWithWhatItMayHold) {
  const std::string lines =
      greeted({"--maxmemory", "1000000", "--maxmemory-policy", "allkeys-lru"});
  EXPECT_THAT(lines, HasSubstr("tier.redis.open"));
  EXPECT_THAT(lines, HasSubstr("room_bytes=1000000 eviction=allkeys-lru"));
  EXPECT_THAT(lines, Not(HasSubstr("no_limit")));
  EXPECT_THAT(lines, Not(HasSubstr("keeps_all")));
}

TEST_F(RedisGreetTest, OneThatMayHoldAnythingIsWarnedOf) {
  EXPECT_THAT(greeted({"--maxmemory", "0"}), HasSubstr("tier.redis.no_limit"));
}

TEST_F(RedisGreetTest, OneThatTakesNoMorePagesWhenItIsFullIsWarnedOf) {
  EXPECT_THAT(greeted({"--maxmemory", "1000000", "--maxmemory-policy", "noeviction"}),
              HasSubstr("tier.redis.keeps_all"));
}

TEST_F(RedisGreetTest, SoIsOneThatGivesUpOnlyWhatHasATimeToLiveWherePagesHaveNone) {
  const std::vector<std::string> options = {"--maxmemory", "1000000", "--maxmemory-policy",
                                            "volatile-lru"};
  EXPECT_THAT(greeted(options, /*ttl_s=*/0), HasSubstr("tier.redis.keeps_all"));
  EXPECT_THAT(greeted(options), Not(HasSubstr("keeps_all")));
}

TEST_F(RedisGreetTest, OneThatIsNotThereIsToldAndKeepsNobodyWaiting) {
  const auto store = open_store(options_for("unix:///nowhere/redis.sock"));
  store->greet(deadline_us());
  EXPECT_THAT(lines_, HasSubstr("tier.redis_failed"));
  EXPECT_THAT(lines_, Not(HasSubstr("tier.redis.open")));
  EXPECT_EQ(metric(*store, "open_breakers"), 1);
  EXPECT_EQ(lookup(*store, 0, 1), -1);
  EXPECT_EQ(metric(*store, "connect_failures_total"), 1);
}

}  // namespace
}  // namespace stemma
