// RedisPageStore on a cluster of three real nodes: pages lie on all of them, slots move while pages
// are read, a node dies; and with real sentinels: a failover.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "base/temp_directory.h"
#include "store/cluster_slots.h"
#include "store/redis_fixture.h"
#include "store/redis_process.h"

namespace stemma {
namespace {

class RedisServersTest : public RedisFixture {
 protected:
  // Server number i, at port(i), with `options`.
  void start(std::size_t i, const std::vector<std::string>& options) {
    auto started = RedisProcess::start({.directory = directory_.path(),
                                        .name = "redis" + std::to_string(i),
                                        .port = ports_[i],
                                        .options = options});
    ASSERT_TRUE(started.ok()) << to_string(started.error());
    servers_[i].emplace(std::move(started).value());
  }
  std::string port(std::size_t i) const { return std::to_string(ports_[i]); }
  std::string authority(std::size_t i) const { return "127.0.0.1:" + port(i); }

  std::string run(std::vector<std::string> words) {
    words.insert(words.begin(), "redis-cli");
    const auto printed = run_program(words, kLongUs);
    EXPECT_TRUE(printed.ok()) << to_string(printed.error());
    return printed.ok() ? *printed : "";
  }
  std::string cli(std::size_t i, std::vector<std::string> words) {
    words.insert(words.begin(), {"-p", port(i)});
    return run(words);
  }

  TempDirectory directory_;
  std::vector<std::uint16_t> ports_;
  std::vector<std::optional<RedisProcess>> servers_;
};

class RedisClusterTest : public RedisServersTest {
 protected:
  static constexpr std::size_t kNodes = 3;

  void SetUp() override {
    auto ports = free_ports(2 * kNodes);
    ASSERT_TRUE(ports.ok());
    ports_ = *ports;
    servers_.resize(kNodes);
    std::vector<std::string> words = {"--cluster", "create"};
    for (std::size_t i = 0; i < kNodes; ++i) {
      const std::string name = "nodes" + std::to_string(i) + ".conf";
      start(i, {"--cluster-enabled", "yes", "--cluster-config-file", name, "--cluster-port",
                port(kNodes + i), "--cluster-node-timeout", "2000",
                "--cluster-require-full-coverage", "no"});
      ASSERT_TRUE(servers_[i].has_value());
      words.push_back(authority(i));
    }
    words.insert(words.end(), {"--cluster-replicas", "0", "--cluster-yes"});
    const std::string created = run(words);
    ASSERT_NE(created.find("All 16384 slots covered"), std::string::npos) << created;
    for (std::size_t i = 0; i < kNodes; ++i) {
      // Each node learns by itself that all slots are taken; a question a try, no waiting.
      int tries = 5000;
      while (cli(i, {"CLUSTER", "INFO"}).find("cluster_state:ok") == std::string::npos) {
        ASSERT_GT(--tries, 0);
      }
    }
  }

  std::unique_ptr<RedisPageStore> open() {
    RedisPageStoreOptions options =
        options_for("redis-cluster://" + authority(0) + "," + authority(1));
    options.breaker.backoff_us = options.breaker.backoff_us_max = 1;
    return open_store(options);
  }
  std::string node_id(std::size_t i) {
    std::string id = cli(i, {"CLUSTER", "MYID"});
    return id.substr(0, id.find('\n'));
  }
  // Which node says that it holds the page.
  std::size_t holder(std::int64_t page) {
    for (std::size_t i = 0; i < kNodes; ++i) {
      const std::string found = cli(i, {"EXISTS", value_name(page)});
      if (found == "1\n") return i;
    }
    ADD_FAILURE() << "no node has page " << page;
    return 0;
  }
};

TEST_F(RedisClusterTest, PagesLieOnAllNodesAndKeepTheirPlaces) {
  const auto store = open();
  EXPECT_EQ(write(*store, 0, 300), std::string(300, 'd'));
  for (std::size_t i = 0; i < kNodes; ++i) EXPECT_GT(std::stoi(cli(i, {"DBSIZE"})), 50);
  EXPECT_EQ(lookup(*store, 0, 301), 300);
  EXPECT_EQ(read(*store, 0, 301), std::string(300, 'd') + "m");
  EXPECT_EQ(metric(*store, "redirects_total"), 0) << "the map says where";
  EXPECT_EQ(metric(*store, "topology_refreshes_total"), 2) << "a reader's and a writer's";
  remove(*store, 7, redis_test_frame(7, frame_bytes_));
  EXPECT_EQ(lookup(*store, 0, 300), 7);
}

// A slot on its way: pages that have left are asked for at its new home (ASK), the others here;
// then it has arrived (MOVED), and the map is asked for anew.
TEST_F(RedisClusterTest, ASlotMovesWhileItsPagesAreRead) {
  const auto store = open();
  ASSERT_EQ(write(*store, 0, 100), std::string(100, 'd'));
  const std::size_t from = holder(42);
  const std::size_t to = (from + 1) % kNodes;
  const std::string slot = std::to_string(redis_slot(value_name(42)));
  cli(to, {"CLUSTER", "SETSLOT", slot, "IMPORTING", node_id(from)});
  cli(from, {"CLUSTER", "SETSLOT", slot, "MIGRATING", node_id(to)});
  EXPECT_EQ(read(*store, 0, 100), std::string(100, 'd')) << "not gone yet";
  EXPECT_EQ(metric(*store, "redirects_total"), 0);
  cli(from, {"MIGRATE", "127.0.0.1", port(to), value_name(42), "0", "10000"});
  EXPECT_EQ(read(*store, 0, 100), std::string(100, 'd'));
  EXPECT_EQ(metric(*store, "redirects_total"), 1) << "ASK";
  EXPECT_EQ(lookup(*store, 0, 100), 100);
  remove(*store, 42, redis_test_frame(42, frame_bytes_));
  EXPECT_EQ(write(*store, 42, 43), "d") << "goes to the new home";
  EXPECT_GE(metric(*store, "redirects_total"), 3);
  for (const std::size_t node : {to, from}) {
    cli(node, {"CLUSTER", "SETSLOT", slot, "NODE", node_id(to)});
  }
  const std::int64_t before = metric(*store, "redirects_total");
  EXPECT_EQ(read(*store, 0, 100), std::string(100, 'd'));
  EXPECT_EQ(metric(*store, "redirects_total"), before + 1) << "MOVED";
  EXPECT_EQ(read(*store, 0, 100), std::string(100, 'd'));
  EXPECT_EQ(metric(*store, "redirects_total"), before + 1) << "learned";
  EXPECT_GT(metric(*store, "topology_refreshes_total"), 2);
}

TEST_F(RedisClusterTest, ADeadNodeTakesOnlyItsOwnPages) {
  const auto store = open();
  ASSERT_EQ(write(*store, 0, 100), std::string(100, 'd'));
  const std::size_t dead = holder(0);
  std::string expected(100, 'd');
  for (std::int64_t page = 0; page < 100; ++page) {
    const std::string name = value_name(page);
    if (cli(dead, {"EXISTS", name}) == "1\n") expected[static_cast<std::size_t>(page)] = 'f';
  }
  servers_[dead]->process().kill();
  EXPECT_EQ(read(*store, 0, 100), expected) << "its reader asks another node for the map";
  EXPECT_EQ(read(*store, 0, 100), expected);
  EXPECT_EQ(lookup(*store, 0, 100), -1) << "nothing is known of the first";
}

// Its names are asked of each node. Behind a slot that moves it looks again.
TEST_F(RedisClusterTest, APurgeAsksEveryNode) {
  const auto store = open();
  const auto pages = write_owned(*store, 1, 100);
  const auto others = write_owned(*store, 2, 100);
  EXPECT_EQ(store->purge({}, 0).status.error().code, ErrorCode::kDeadline);
  const NamespaceFamily owner = family_of(redis_test_owner(1));
  const PurgeOutcome outcome = store->purge({&owner, 1}, deadline_us());
  EXPECT_TRUE(outcome.status.ok()) << to_string(outcome.status.error());
  EXPECT_EQ(outcome.pages, 100);
  EXPECT_EQ(count_found(*store, pages), 0);
  EXPECT_EQ(count_found(*store, others), 100);
  servers_[0]->process().kill();
  EXPECT_FALSE(store->purge({}, deadline_us()).status.ok()) << "nobody knows what it has";
}

// Names may have gone where the scan has been already, and those are not on any map.
TEST_F(RedisClusterTest, APurgeIsNotDoneWhileASlotMoves) {
  const auto store = open();
  const auto pages = write_owned(*store, 1, 100);
  const NamespaceFamily owner = family_of(redis_test_owner(1));
  ASSERT_EQ(write(*store, 0, 1), "d");
  const std::string slot = std::to_string(redis_slot(value_name(0)));
  const std::size_t from = holder(0);
  const std::size_t to = (from + 1) % kNodes;
  cli(to, {"CLUSTER", "SETSLOT", slot, "IMPORTING", node_id(from)});
  cli(from, {"CLUSTER", "SETSLOT", slot, "MIGRATING", node_id(to)});
  const PurgeOutcome moving = store->purge({&owner, 1}, deadline_us());
  EXPECT_FALSE(moving.status.ok());
  EXPECT_EQ(moving.pages, 100) << "what it found is gone all the same";
  for (const std::size_t node : {to, from}) {
    cli(node, {"CLUSTER", "SETSLOT", slot, "NODE", node_id(to)});
  }
  EXPECT_TRUE(store->purge({&owner, 1}, deadline_us()).status.ok());
  EXPECT_EQ(count_found(*store, pages), 0);
}

// A node that the others were told to forget keeps what it has, and may meet them again.
TEST_F(RedisClusterTest, APurgeIsNotDoneWhileANodeIsForgotten) {
  const auto store = open();
  write_owned(*store, 1, 100);
  const std::string forgotten = node_id(2);
  for (std::size_t i = 0; i < 2; ++i) cli(i, {"CLUSTER", "FORGET", forgotten});
  EXPECT_FALSE(store->purge({}, deadline_us()).status.ok());
  EXPECT_NE(cli(2, {"DBSIZE"}), "0\n");
}

// The cluster says `?` of a node that is to be called by its hostname, and has none.
TEST_F(RedisClusterTest, APurgeIsNotDoneWhileANodeHasNoName) {
  const auto store = open();
  write_owned(*store, 1, 100);
  for (std::size_t i = 0; i < kNodes; ++i) {
    if (i != 2) cli(i, {"CONFIG", "SET", "cluster-announce-hostname", "localhost"});
    cli(i, {"CONFIG", "SET", "cluster-preferred-endpoint-type", "hostname"});
  }
  EXPECT_FALSE(store->purge({}, deadline_us()).status.ok());
  EXPECT_NE(cli(2, {"DBSIZE"}), "0\n");
}

// A primary, and its replica.
class RedisReplicaTest : public RedisServersTest {
 protected:
  void SetUp() override {
    auto ports = free_ports(3);
    ASSERT_TRUE(ports.ok());
    ports_ = *ports;
    servers_.resize(2);
    start(0, {"--repl-diskless-sync-delay", "0"});
    start(1, {"--replicaof", "127.0.0.1", port(0), "--repl-diskless-load", "swapdb"});
    ASSERT_TRUE(servers_[1].has_value());
    // Said when the replica has asked for what follows the first copy.
    const std::string attached = "Synchronization with replica 127.0.0.1:" + port(1) + " succeeded";
    const Status status = servers_[0]->process().wait_for(attached, kLongUs);
    ASSERT_TRUE(status.ok()) << to_string(status.error());
  }
  // Until the replica has so many values.
  void wait_for_replica(const std::string& values) {
    int tries = 5000;
    while (cli(1, {"DBSIZE"}) != values + "\n") ASSERT_GT(--tries, 0);
  }
};

// What was removed, its replica has not removed yet, and would have again if it took its place.
TEST_F(RedisReplicaTest, APurgeIsNotDoneBeforeTheReplicaHasIt) {
  const auto store = open_store(options_for("redis://" + authority(0)));
  write_owned(*store, 1, 50);
  wait_for_replica("50");
  servers_[1]->process().freeze();
  PurgeOutcome outcome = store->purge({}, deadline_us());
  EXPECT_FALSE(outcome.status.ok());
  EXPECT_EQ(outcome.pages, 50);
  EXPECT_EQ(cli(0, {"DBSIZE"}), "0\n");
  outcome = store->purge({}, deadline_us());
  EXPECT_FALSE(outcome.status.ok());
  EXPECT_FALSE(outcome.got_on()) << "it need not be asked again at once";
  write_owned(*open_store(options_for("redis://" + authority(0))), 2, 1);
  servers_[1]->process().thaw();
  outcome = store->purge({}, deadline_us());
  EXPECT_TRUE(outcome.status.ok()) << to_string(outcome.status.error());
  EXPECT_EQ(outcome.pages, 1) << "another engine's, stored while it waited";
  EXPECT_EQ(cli(1, {"DBSIZE"}), "0\n");
}

// By a clock that stands still: however slow the machine is, a tenth of a second is left.
TEST_F(RedisReplicaTest, ACallerInAHurryDoesNotWaitForIt) {
  const auto was_asked_to_wait = [this] {
    return cli(0, {"INFO", "commandstats"}).find("cmdstat_wait:") != std::string::npos;
  };
  FakeClock clock;
  auto store = RedisPageStore::open(options_for("redis://" + authority(0)), clock);
  ASSERT_TRUE(store.ok());
  servers_[1]->process().freeze();
  ASSERT_EQ(write(**store, 0, 1), "d");
  EXPECT_FALSE((*store)->purge({}, clock.now_us() + 100'000).status.ok());
  EXPECT_FALSE(was_asked_to_wait());
  EXPECT_EQ(metric(**store, "missed_deadlines_total"), 0) << "the connection stays";
  EXPECT_FALSE((*store)->purge({}, clock.now_us() + kLongUs).status.ok());
  EXPECT_TRUE(was_asked_to_wait()) << "who has time for it";
}

class RedisSentinelTest : public RedisReplicaTest {
 protected:
  void SetUp() override {
    RedisReplicaTest::SetUp();
    if (!HasFatalFailure()) start_sentinel();
  }
  void start_sentinel() {
    const std::string config = directory_.file("sentinel.conf");
    std::FILE* const file = std::fopen(config.c_str(), "w");
    ASSERT_NE(file, nullptr);
    std::fputs(("sentinel monitor pages 127.0.0.1 " + port(0) + " 1\n" +
                "sentinel down-after-milliseconds pages 1000\n")
                   .c_str(),
               file);
    ASSERT_EQ(std::fclose(file), 0);
    const std::vector<std::string> words = {"redis-server", config,  "--sentinel",
                                            "--port",       port(2), "--bind",
                                            "127.0.0.1",    "--dir", directory_.path()};
    auto started = ChildProcess::start(words);
    ASSERT_TRUE(started.ok());
    sentinel_.emplace(std::move(started).value());
    const Status found = sentinel_->wait_for("+slave slave", kLongUs);
    ASSERT_TRUE(found.ok()) << to_string(found.error());
  }
  std::unique_ptr<RedisPageStore> open() {
    RedisPageStoreOptions options = options_for("redis-sentinel://" + authority(2) + "/pages");
    options.breaker.backoff_us = options.breaker.backoff_us_max = 1;
    return open_store(options);
  }

  std::optional<ChildProcess> sentinel_;
};

TEST_F(RedisSentinelTest, AFailoverInTheMiddleKeepsWhatWasReplicated) {
  const auto store = open();
  ASSERT_EQ(write(*store, 0, 50), std::string(50, 'd'));
  ASSERT_EQ(read(*store, 0, 50), std::string(50, 'd'));
  wait_for_replica("50");
  int tries = 5000;
  // The sentinel must have heard from the replica before it chooses it.
  while (cli(2, {"SENTINEL", "FAILOVER", "pages"}).find("OK") == std::string::npos) {
    ASSERT_GT(--tries, 0);
  }
  bool is_over = false;
  for (int round = 0; round < 100'000 && !is_over; ++round) {
    const std::string letters = read(*store, 0, 50) + write(*store, 0, 50);
    ASSERT_EQ(letters.find_first_not_of("dmfr"), std::string::npos);
    is_over =
        cli(2, {"SENTINEL", "GET-MASTER-ADDR-BY-NAME", "pages"}).find(port(1)) != std::string::npos;
  }
  ASSERT_TRUE(is_over);
  servers_[0]->process().kill();  // whoever still talks to the old primary notices
  read(*store, 0, 1);
  EXPECT_EQ(read(*store, 0, 50), std::string(50, 'd')) << "from the new primary";
  write(*store, 50, 51);
  EXPECT_EQ(write(*store, 50, 60), std::string(10, 'd'));
  EXPECT_EQ(read(*store, 0, 60), std::string(60, 'd'));
  EXPECT_EQ(cli(1, {"DBSIZE"}), "60\n");
}

TEST_F(RedisSentinelTest, WritesThatMeetAReplicaGoToThePrimary) {
  const auto store = open();
  ASSERT_EQ(write(*store, 0, 1), "d");
  // The two change places behind everybody's back, connections stay.
  ASSERT_EQ(cli(1, {"REPLICAOF", "NO", "ONE"}), "OK\n");
  ASSERT_EQ(cli(0, {"REPLICAOF", "127.0.0.1", port(1)}), "OK\n");
  cli(2, {"SENTINEL", "REMOVE", "pages"});
  cli(2, {"SENTINEL", "MONITOR", "pages", "127.0.0.1", port(1), "1"});
  EXPECT_EQ(write(*store, 1, 3), "dd");
  EXPECT_GT(metric(*store, "redirects_total"), 0);
  EXPECT_EQ(cli(1, {"EXISTS", value_name(1), value_name(2)}), "2\n");
}

TEST_F(RedisSentinelTest, ARemovalLastsWhenTheReplicaHasIt) {
  const auto store = open();
  ASSERT_EQ(write(*store, 0, 2), "dd");
  wait_for_replica("2");
  servers_[1]->process().freeze();
  remove(*store, 1, redis_test_frame(1, frame_bytes_));
  EXPECT_EQ(read(*store, 0, 2), "dm");
  EXPECT_FALSE(store->make_removals_last(deadline_us()).ok());
  servers_[1]->process().thaw();
  EXPECT_TRUE(store->make_removals_last(deadline_us()).ok());
  EXPECT_EQ(cli(1, {"EXISTS", value_name(0), value_name(1)}), "1\n");
}

// What the one did not have says nothing of the other.
TEST_F(RedisSentinelTest, ARemovalDoesNotLastOnAPrimaryThatWasNotAsked) {
  const auto store = open();
  EXPECT_EQ(read(*store, 0, 1), "m");
  ASSERT_EQ(cli(1, {"REPLICAOF", "NO", "ONE"}), "OK\n");
  cli(2, {"SENTINEL", "REMOVE", "pages"});
  cli(2, {"SENTINEL", "MONITOR", "pages", "127.0.0.1", port(1), "1"});
  EXPECT_FALSE(store->make_removals_last(deadline_us()).ok());
  EXPECT_EQ(read(*store, 0, 1), "m");
  EXPECT_TRUE(store->make_removals_last(deadline_us()).ok());
}

TEST_F(RedisSentinelTest, AnUnknownNameIsAMiss) {
  const auto store = open_store(options_for("redis-sentinel://" + authority(2) + "/other"));
  EXPECT_EQ(read(*store, 0, 2), "ff");
  EXPECT_EQ(write(*store, 0, 2), "ff");
  EXPECT_FALSE(store->make_removals_last(deadline_us()).ok());
}

}  // namespace
}  // namespace stemma
