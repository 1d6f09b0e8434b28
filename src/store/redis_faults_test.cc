// RedisPageStore against servers that are slow, mad or not there: a scripted server says the wrong
// thing at every byte, and whatever it says, a page is right or a miss, the connection is dropped,
// and the next call is answered again.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "base/prng.h"
#include "store/cluster_slots.h"
#include "store/fake_redis.h"
#include "store/frame_seal.h"
#include "store/redis_fixture.h"

namespace stemma {
namespace {

constexpr std::int64_t kPages = 3;
using Words = FakeRedis::Words;
using Answer = FakeRedis::Answer;

class RedisFaultsTest : public RedisFixture {
 protected:
  RedisFaultsTest() { frame_bytes_ = 48; }

  // What a server with pages [0, kPages) says to a command.
  std::string right_reply(const Words& command) const {
    if (command[0] == "TOUCH") return page_of(command[1]) >= 0 ? ":1\r\n" : ":0\r\n";
    if (command[0] == "SET") return "+OK\r\n";
    if (command[0] == "EVAL") return ":1\r\n";
    if (command[0] != "GET") return "-ERR unknown command\r\n";
    const std::int64_t page = page_of(command[1]);
    return page < 0 ? "$-1\r\n" : FakeRedis::bulk(value_of(page));
  }
  std::string value_of(std::int64_t page) const {
    const std::vector<std::byte> frame = redis_test_frame(page, frame_bytes_);
    std::string value(reinterpret_cast<const char*>(frame.data()), frame.size());
    if (secret_.empty()) return value;
    const FrameTag tag = FrameSeal(secret_).tag_of(redis_test_key(page), frame);
    return value + std::string(reinterpret_cast<const char*>(tag.data()), tag.size());
  }
  static std::int64_t page_of(const std::string& name) {
    for (std::int64_t page = 0; page < kPages; ++page) {
      if (name.ends_with(to_hex(redis_test_key(page).bytes))) return page;
    }
    return -1;
  }
  std::string right_replies() const {
    std::string all;
    for (std::int64_t page = 0; page < kPages; ++page) all += FakeRedis::bulk(value_of(page));
    return all;
  }

  RedisPageStoreOptions patient_options(const FakeRedis& server) const {
    RedisPageStoreOptions options = options_for(server.url());
    options.breaker.failures_to_open = 1'000'000'000;
    options.secret = secret_;
    return options;
  }

  std::string secret_;
};

// Says `replies` at the first GET and nothing at the others, if a test has set them.
class ScriptedRedis {
 public:
  // What it does after that: close the connection, say nothing more, or answer PING as always.
  enum class Then : std::uint8_t { kClose, kSilence, kPong };

  explicit ScriptedRedis(std::function<std::string(const Words&)> right)
      : right_(std::move(right)), server_([this](const Words& command) { return say(command); }) {}
  FakeRedis& server() { return server_; }

  void say_next(std::string replies, Then then) {
    const std::lock_guard lock(mutex_);
    replies_ = std::move(replies);
    then_ = then;
    is_scripted_ = true;
    is_first_ = true;
  }
  void say_right() {
    const std::lock_guard lock(mutex_);
    is_scripted_ = false;
  }

 private:
  Answer say(const Words& command) {
    const std::lock_guard lock(mutex_);
    const bool is_ping = command[0] == "PING";
    if (is_ping && is_scripted_ && then_ == Then::kSilence) return {};
    if (is_ping) return {FakeRedis::bulk(command[1])};
    if (!is_scripted_ || command[0] != "GET") return {right_(command)};
    if (!is_first_) return {};
    is_first_ = false;
    return {replies_, then_ == Then::kClose};
  }

  std::function<std::string(const Words&)> right_;
  std::mutex mutex_;
  std::string replies_;
  Then then_ = Then::kPong;
  bool is_scripted_ = false;
  bool is_first_ = false;
  FakeRedis server_;
};

using Then = ScriptedRedis::Then;

// Its time ends between the two.
TEST_F(RedisFaultsTest, AValueThatWasThereAndHasGoneIsNotStored) {
  FakeRedis server(FakeRedis::with_pong([](const Words& command) -> Answer {
    if (command[0] == "SET") return {"$-1\r\n"};
    constexpr const char* kAnswers[] = {":1\r\n", ":0\r\n", "-ERR nobody knows\r\n"};
    return {kAnswers[page_of(command[1])]};
  }));
  const auto store = open_store(patient_options(server));
  EXPECT_EQ(write(*store, 0, kPages), "dff");
  EXPECT_EQ(metric(*store, "written_pages_total"), 0);
  EXPECT_EQ(metric(*store, "write_failed_pages_total"), 2);
}

TEST_F(RedisFaultsTest, RepliesCutAtEveryByteThenClosed) {
  ScriptedRedis script([this](const Words& command) { return right_reply(command); });
  const auto store = open_store(patient_options(script.server()));
  const std::string whole = right_replies();
  const std::size_t reply_bytes = whole.size() / kPages;
  for (std::size_t cut = 0; cut < whole.size(); ++cut) {
    script.say_next(whole.substr(0, cut), Then::kClose);
    std::string expected(kPages, 'f');
    expected.replace(0, cut / reply_bytes, cut / reply_bytes, 'd');
    EXPECT_EQ(read(*store, 0, kPages), expected) << cut;
    script.say_right();
    ASSERT_EQ(read(*store, 0, kPages), "ddd") << cut;
  }
  EXPECT_EQ(metric(*store, "lost_connections_total"), static_cast<std::int64_t>(whole.size()));
}

TEST_F(RedisFaultsTest, RepliesCutAtEveryByteThenSilent) {
  ScriptedRedis script([this](const Words& command) { return right_reply(command); });
  const auto store = open_store(patient_options(script.server()));
  const std::string whole = right_replies();
  const std::size_t reply_bytes = whole.size() / kPages;
  for (std::size_t cut = 0; cut < whole.size(); ++cut) {
    script.say_next(whole.substr(0, cut), Then::kSilence);
    const std::string letters = read(*store, 0, kPages, 2'000);
    EXPECT_EQ(letters.find('m'), std::string::npos);
    EXPECT_GE(letters.find('f'), std::size_t{0});
    EXPECT_EQ(letters.find_first_not_of('f', cut / reply_bytes), std::string::npos) << cut;
    script.say_right();
    // The rest of the old reply must not be taken for the first of the new ones.
    ASSERT_EQ(read(*store, 0, kPages), "ddd") << cut;
  }
  EXPECT_GT(metric(*store, "missed_deadlines_total"), 0);
}

TEST_F(RedisFaultsTest, WhatIsNoReplyDropsTheConnection) {
  ScriptedRedis script([this](const Words& command) { return right_reply(command); });
  const auto store = open_store(patient_options(script.server()));
  const std::string right = FakeRedis::bulk(value_of(0));
  for (const std::string bad :
       {"$-2\r\n", "$9223372036854775807\r\n", "$99999999999999999999\r\n", "$49\r\n", "$x\r\n",
        "+OK\r\n", ":1\r\n", "*1\r\n:1\r\n", "*99999999\r\n", "\r\n", "hello\r\n", "%1\r\n",
        "HTTP/1.1 400 Bad Request\r\n\r\n"}) {
    script.say_next(right + bad + FakeRedis::bulk(value_of(2)), Then::kPong);
    const std::int64_t before = script.server().connections();
    const std::string letters = read(*store, 0, kPages, 50'000);
    // A value that is too long is known to be no page; of what follows it nothing is known.
    EXPECT_TRUE(letters == "dff" || letters == "dmf") << bad << letters;
    script.say_right();
    EXPECT_EQ(read(*store, 0, kPages), "ddd") << bad;
    EXPECT_GT(script.server().connections(), before) << bad;
  }
}

TEST_F(RedisFaultsTest, OneReplyTooManyMakesAllOfThemDoubtful) {
  ScriptedRedis script([this](const Words& command) { return right_reply(command); });
  const auto store = open_store(patient_options(script.server()));
  script.say_next(FakeRedis::bulk(value_of(0)) + right_replies(), Then::kPong);
  EXPECT_EQ(read(*store, 0, 1), "f");
  script.say_right();
  EXPECT_EQ(read(*store, 0, kPages), "ddd");
  EXPECT_EQ(script.server().connections(), 2);
}

// What comes in the place of the answer to the PING says that the replies are not ours.
TEST_F(RedisFaultsTest, AReplyInThePlaceOfTheLastOneMakesAllOfThemDoubtful) {
  ScriptedRedis script([this](const Words& command) { return right_reply(command); });
  const auto store = open_store(patient_options(script.server()));
  script.say_next(FakeRedis::bulk(value_of(0)) + FakeRedis::bulk(value_of(1)), Then::kSilence);
  EXPECT_EQ(read(*store, 0, 1), "f");
  EXPECT_EQ(metric(*store, "protocol_errors_total"), 1);
}

TEST_F(RedisFaultsTest, AnErrorInTheMiddleOfAPipelineKeepsThePlaces) {
  ScriptedRedis script([this](const Words& command) { return right_reply(command); });
  const auto store = open_store(patient_options(script.server()));
  script.say_next(FakeRedis::bulk(value_of(0)) + "-ERR no\r\n" + FakeRedis::bulk(value_of(2)),
                  Then::kPong);
  EXPECT_EQ(read(*store, 0, kPages), "dfd");
  script.say_right();
  EXPECT_EQ(read(*store, 0, kPages), "ddd");
  EXPECT_EQ(script.server().connections(), 1) << "an error is a reply like others";
}

// Bits flipped anywhere in what the server says, lengths included; values sealed.
TEST_F(RedisFaultsTest, AFlippedBitIsNeverServed) {
  constexpr std::uint64_t kSeed = 81;
  SCOPED_TRACE(kSeed);
  Prng prng(kSeed);
  secret_ = "secret";
  ScriptedRedis script([this](const Words& command) { return right_reply(command); });
  const auto store = open_store(patient_options(script.server()));
  const std::string whole = right_replies();
  for (int round = 0; round < 2000; ++round) {
    std::string flipped = whole;
    const auto bit =
        static_cast<std::size_t>(prng.below(static_cast<std::int64_t>(8 * whole.size())));
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    script.say_next(flipped, Then::kPong);
    const std::string letters = read(*store, 0, kPages, 100'000);  // compares what is read
    EXPECT_NE(letters, "ddd") << "bit " << bit;
  }
  script.say_right();
  EXPECT_EQ(read(*store, 0, kPages), "ddd");
}

TEST_F(RedisFaultsTest, AnotherPagesValueIsNeverServed) {
  secret_ = "secret";
  ScriptedRedis script([this](const Words& command) { return right_reply(command); });
  const auto store = open_store(patient_options(script.server()));
  script.say_next(
      FakeRedis::bulk(value_of(1)) + FakeRedis::bulk(value_of(0)) + FakeRedis::bulk(value_of(2)),
      Then::kPong);
  EXPECT_EQ(read(*store, 0, kPages), "mmd");
}

TEST_F(RedisFaultsTest, WhatServersSayInsteadOfPages) {
  std::atomic<const char*> error = "";
  FakeRedis server([&](const Words&) { return Answer{error.load()}; });
  RedisPageStoreOptions options = patient_options(server);
  const auto store = open_store(options);
  struct Case {
    const char* error;
    const char* read;
    const char* written;
  };
  for (const Case& c :
       {Case{"-LOADING Redis is loading the dataset in memory\r\n", "f", "f"},
        Case{"-MOVED 1 127.0.0.1:1\r\n", "f", "f"}, Case{"-OOM command not allowed\r\n", "f", "r"},
        Case{"-READONLY You can't write against a read only replica.\r\n", "f", "r"},
        Case{"-MISCONF errors writing to disk\r\n", "f", "r"},
        Case{"-CLUSTERDOWN The cluster is down\r\n", "f", "f"},
        Case{"-TRYAGAIN Multiple keys request\r\n", "f", "f"},
        Case{"-NOAUTH Authentication required.\r\n", "f", "f"}}) {
    error = c.error;
    EXPECT_EQ(read(*store, 0, 1), c.read) << c.error;
    EXPECT_EQ(write(*store, 0, 1), c.written) << c.error;
    EXPECT_EQ(lookup(*store, 0, 1), -1) << c.error;
  }
  EXPECT_EQ(metric(*store, "redirects_total"), 0) << "one server has nobody to send us to";
}

TEST_F(RedisFaultsTest, AFullServerIsNotSentEveryPageAgain) {
  std::atomic<const char*> answer = "-OOM command not allowed\r\n";
  FakeRedis server(FakeRedis::with_pong([&](const Words&) { return Answer{answer.load()}; }));
  RedisPageStoreOptions options = patient_options(server);
  const auto asks_again = open_store(options);
  options.full_pause_us = kLongUs;
  const auto rests = open_store(options);
  for (const auto* store : {&asks_again, &rests}) EXPECT_EQ(write(**store, 0, 3), "rrr");
  const std::int64_t commands = server.commands();
  EXPECT_EQ(write(*rests, 0, 3), "rrr");
  EXPECT_EQ(server.commands(), commands);
  EXPECT_EQ(metric(*rests, "refused_pages_total"), 6);
  answer = "+OK\r\n";
  EXPECT_EQ(write(*asks_again, 0, 3), "ddd") << "its pause is over";
}

TEST_F(RedisFaultsTest, AServerThatTakesSomePagesIsNotFull) {
  std::atomic<std::int64_t> asked = 0;
  FakeRedis server(FakeRedis::with_pong([&](const Words&) {
    return Answer{++asked % 3 == 0 ? "+OK\r\n" : "-OOM command not allowed\r\n"};
  }));
  RedisPageStoreOptions options = patient_options(server);
  options.full_pause_us = kLongUs;
  const auto store = open_store(options);
  EXPECT_EQ(write(*store, 0, 3), "rrd");
  EXPECT_EQ(write(*store, 0, 3), "rrd");
}

TEST_F(RedisFaultsTest, AServerThatLoadsOpensTheBreaker) {
  FakeRedis server([](const Words&) { return Answer{"-LOADING\r\n"}; });
  const auto store = open_store(options_for(server.url()));
  for (int call = 0; call < 5; ++call) EXPECT_EQ(read(*store, 0, 1), "f");
  EXPECT_EQ(server.commands(), 2 * 3) << "with a PING each";
  EXPECT_EQ(metric(*store, "breaker_openings_total"), 1);
  EXPECT_EQ(metric(*store, "breaker_refusals_total"), 2);
}

class RedisRedirectTest : public RedisFaultsTest {
 protected:
  // A cluster of one node, as it describes itself.
  static std::string slots_of(const FakeRedis& server) {
    return "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n" + FakeRedis::bulk("127.0.0.1") + ":" +
           std::to_string(server.port()) + "\r\n";
  }
  RedisPageStoreOptions cluster_options(const FakeRedis& server) {
    return options_for("redis-cluster://" + server.authority());
  }
};

// As after years of moving slots to and fro: no two that follow each other are on one server.
TEST_F(RedisRedirectTest, SlotsMayLieScattered) {
  std::atomic<const std::string*> map = nullptr;
  FakeRedis server(FakeRedis::with_pong([&](const Words& command) -> Answer {
    return command[0] == "CLUSTER" ? Answer{*map} : Answer{"$-1\r\n"};
  }));
  const auto node = [&](const char* id) {
    return "*4\r\n" + FakeRedis::bulk("127.0.0.1") + ":" + std::to_string(server.port()) + "\r\n" +
           FakeRedis::bulk(std::string(38, '0') + id) + "*0\r\n";
  };
  const std::string nodes = node("01") + node("02");
  std::string scattered = "*" + std::to_string(kRedisSlots) + "\r\n";
  for (std::size_t slot = 0; slot < kRedisSlots; ++slot) {
    const std::string number = ":" + std::to_string(slot) + "\r\n";
    scattered += "*4\r\n" + number + number + nodes;
  }
  map = &scattered;
  EXPECT_EQ(read(*open_store(cluster_options(server)), 0, 3), "mmm");
}

TEST_F(RedisRedirectTest, RedirectsThatLoopEnd) {
  for (const std::string kind : {"MOVED", "ASK"}) {
    std::atomic<FakeRedis*> self = nullptr;
    FakeRedis server(FakeRedis::with_pong([&](const Words& command) -> Answer {
      if (command[0] == "CLUSTER") return {slots_of(*self)};
      if (command[0] == "ASKING") return {"+OK\r\n"};
      return {"-" + kind + " 1 :" + std::to_string(self.load()->port()) + "\r\n"};
    }));
    self = &server;
    const auto store = open_store(cluster_options(server));
    EXPECT_EQ(read(*store, 0, 2), "ff");
    EXPECT_LE(server.commands(), 40);
    EXPECT_EQ(write(*store, 0, 1), "f");
  }
}

TEST_F(RedisRedirectTest, RedirectsToNowhereAreMisses) {
  std::atomic<FakeRedis*> self = nullptr;
  std::atomic<const char*> where = "";
  FakeRedis server(FakeRedis::with_pong([&](const Words& command) -> Answer {
    if (command[0] == "CLUSTER") return {slots_of(*self)};
    return {std::string("-MOVED ") + where.load() + "\r\n"};
  }));
  self = &server;
  for (const char* text : {"", "1", "1 127.0.0.1", "x 127.0.0.1:1", "99999 127.0.0.1:1",
                           "1 127.0.0.1:0", "1 ?:1", "1 127.0.0.1:1", "1 a b:1"}) {
    where = text;
    const auto store = open_store(cluster_options(server));
    EXPECT_EQ(read(*store, 0, 1), "f") << text;
    EXPECT_EQ(lookup(*store, 0, 1), -1) << text;
  }
}

TEST_F(RedisRedirectTest, MapsThatAreNoneAreMisses) {
  std::atomic<const char*> map = "";
  FakeRedis server(FakeRedis::with_pong([&](const Words&) { return Answer{map.load()}; }));
  for (const char* text :
       {"*0\r\n", "*-1\r\n", "-ERR This instance has cluster support disabled\r\n", "*1\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\nh\r\n:1\r\n",
        "*1\r\n*3\r\n:5\r\n:4\r\n*2\r\n$1\r\nh\r\n:1\r\n",
        "*1\r\n*3\r\n:-1\r\n:4\r\n*2\r\n$1\r\nh\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:4\r\n*2\r\n$1\r\nh\r\n:70000\r\n",
        "*1\r\n*3\r\n:0\r\n:4\r\n*1\r\n$1\r\nh\r\n", "+OK\r\n"}) {
    map = text;
    EXPECT_EQ(read(*open_store(cluster_options(server)), 0, 1), "f") << text;
  }
}

// A cluster that is being made, or has lost a node: who holds a slot is seen when somebody does.
TEST_F(RedisRedirectTest, SlotsThatNobodyHadAreAskedForAgain) {
  std::atomic<FakeRedis*> self = nullptr;
  std::atomic<bool> complete = false;
  FakeRedis server(FakeRedis::with_pong([&](const Words& command) -> Answer {
    if (command[0] != "CLUSTER") return {"$-1\r\n"};
    std::string map = slots_of(*self);
    if (!complete) map.replace(map.find("16383"), 5, "0");
    return {map};
  }));
  self = &server;
  const auto store = open_store(cluster_options(server));
  ASSERT_NE(redis_slot(value_name(0)), 0);
  EXPECT_EQ(read(*store, 0, 1), "f");
  complete = true;
  EXPECT_EQ(read(*store, 0, 1), "m");
}

// Of a server that sentinels take for the primary and that is none nothing is read.
TEST_F(RedisRedirectTest, AReplicaThatSentinelsNameIsAMiss) {
  std::atomic<FakeRedis*> self = nullptr;
  std::atomic<const char*> role = "$5\r\nslave\r\n";
  FakeRedis server(FakeRedis::with_pong([&](const Words& command) -> Answer {
    if (command[0] == "ROLE") return {std::string("*1\r\n") + role.load()};
    if (command[0] != "SENTINEL") return {"$-1\r\n"};
    return {"*2\r\n" + FakeRedis::bulk("localhost") +
            FakeRedis::bulk(std::to_string(self.load()->port()))};
  }));
  self = &server;
  RedisPageStoreOptions options = options_for("redis-sentinel://" + server.authority() + "/pages");
  options.breaker.backoff_us = options.breaker.backoff_us_max = 1;
  const auto store = open_store(options);
  EXPECT_EQ(read(*store, 0, 1), "f");
  role = "$6\r\nmaster\r\n";
  EXPECT_EQ(read(*store, 0, 1), "m");
}

TEST_F(RedisRedirectTest, ANodeThatKnowsOfNoneIsPassedOver) {
  FakeRedis alone(FakeRedis::with_pong([](const Words&) { return Answer{"*0\r\n"}; }));
  std::atomic<FakeRedis*> self = nullptr;
  FakeRedis server(FakeRedis::with_pong([&](const Words& command) -> Answer {
    return {command[0] == "CLUSTER" ? slots_of(*self) : "$-1\r\n"};
  }));
  self = &server;
  const auto store =
      open_store(options_for("redis-cluster://" + alone.authority() + "," + server.authority()));
  EXPECT_EQ(read(*store, 0, 1), "m");
}

// A port at which connections are never made: its queue is full, and the system drops the rest.
class BlackHole {
 public:
  BlackHole() {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size_bytes = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    descriptors_.push_back(::socket(AF_INET, SOCK_STREAM, 0));
    EXPECT_EQ(::bind(descriptors_[0], any, size_bytes), 0);
    EXPECT_EQ(::listen(descriptors_[0], 0), 0);
    EXPECT_EQ(::getsockname(descriptors_[0], any, &size_bytes), 0);
    port_ = ntohs(address.sin_port);
    for (int i = 0; i < 4; ++i) {
      descriptors_.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
      static_cast<void>(::connect(descriptors_.back(), any, size_bytes));
    }
  }
  ~BlackHole() {
    for (const int descriptor : descriptors_) ::close(descriptor);
  }
  BlackHole(const BlackHole&) = delete;
  BlackHole& operator=(const BlackHole&) = delete;
  std::string url() const { return "redis://127.0.0.1:" + std::to_string(port_); }

 private:
  std::vector<int> descriptors_;
  std::uint16_t port_ = 0;
};

TEST_F(RedisFaultsTest, ABlackHoleCostsOneConnectTimeoutThenNothing) {
  const BlackHole hole;
  RedisPageStoreOptions options = options_for(hole.url());
  options.connect_us_max = 30'000;
  options.breaker.backoff_us = options.breaker.backoff_us_max = 3600LL * 1'000'000;
  const auto store = open_store(options);
  const auto took_us = [&] {
    const std::int64_t start_us = clock_.now_us();
    EXPECT_EQ(read(*store, 0, 3), "fff");
    return clock_.now_us() - start_us;
  };
  EXPECT_GE(took_us(), 30'000);
  std::vector<std::int64_t> calls_us;
  for (int call = 0; call < 1000; ++call) calls_us.push_back(took_us());
  std::nth_element(calls_us.begin(), calls_us.begin() + 500, calls_us.end());
  EXPECT_LT(calls_us[500], 270) << "a call waits for nothing, whoever else has the processor";
  EXPECT_EQ(metric(*store, "connect_failures_total"), 1);
  EXPECT_EQ(metric(*store, "breaker_refusals_total"), 3000);
}

TEST_F(RedisFaultsTest, ACallerInAHurryDoesNotTakeTheServerOut) {
  const BlackHole hole;
  RedisPageStoreOptions options = options_for(hole.url());
  const auto store = open_store(options);
  EXPECT_EQ(read(*store, 0, 1, 1'000), "f");
  EXPECT_EQ(read(*store, 0, 1, 0), "f") << "without time nothing is asked";
  EXPECT_EQ(metric(*store, "open_breakers"), 0);
  EXPECT_EQ(metric(*store, "connect_failures_total"), 1);
}

TEST_F(RedisFaultsTest, APortThatAcceptsAndIsSilentOpensTheBreakerAfterDeadlinesInARow) {
  FakeRedis server([](const Words&) { return Answer(); });
  RedisPageStoreOptions options = options_for(server.url());
  options.breaker.backoff_us = options.breaker.backoff_us_max = kLongUs;  // no probe in between
  const auto store = open_store(options);
  for (int call = 0; call < 5; ++call) EXPECT_EQ(read(*store, 0, 1, 50'000), "f");
  EXPECT_EQ(metric(*store, "missed_deadlines_total"), 3);
  EXPECT_EQ(metric(*store, "breaker_refusals_total"), 2);
  const PageKey key = redis_test_key(0);
  const auto late = store->lookup({&key, 1}, clock_.now_us() - 1);
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, ErrorCode::kDeadline);
}

TEST_F(RedisFaultsTest, EveryCallHasTheLimitOfTheStore) {
  FakeRedis server([](const Words&) { return Answer(); });
  RedisPageStoreOptions options = patient_options(server);
  options.operation_us_max = 20'000;
  const auto store = open_store(options);
  const std::int64_t start_us = clock_.now_us();
  EXPECT_EQ(read(*store, 0, 1) + write(*store, 0, 1), "ff");
  EXPECT_EQ(lookup(*store, 0, 1), -1);
  EXPECT_EQ(renew(*store, 0, 1), 1) << "nobody knows that it is lost";
  remove(*store, 0, redis_test_frame(0, frame_bytes_));
  EXPECT_FALSE(store->make_removals_last(deadline_us()).ok());
  EXPECT_FALSE(store->purge({}, deadline_us()).status.ok());
  EXPECT_LT(clock_.now_us() - start_us, kLongUs) << "none waited until its caller's deadline";
  EXPECT_EQ(metric(*store, "remove_failed_pages_total"), 1);
}

TEST_F(RedisFaultsTest, RefusedThenThereAgain) {
  std::string url;
  {
    FakeRedis gone([](const Words&) { return Answer(); });
    url = gone.url();
  }
  FakeClock clock;
  clock.advance_us(1);
  auto opened = RedisPageStore::open(options_for(url), clock);
  ASSERT_TRUE(opened.ok());
  std::vector<std::byte> frame(frame_bytes_);
  PageRead page = {redis_test_key(0), frame};
  for (int call = 0; call < 3; ++call) {
    (*opened)->read({&page, 1}, clock.now_us() + kLongUs);
    EXPECT_EQ(page.verdict, PageVerdict::kFailed);
  }
  EXPECT_EQ(metric(**opened, "connect_failures_total"), 1);
  clock.advance_us(BreakerOptions().backoff_us);
  (*opened)->read({&page, 1}, clock.now_us() + kLongUs);
  EXPECT_EQ(metric(**opened, "connect_failures_total"), 2) << "the probe";
}

TEST_F(RedisFaultsTest, NamesThatAreNoneAreMissesInTime) {
  RedisPageStoreOptions options = options_for("redis://no-such-host.invalid:6379");
  options.connect_us_max = 100'000;
  const auto store = open_store(options);
  EXPECT_EQ(read(*store, 0, 1), "f");
  EXPECT_EQ(metric(*store, "connect_failures_total"), 1);
}

TEST_F(RedisFaultsTest, OptionsAreChecked) {
  for (const auto& change : std::vector<std::function<void(RedisPageStoreOptions&)>>{
           [](auto& o) { o.url = "rediss://h"; }, [](auto& o) { o.ttl_s = -1; },
           [](auto& o) { o.operation_us_max = 0; }, [](auto& o) { o.connect_us_max = 0; },
           [](auto& o) { o.refresh_us = -1; }}) {
    RedisPageStoreOptions options = options_for("redis://h");
    change(options);
    EXPECT_FALSE(RedisPageStore::open(options, clock_).ok());
  }
}

}  // namespace
}  // namespace stemma
