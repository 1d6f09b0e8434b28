// A purge on a real redis-server: pages of the namespace go, sealed ones too; what is another's
// stays; a server that is down keeps it open. And on scripted ones: a primary that goes for good
// while it is purged leaves the rest to the one that takes its place.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/temp_directory.h"
#include "store/fake_redis.h"
#include "store/redis_fixture.h"
#include "store/redis_process.h"

namespace stemma {
namespace {

class RedisPurgeTest : public RedisFixture {
 protected:
  void SetUp() override { start({.directory = directory_.path()}); }
  // The same server again, if it is called again.
  void start(const RedisProcess::Options& options) {
    auto started = RedisProcess::start(options);
    ASSERT_TRUE(started.ok()) << to_string(started.error());
    server_ = std::make_unique<RedisProcess>(*std::move(started));
  }
  std::string cli(std::vector<std::string> words) {
    words.insert(words.begin(), {"redis-cli", "-s", server_->socket_path()});
    const auto printed = run_program(words, kLongUs);
    EXPECT_TRUE(printed.ok()) << to_string(printed.error());
    return printed.ok() ? *printed : "";
  }
  std::unique_ptr<RedisPageStore> open(const std::string& secret = "") {
    RedisPageStoreOptions options = options_for(server_->unix_url());
    options.secret = secret;
    options.breaker.backoff_us = options.breaker.backoff_us_max = 1;
    return open_store(options);
  }
  PurgeOutcome purge(RedisPageStore& store, std::uint8_t owner) {
    const NamespaceFamily family = family_of(redis_test_owner(owner));
    return store.purge({&family, 1}, deadline_us());
  }

  TempDirectory directory_;
  std::unique_ptr<RedisProcess> server_;
};

// More names than one SCAN gives.
TEST_F(RedisPurgeTest, TakesTheNamespaceAndLeavesTheOthers) {
  const auto store = open();
  const auto ours = write_owned(*store, 1, 2500);
  const auto others = write_owned(*store, 2, 30);
  const PurgeOutcome outcome = purge(*store, 1);
  EXPECT_TRUE(outcome.status.ok()) << to_string(outcome.status.error());
  EXPECT_EQ(outcome.pages, 2500);
  EXPECT_EQ(count_found(*store, ours), 0);
  EXPECT_EQ(count_found(*store, others), 30);
  EXPECT_EQ(metric(*store, "purged_pages_total"), 2500);
  write_owned(*store, 1, 5);
  EXPECT_EQ(purge(*store, 1).pages, 5) << "it begins again";
}

TEST_F(RedisPurgeTest, OfWhatLiesBehindAPageLeavesWhatLiesBefore) {
  const auto store = open();
  const auto ours = write_owned(*store, 1, 30);
  const auto others = write_owned(*store, 2, 30);
  const NamespaceFamily family = family_of(redis_test_owner(1));
  const PurgeOutcome outcome = store->purge_behind({&family, 1}, 12, deadline_us());
  EXPECT_TRUE(outcome.status.ok());
  EXPECT_EQ(outcome.pages, 18);
  EXPECT_EQ(count_found(*store, ours), 12);
  EXPECT_EQ(count_found(*store, others), 30);
}

TEST_F(RedisPurgeTest, OfAllTakesEveryPageAndNothingElse) {
  const auto store = open();
  store->describe(redis_test_owner(1), "model=a");
  write_owned(*store, 1, 10);
  EXPECT_EQ(write(*store, 0, 5), "ddddd") << "no frames at all";
  cli({"SET", "another:program", "x"});
  cli({"LPUSH", value_name(77), "x"});
  EXPECT_EQ(store->purge({}, deadline_us()).pages, 16);
  EXPECT_EQ(cli({"DBSIZE"}), "2\n") << "the description, and what is not ours";
}

TEST_F(RedisPurgeTest, WhatIsNoFrameIsNobodys) {
  const auto store = open();
  EXPECT_EQ(write(*store, 0, 5), "ddddd");
  cli({"LPUSH", value_name(77), "x"});
  const PurgeOutcome outcome = purge(*store, 1);
  EXPECT_TRUE(outcome.status.ok());
  EXPECT_EQ(outcome.pages, 0);
  EXPECT_EQ(lookup(*store, 0, 5), 5);
}

TEST_F(RedisPurgeTest, SealedPagesGoToAndThoseOfAnotherSecretStay) {
  const auto ours = open("our secret");
  const auto theirs = open("another secret");
  const auto plain = open();
  const auto our_keys = write_owned(*ours, 1, 10);
  const auto their_keys = write_owned(*theirs, 1, 10);
  const auto plain_keys = write_owned(*plain, 1, 10);
  EXPECT_EQ(purge(*ours, 1).pages, 10);
  EXPECT_EQ(count_found(*ours, our_keys), 0);
  EXPECT_EQ(plain->purge({}, deadline_us()).pages, 10);
  EXPECT_EQ(count_found(*plain, plain_keys), 0);
  EXPECT_EQ(count_found(*theirs, their_keys), 10);
}

// A server that is frozen has received them, and reads them when it goes on, each in several steps:
// what asks behind them may be answered before.
TEST_F(RedisPurgeTest, WhatWasGivenUpBeforeItDoesNotComeBehindIt) {
  for (int round = 0; round < 20; ++round) {
    const auto store = open();
    // The first purge of an engine waits for what others may have left, too.
    if (round % 2 == 0) {
      ASSERT_TRUE(purge(*store, 1).status.ok());
    }
    std::vector<PageKey> keys;
    server_->process().freeze();
    for (std::int64_t page = 0; page < 2; ++page) {
      keys.push_back(redis_test_key(page));
      PageWrite write = {keys.back(), {}};
      const auto frame = redis_owned_frame(1, page, 100'000);
      write.frame = frame;
      store->write({&write, 1}, deadline_us(5'000));
      ASSERT_EQ(write.verdict, PageVerdict::kFailed);
    }
    PurgeOutcome outcome;
    std::jthread purging([&] { outcome = purge(*store, 1); });
    while (metric(*store, "connects_total") < 3) std::this_thread::yield();
    server_->process().thaw();
    purging.join();
    ASSERT_TRUE(outcome.status.ok()) << to_string(outcome.status.error());
    ASSERT_EQ(count_found(*store, keys), 0) << round;
  }
}

TEST_F(RedisPurgeTest, BehindAWriteThatWasGivenUpPagesAreLookedForAgain) {
  const auto store = open();
  EXPECT_TRUE(store->make_removals_last(deadline_us()).ok());
  server_->process().freeze();
  EXPECT_EQ(write(*store, 0, 1, 5'000), "f");
  server_->process().thaw();
  EXPECT_FALSE(store->make_removals_last(deadline_us()).ok());
  EXPECT_EQ(read(*store, 0, 1), "d");
  EXPECT_TRUE(store->make_removals_last(deadline_us()).ok());
}

TEST_F(RedisPurgeTest, AServerThatIsDownKeepsItOpen) {
  const auto store = open();
  write_owned(*store, 1, 10);
  EXPECT_EQ(store->purge({}, clock_.now_us()).status.error().code, ErrorCode::kDeadline);
  server_->process().kill();
  EXPECT_FALSE(purge(*store, 1).status.ok());
  EXPECT_EQ(metric(*store, "purge_failures_total"), 2);
  server_.reset();
  start({.directory = directory_.path()});
  PurgeOutcome outcome;
  for (int tries = 0; tries < 1000; ++tries) {  // a breaker may be open for a microsecond
    outcome = purge(*store, 1);
    if (outcome.status.ok()) break;
  }
  EXPECT_TRUE(outcome.status.ok()) << to_string(outcome.status.error());
}

// A server that ends in the middle of a purge, and is started again with the same names: it has
// them in another order, so that the rest of the old order is not all that is left.
TEST_F(RedisFixture, APurgeBeginsAgainOnAServerThatWasStartedAnew) {
  std::atomic<int> life = 1;
  std::vector<std::string> cursors;
  FakeRedis server(FakeRedis::with_pong([&](const FakeRedis::Words& command) -> FakeRedis::Answer {
    if (command[0] == "INFO") {
      return {FakeRedis::bulk("# Server\r\nrun_id:" + std::to_string(life) + "\r\nos:x\r\n")};
    }
    if (command[0] != "SCAN") return {"-ERR unknown command\r\n"};
    cursors.push_back(command[1]);
    if (command[1] == "0") return {"*2\r\n$2\r\n17\r\n*0\r\n"};
    if (life == 1) return {"", /*close=*/true};
    return {"*2\r\n$1\r\n0\r\n*0\r\n"};
  }));
  RedisPageStoreOptions options = options_for("redis://" + server.authority());
  options.breaker.backoff_us = options.breaker.backoff_us_max = 1;
  const auto store = open_store(options);
  const auto purge = [&] { return store->purge({}, deadline_us()); };
  PurgeOutcome outcome = purge();
  EXPECT_FALSE(outcome.status.ok());
  EXPECT_EQ(outcome.pages, 0);
  EXPECT_TRUE(outcome.got_on()) << "of the first piece nothing was to go";
  outcome = purge();
  EXPECT_FALSE(outcome.status.ok()) << "it goes on, and finds the same";
  EXPECT_FALSE(outcome.got_on());
  life = 2;
  EXPECT_TRUE(purge().status.ok());
  EXPECT_EQ(cursors, (std::vector<std::string>{"0", "17", "17", "17", "0", "17"}));
}

// A server that ends when it has been asked, while another is not yet, reads from its disk what is
// gone.
TEST_F(RedisFixture, APurgeBeginsAgainWhereAServerThatWasAskedWasStartedAnew) {
  std::atomic<int> life = 1;
  std::atomic<int> scans = 0;
  std::atomic<bool> other_is_broken = true;
  std::string map;
  const auto script = [&](const FakeRedis::Words& command, bool is_first) -> FakeRedis::Answer {
    if (command[0] == "CLUSTER" && command[1] == "SLOTS") return {map};
    if (command[0] == "CLUSTER")
      return {FakeRedis::bulk("07c3 :1@2 myself,master - 0 0 4 connected 0")};
    if (command[0] == "INFO") {
      const std::string id = is_first ? std::to_string(life) : "another";
      return {FakeRedis::bulk("# Server\r\nrun_id:" + id + "\r\n")};
    }
    if (command[0] != "SCAN") return {"-ERR unknown command\r\n"};
    if (is_first) ++scans;
    if (!is_first && other_is_broken) return {"-ERR not now\r\n"};
    return {"*2\r\n$1\r\n0\r\n*0\r\n"};
  };
  FakeRedis first(FakeRedis::with_pong([&](const auto& words) { return script(words, true); }));
  FakeRedis other(FakeRedis::with_pong([&](const auto& words) { return script(words, false); }));
  const auto range = [](const std::string& slots, const FakeRedis& node) {
    return "*3\r\n" + slots + "*2\r\n" + FakeRedis::bulk("127.0.0.1") + ":" +
           std::to_string(node.port()) + "\r\n";
  };
  map = "*2\r\n" + range(":0\r\n:99\r\n", other) + range(":100\r\n:16383\r\n", first);
  const auto store = open_store(options_for("redis-cluster://" + other.authority()));
  const auto purge = [&] { return store->purge({}, deadline_us()).status.ok(); };
  EXPECT_FALSE(purge());
  EXPECT_EQ(scans, 1) << "the servers are asked from the last one on";
  life = 2;
  other_is_broken = false;
  EXPECT_FALSE(purge());
  EXPECT_EQ(scans, 1);
  EXPECT_TRUE(purge());
  EXPECT_EQ(scans, 2);
}

// Of a server that does not say in which life it is nobody knows that it was not started anew.
TEST_F(RedisFixture, AServerThatRefusesToSayInWhichLifeItIsKeepsAPurgeOpen) {
  FakeRedis server(FakeRedis::with_pong([](const FakeRedis::Words& command) -> FakeRedis::Answer {
    if (command[0] == "SCAN") return {"*2\r\n$1\r\n0\r\n*0\r\n"};
    return {"-NOPERM this user has no permissions to run the command\r\n"};
  }));
  const auto store = open_store(options_for(server.url()));
  EXPECT_FALSE(store->purge({}, deadline_us()).status.ok());
}

// Each node of a cluster is asked for its replicas, and wakes them for us.
TEST_F(RedisFixture, APurgeOfAClusterWaitsForTheReplicasOfItsNodes) {
  int waits = 0;
  std::uint16_t port = 0;
  FakeRedis node(FakeRedis::with_pong([&](const FakeRedis::Words& command) -> FakeRedis::Answer {
    if (command[0] == "CLUSTER" && command[1] == "SLOTS") {
      return {"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$0\r\n\r\n:" + std::to_string(port) + "\r\n"};
    }
    if (command[0] == "CLUSTER") return {FakeRedis::bulk("07c3 :1@2 myself - 0 0 4 connected 0")};
    if (command[0] == "WAIT") return {":" + std::to_string(waits++ / 3) + "\r\n"};
    if (command[0] == "SCAN") return {"*2\r\n$1\r\n0\r\n*0\r\n"};
    const std::string offset = waits < 3 ? "41" : "42";
    return {
        FakeRedis::bulk("# Replication\r\nconnected_slaves:1\r\nslave0:ip=10.0.0.7,port=6379,"
                        "state=online,offset=" +
                        offset + ",lag=0\r\nmaster_repl_offset:42\r\n")};
  }));
  port = node.port();
  const auto store = open_store(options_for("redis-cluster://" + node.authority()));
  const PurgeOutcome outcome = store->purge({}, deadline_us());
  EXPECT_TRUE(outcome.status.ok()) << to_string(outcome.status.error());
  EXPECT_EQ(waits, 3);
}

// A server with a replica that never has what it has.
TEST_F(RedisFixture, APurgeOfOtherPagesGoesOnFromNothing) {
  std::atomic<int> scans = 0;
  FakeRedis server(FakeRedis::with_pong([&](const FakeRedis::Words& command) -> FakeRedis::Answer {
    if (command[0] == "SCAN") ++scans;
    if (command[0] == "SCAN") return {"*2\r\n$1\r\n0\r\n*0\r\n"};
    if (command[0] == "WAIT") return {":0\r\n"};
    return {
        FakeRedis::bulk("# Replication\r\nconnected_slaves:1\r\nslave0:ip=10.0.0.7,port=6379,"
                        "state=online,offset=41,lag=0\r\nmaster_repl_offset:42\r\n")};
  }));
  const auto store = open_store(options_for(server.url()));
  const auto purge = [&](std::uint8_t owner, std::int64_t pages_before) {
    const NamespaceFamily family = family_of(redis_test_owner(owner));
    return store->purge_behind({&family, 1}, pages_before, deadline_us()).status.ok();
  };
  EXPECT_FALSE(purge(1, 0));
  EXPECT_EQ(scans, 1);
  EXPECT_FALSE(purge(2, 0));
  EXPECT_EQ(scans, 2) << "of another namespace";
  EXPECT_FALSE(purge(2, 7));
  EXPECT_EQ(scans, 3) << "of what lies behind another page";
  EXPECT_FALSE(purge(2, 7));
  EXPECT_EQ(scans, 3) << "the same";
}

TEST_F(RedisFixture, WhatCouldNotBeLookedAtOrUnlinkedKeepsAPurgeOpen) {
  std::atomic<bool> broken = true;
  FakeRedis server(FakeRedis::with_pong([&](const FakeRedis::Words& command) -> FakeRedis::Answer {
    if (command[0] == "INFO") return {FakeRedis::bulk("# Server\r\nrun_id:1\r\n")};
    if (command[0] == "SCAN") {
      return {"*2\r\n$1\r\n0\r\n*1\r\n" + FakeRedis::bulk(value_name(0))};
    }
    if (broken) return {"-ERR not now\r\n"};
    return {command[0] == "GETRANGE" ? "$-1\r\n" : ":1\r\n"};
  }));
  const auto store = open_store(options_for(server.url()));
  const NamespaceFamily family = family_of(redis_test_owner(1));
  EXPECT_FALSE(store->purge({&family, 1}, deadline_us()).status.ok());
  const PurgeOutcome outcome = store->purge({}, deadline_us());
  EXPECT_FALSE(outcome.status.ok());
  EXPECT_EQ(outcome.pages, 0);
  broken = false;
  EXPECT_TRUE(store->purge({}, deadline_us()).status.ok());
}

// What an engine left that has ended since: once, and only by questions that were answered.
TEST_F(RedisFixture, TheFirstPurgeOutlastsWhatOthersMayHaveGivenUp) {
  std::atomic<int> rounds = 0;
  std::atomic<bool> answers = false;
  FakeRedis server([&](const FakeRedis::Words& command) -> FakeRedis::Answer {
    if (command[0] == "PING" && command[1] == "stemma" && !answers) return {"", /*close=*/true};
    if (command[0] == "PING" && command[1] == "stemma") ++rounds;
    if (command[0] == "PING") return {FakeRedis::bulk(command[1])};
    if (command[0] == "SCAN") return {"*2\r\n$1\r\n0\r\n*0\r\n"};
    return {FakeRedis::bulk("# Server\r\nrun_id:1\r\n")};
  });
  RedisPageStoreOptions options = options_for(server.url());
  options.breaker.failures_to_open = 1'000'000'000;
  const auto store = open_store(options);
  EXPECT_FALSE(store->purge({}, deadline_us()).status.ok());
  answers = true;
  EXPECT_TRUE(store->purge({}, deadline_us()).status.ok());
  EXPECT_GT(rounds, 500);
  const int before = rounds;
  EXPECT_TRUE(store->purge({}, deadline_us()).status.ok());
  EXPECT_EQ(rounds, before);
}

// Two primaries, one after the other, behind a server that says which of them it is now.
class RedisPurgeFailoverTest : public RedisFixture {
 protected:
  using Words = FakeRedis::Words;
  using Answer = FakeRedis::Answer;

  RedisPurgeFailoverTest() {
    for (auto& primary : primaries_) {
      primary.emplace(FakeRedis::with_pong([this](const Words& command) { return say(command); }));
    }
  }
  // The first piece has no name and is not the last; where it goes on, the server is broken.
  Answer say(const Words& command) {
    if (command[0] == "INFO") return {FakeRedis::bulk("# Server\r\nrun_id:1\r\n")};
    if (command[0] == "ROLE") return {"*1\r\n$6\r\nmaster\r\n"};
    if (command[0] == "CLUSTER" && command[1] == "NODES") return {FakeRedis::bulk(kOwnLine)};
    if (command[0] == "CLUSTER") return {cluster_map()};
    if (command[0] == "SENTINEL") return {sentinel_answer()};
    if (command[0] != "SCAN") return {"-ERR unknown command\r\n"};
    if (now_ == 1) return {"*2\r\n$1\r\n0\r\n*0\r\n"};
    if (command[1] == "0") return {"*2\r\n$2\r\n17\r\n*0\r\n"};
    return {"", /*close=*/true};
  }
  static constexpr char kOwnLine[] =
      "07c37d 127.0.0.1:30004@31004 myself,master - 0 0 4 connected 0-16383\n";
  std::string port_now() const { return std::to_string(primaries_[at_now()]->port()); }
  std::size_t at_now() const { return static_cast<std::size_t>(now_.load()); }
  std::string sentinel_answer() const {
    return "*2\r\n" + FakeRedis::bulk("127.0.0.1") + FakeRedis::bulk(port_now());
  }
  std::string cluster_map() const {
    return "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n" + FakeRedis::bulk("127.0.0.1") + ":" + port_now() +
           "\r\n";
  }
  // Whether the purge ends, though the primary that it began on does not come back.
  bool ends_on_the_other(const std::string& scheme, const std::string& path) {
    RedisPageStoreOptions options = options_for(scheme + who_knows_.authority() + path);
    options.breaker.backoff_us = options.breaker.backoff_us_max = 1;
    const auto store = open_store(options);
    const NamespaceFamily family = family_of(redis_test_owner(1));
    const auto purge = [&] { return store->purge({&family, 1}, deadline_us()).status.ok(); };
    EXPECT_FALSE(purge());
    now_ = 1;
    primaries_[0].reset();
    for (int tries = 0; tries < 100; ++tries) {  // a breaker may be open for a microsecond
      if (purge()) return true;
    }
    return false;
  }

  std::atomic<int> now_ = 0;
  std::array<std::optional<FakeRedis>, 2> primaries_;
  FakeRedis who_knows_{FakeRedis::with_pong([this](const Words& command) { return say(command); })};
};

TEST_F(RedisPurgeFailoverTest, EndsOnThePrimaryThatSentinelsNameThen) {
  EXPECT_TRUE(ends_on_the_other("redis-sentinel://", "/pages"));
}

TEST_F(RedisPurgeFailoverTest, EndsOnThePrimaryThatTheClusterHasThen) {
  EXPECT_TRUE(ends_on_the_other("redis-cluster://", ""));
}

}  // namespace
}  // namespace stemma
