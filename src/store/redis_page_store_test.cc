// RedisPageStore on a real redis-server: what is stored comes back, what is wrong goes, and a
// server that goes away in the middle costs misses and nothing else.
#include "store/redis_page_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/temp_directory.h"
#include "store/redis_fixture.h"
#include "store/redis_process.h"

namespace stemma {
namespace {

class RedisPageStoreTest : public RedisFixture {
 protected:
  void SetUp() override { start({}); }
  void start(const std::vector<std::string>& options) {
    server_.reset();
    auto started = RedisProcess::start({.directory = directory_.path(), .options = options});
    ASSERT_TRUE(started.ok()) << to_string(started.error());
    server_.emplace(std::move(started).value());
  }
  // What redis-cli prints.
  std::string cli(std::vector<std::string> words) {
    words.insert(words.begin(), {"redis-cli", "-s", server_->socket_path()});
    const auto printed = run_program(words, kLongUs);
    EXPECT_TRUE(printed.ok()) << to_string(printed.error());
    return printed.ok() ? *printed : "";
  }
  std::unique_ptr<RedisPageStore> open() { return open_store(options_for(server_->unix_url())); }

  TempDirectory directory_;
  std::optional<RedisProcess> server_;
};

TEST_F(RedisPageStoreTest, WhatIsWrittenIsReadByAnotherEngine) {
  const auto one = open();
  const auto two = open();
  EXPECT_EQ(read(*two, 0, 3), "mmm");
  EXPECT_EQ(lookup(*two, 0, 3), 0);
  EXPECT_EQ(write(*one, 0, 3), "ddd");
  EXPECT_EQ(lookup(*two, 0, 5), 3);
  EXPECT_EQ(read(*two, 0, 5), "dddmm");
  EXPECT_EQ(metric(*two, "read_pages_total"), 3);
  EXPECT_EQ(metric(*two, "read_bytes_total"), 3 * 4096);
  EXPECT_EQ(metric(*two, "missing_pages_total"), 5);
  EXPECT_EQ(metric(*one, "written_pages_total"), 3);
  EXPECT_EQ(metric(*one, "open_breakers"), 0);
}

TEST_F(RedisPageStoreTest, ALookupEndsAtTheFirstMissingPageAndCountsAsAUse) {
  const auto store = open();
  write(*store, 0, 2);
  write(*store, 3, 5);
  EXPECT_EQ(lookup(*store, 0, 5), 2);
  EXPECT_EQ(lookup(*store, 2, 5), 0);
  cli({"CONFIG", "SET", "maxmemory-policy", "allkeys-lfu"});
  const std::string before = cli({"OBJECT", "FREQ", value_name(0)});
  for (int i = 0; i < 100; ++i) lookup(*store, 0, 1);
  EXPECT_NE(cli({"OBJECT", "FREQ", value_name(0)}), before);
}

TEST_F(RedisPageStoreTest, PagesOfAllSizesInBatchesWiderThanTheWindow) {
  const auto store = open();
  std::int64_t first = 0;
  for (const std::size_t frame_bytes : {1u, 100u, 16383u, 16385u, 300'000u, 5'000'000u}) {
    frame_bytes_ = frame_bytes;
    const std::int64_t pages = frame_bytes < 100'000 ? 400 : 5;
    EXPECT_EQ(write(*store, first, first + pages),
              std::string(static_cast<std::size_t>(pages), 'd'));
    EXPECT_EQ(read(*store, first, first + pages),
              std::string(static_cast<std::size_t>(pages), 'd'));
    first += pages;
  }
  EXPECT_EQ(metric(*store, "connects_total"), 2) << "a reader's and a writer's";
}

TEST_F(RedisPageStoreTest, TheFirstValueStays) {
  const auto store = open();
  cli({"SET", value_name(0), "another value"});
  EXPECT_EQ(write(*store, 0, 1), "d");
  EXPECT_EQ(cli({"GET", value_name(0)}), "another value\n");
}

TEST_F(RedisPageStoreTest, PagesExpireAsOptionsSay) {
  write(*open(), 0, 1);
  const int ttl_s = std::stoi(cli({"TTL", value_name(0)}));
  EXPECT_GT(ttl_s, 86000);
  EXPECT_LE(ttl_s, 86400);
  RedisPageStoreOptions options = options_for(server_->unix_url());
  options.ttl_s = 0;
  write(*open_store(options), 1, 2);
  EXPECT_EQ(cli({"TTL", value_name(1)}), "-1\n");
}

// One engine stores what goes on from a text day after day, and asks nobody for its beginning.
TEST_F(RedisPageStoreTest, WhatIsRenewedLastsAsIfItWereStoredNow) {
  const auto store = open();
  write(*store, 0, 4);
  cli({"EXPIRE", value_name(0), "50"});
  EXPECT_EQ(renew(*store, 0, 4), 4);
  EXPECT_GT(std::stoi(cli({"TTL", value_name(0)})), 86000);
  cli({"DEL", value_name(2)});
  EXPECT_EQ(renew(*store, 0, 4), 2);
  RedisPageStoreOptions options = options_for(server_->unix_url());
  options.ttl_s = 0;
  const auto without_expiry = open_store(options);
  EXPECT_EQ(renew(*without_expiry, 0, 4), 2);
  EXPECT_GT(std::stoi(cli({"TTL", value_name(0)})), 86000) << "as it was";
}

TEST_F(RedisPageStoreTest, WhatIsThereWhenItIsToBeStoredLastsFromThenOn) {
  const auto one = open();
  const auto two = open();
  write(*one, 0, 2);
  cli({"EXPIRE", value_name(0), "50"});
  EXPECT_EQ(write(*two, 0, 3), "ddd");
  EXPECT_GT(std::stoi(cli({"TTL", value_name(0)})), 86000);
  EXPECT_EQ(metric(*two, "written_pages_total"), 1) << "the others were there";
  EXPECT_EQ(metric(*two, "written_bytes_total"), 4096);
  RedisPageStoreOptions options = options_for(server_->unix_url());
  options.ttl_s = 0;
  const auto without_expiry = open_store(options);
  EXPECT_EQ(write(*without_expiry, 0, 1), "d");
  EXPECT_GT(std::stoi(cli({"TTL", value_name(0)})), 86000) << "as it was";
}

TEST_F(RedisPageStoreTest, WhatAServerDoesNotAnswerIsNotTakenForLost) {
  const auto store = open();
  write(*store, 0, 4);
  server_->process().freeze();
  EXPECT_EQ(renew(*store, 0, 4, 50'000), 4);
  server_->process().thaw();
}

TEST_F(RedisPageStoreTest, AWrongValueIsRemovedOnlyIfItIsWhatWasRead) {
  const auto store = open();
  ASSERT_EQ(write(*store, 0, 1), "d");
  std::vector<std::byte> flipped = redis_test_frame(0, frame_bytes_);
  flipped[100] ^= std::byte{1};
  remove(*store, 0, flipped);
  EXPECT_EQ(read(*store, 0, 1), "d") << "somebody stored the right one meanwhile";
  EXPECT_EQ(metric(*store, "removed_pages_total"), 0);
  remove(*store, 0, redis_test_frame(0, frame_bytes_));
  EXPECT_EQ(metric(*store, "removed_pages_total"), 1);
  EXPECT_EQ(read(*store, 0, 1), "m");
  EXPECT_EQ(write(*store, 0, 1), "d") << "and now it can be stored again";
  EXPECT_EQ(read(*store, 0, 1), "d");
}

TEST_F(RedisPageStoreTest, ACorruptedValueHealsByCompareAndDelete) {
  const auto store = open();
  ASSERT_EQ(write(*store, 0, 3), "ddd");
  cli({"SETRANGE", value_name(1), "7", "!"});
  std::vector<std::byte> frame(frame_bytes_);
  std::vector<PageRead> reads = {{redis_test_key(1), frame}};
  store->read(reads, deadline_us());
  ASSERT_EQ(reads[0].verdict, PageVerdict::kDone) << "without a secret, the frame's checksums tell";
  ASSERT_NE(frame, redis_test_frame(1, frame_bytes_));
  EXPECT_EQ(write(*store, 1, 2), "d") << "NX alone would never heal it";
  remove(*store, 1, frame);
  EXPECT_EQ(read(*store, 0, 3), "dmd");
  EXPECT_EQ(write(*store, 1, 2), "d");
  EXPECT_EQ(read(*store, 0, 3), "ddd");
}

TEST_F(RedisPageStoreTest, ValuesOfAnotherLengthOrTypeAreMissesAndGo) {
  const auto store = open();
  ASSERT_EQ(write(*store, 0, 6), "dddddd");
  cli({"SETRANGE", value_name(1), "4096", "longer"});
  EXPECT_EQ(read(*store, 0, 3), "dmf") << "the connection was dropped, not read on";
  cli({"SET", value_name(2), "shorter"});
  cli({"DEL", value_name(3)});
  cli({"HSET", value_name(3), "a", "hash"});
  cli({"SET", value_name(4), ""});
  EXPECT_EQ(read(*store, 0, 6), "dmmmmd");
  EXPECT_EQ(metric(*store, "wrong_pages_total"), 4);
  EXPECT_EQ(metric(*store, "removed_pages_total"), 4);
  EXPECT_EQ(write(*store, 1, 5), "dddd");
  EXPECT_EQ(read(*store, 0, 6), "dddddd");
}

TEST_F(RedisPageStoreTest, AnErrorInTheMiddleShiftsNothing) {
  const auto store = open();
  ASSERT_EQ(write(*store, 0, 200), std::string(200, 'd'));
  std::string expected(200, 'd');
  for (const std::int64_t page : {3, 50, 51, 199}) {
    cli({"DEL", value_name(page)});
    cli({"LPUSH", value_name(page), "a list"});
    expected[static_cast<std::size_t>(page)] = 'm';
  }
  EXPECT_EQ(read(*store, 0, 200), expected);
  EXPECT_EQ(metric(*store, "connects_total"), 2);
}

class RedisSecretTest : public RedisPageStoreTest {
 protected:
  std::unique_ptr<RedisPageStore> open_with(const std::string& secret) {
    RedisPageStoreOptions options = options_for(server_->unix_url());
    options.secret = secret;
    return open_store(options);
  }
  std::string only_name() {
    std::string name = cli({"KEYS", "*"});
    return name.substr(0, name.find('\n'));
  }
};

TEST_F(RedisSecretTest, AValueThatAnotherMadeIsAMissAndHeals) {
  const auto store = open_with("secret");
  ASSERT_EQ(write(*store, 0, 1), "d");
  EXPECT_EQ(read(*store, 0, 1), "d");
  EXPECT_EQ(cli({"STRLEN", only_name()}), "4128\n");
  for (const char* offset : {"0", "2048", "4095", "4096", "4127"}) {
    cli({"SETRANGE", only_name(), offset, "\x01"});
    EXPECT_EQ(read(*store, 0, 1), "m") << offset;
    EXPECT_EQ(cli({"DBSIZE"}), "0\n");
    EXPECT_EQ(write(*store, 0, 1), "d");
    EXPECT_EQ(read(*store, 0, 1), "d");
  }
  EXPECT_EQ(metric(*store, "wrong_pages_total"), 5);
  EXPECT_EQ(metric(*store, "removed_pages_total"), 5);
}

TEST_F(RedisSecretTest, AnotherPagesSealedValueIsNotThisPages) {
  const auto store = open_with("secret");
  ASSERT_EQ(write(*store, 0, 1), "d");
  const std::string first = only_name();
  const std::string second =
      first.substr(0, first.rfind(':') + 1) + to_hex(redis_test_key(1).bytes);
  cli({"COPY", first, second});
  EXPECT_EQ(read(*store, 0, 2), "dm");
  EXPECT_EQ(metric(*store, "wrong_pages_total"), 1);
}

TEST_F(RedisSecretTest, OtherSecretsKeepToTheirOwnValues) {
  const auto one = open_with("one");
  const auto two = open_with("two");
  const auto none = open();
  EXPECT_EQ(write(*one, 0, 2), "dd");
  EXPECT_EQ(read(*two, 0, 2), "mm");
  EXPECT_EQ(read(*none, 0, 2), "mm");
  EXPECT_EQ(write(*two, 0, 2), "dd");
  EXPECT_EQ(write(*none, 0, 2), "dd");
  EXPECT_EQ(read(*one, 0, 2) + read(*two, 0, 2) + read(*none, 0, 2), "dddddd");
  EXPECT_EQ(metric(*two, "wrong_pages_total"), 0);
}

TEST_F(RedisPageStoreTest, OtherPartsKeepToTheirOwnValues) {
  RedisPageStoreOptions options = options_for(server_->unix_url());
  options.part = "one";
  const auto one = open_store(options);
  options.part = "two";
  const auto two = open_store(options);
  EXPECT_EQ(write(*one, 0, 2), "dd");
  EXPECT_EQ(read(*two, 0, 2) + read(*open(), 0, 2), "mmmm");
  EXPECT_EQ(two->purge({}, deadline_us()).pages, 0);
  EXPECT_EQ(open()->purge({}, deadline_us()).pages, 0);
  EXPECT_EQ(read(*one, 0, 2), "dd");
}

TEST_F(RedisSecretTest, WhatItsReaderFoundWrongGoesByCompareAndDelete) {
  const auto store = open_with("secret");
  ASSERT_EQ(write(*store, 0, 1), "d");
  remove(*store, 0, redis_test_frame(1, frame_bytes_));
  EXPECT_EQ(read(*store, 0, 1), "d");
  remove(*store, 0, redis_test_frame(0, frame_bytes_));
  EXPECT_EQ(read(*store, 0, 1), "m");
}

TEST_F(RedisPageStoreTest, FlushallInTheMiddleOfBatches) {
  const auto store = open();
  frame_bytes_ = 100'000;
  const std::vector<std::string> words = {"redis-cli", "-s",  server_->socket_path(),
                                          "-r",        "200", "FLUSHALL"};
  int done = 0;
  for (int round = 0; round < 5; ++round) {
    ASSERT_EQ(write(*store, 0, 40), std::string(40, 'd'));
    auto flushing = ChildProcess::start(words);
    ASSERT_TRUE(flushing.ok());
    for (int i = 0; i < 20; ++i) {
      const std::string letters = read(*store, 0, 40);  // compares what is read
      EXPECT_EQ(letters.find_first_not_of("dm"), std::string::npos) << letters;
      done += static_cast<int>(std::count(letters.begin(), letters.end(), 'd'));
      write(*store, 0, 40);
    }
    ASSERT_TRUE(flushing->finish(kLongUs).ok());
  }
  EXPECT_GT(done, 0);
}

TEST_F(RedisPageStoreTest, AServerThatWasKilledIsMissesUntilItIsBack) {
  RedisPageStoreOptions options = options_for(server_->unix_url());
  options.breaker.backoff_us = 1;
  options.breaker.backoff_us_max = 1;
  const auto store = open_store(options);
  ASSERT_EQ(write(*store, 0, 4), "dddd");
  ASSERT_EQ(read(*store, 0, 4), "dddd");
  server_->process().kill();
  EXPECT_EQ(read(*store, 0, 4), "ffff");
  EXPECT_EQ(write(*store, 0, 4), "ffff");
  EXPECT_EQ(lookup(*store, 0, 4), -1);
  EXPECT_EQ(metric(*store, "open_breakers"), 2);
  start({});
  EXPECT_EQ(read(*store, 0, 4), "mmmm");
  EXPECT_EQ(write(*store, 0, 4), "dddd");
  EXPECT_EQ(read(*store, 0, 4), "dddd");
  EXPECT_EQ(metric(*store, "open_breakers"), 0);
}

TEST_F(RedisPageStoreTest, AServerKilledDuringALoadIsRightPagesThenNone) {
  const auto store = open();
  frame_bytes_ = 1'000'000;
  ASSERT_EQ(write(*store, 0, 40), std::string(40, 'd'));
  std::atomic<std::int64_t> loads = 0;
  std::jthread reader([&] {
    std::string letters(40, 'd');
    while (letters == std::string(40, 'd')) {
      letters = read(*store, 0, 40);  // compares what is read
      ++loads;
      loads.notify_one();
    }
    EXPECT_EQ(letters.find_first_not_of('f', letters.find('f')), std::string::npos) << letters;
  });
  loads.wait(0);
  server_->process().kill();
}

TEST_F(RedisPageStoreTest, AServerThatStopsAnsweringCostsOneDeadline) {
  RedisPageStoreOptions options = options_for(server_->unix_url());
  options.breaker.failures_to_open = 1;
  options.breaker.backoff_us = options.breaker.backoff_us_max = 1;
  const auto store = open_store(options);
  ASSERT_EQ(write(*store, 0, 4), "dddd");
  ASSERT_EQ(read(*store, 0, 4), "dddd");
  server_->process().freeze();
  const std::int64_t start_us = clock_.now_us();
  EXPECT_EQ(read(*store, 0, 4, 50'000), "ffff");
  EXPECT_GE(clock_.now_us() - start_us, 50'000);
  EXPECT_LT(clock_.now_us() - start_us, kLongUs / 2);
  EXPECT_EQ(metric(*store, "missed_deadlines_total"), 1);
  server_->process().thaw();
  EXPECT_EQ(read(*store, 0, 4), "dddd") << "on a new connection: the old one has stale replies";
}

TEST_F(RedisPageStoreTest, AServerWithoutRoomRefusesAndGoesOnReading) {
  const auto store = open();
  frame_bytes_ = 100'000;
  ASSERT_EQ(write(*store, 0, 2), "dd");
  cli({"CONFIG", "SET", "maxmemory-policy", "noeviction"});
  cli({"CONFIG", "SET", "maxmemory", "1mb"});
  EXPECT_EQ(write(*store, 2, 4), "rr");
  EXPECT_EQ(read(*store, 0, 4), "ddmm");
  EXPECT_EQ(metric(*store, "refused_pages_total"), 2);
  EXPECT_EQ(metric(*store, "breaker_openings_total"), 0) << "it is there";
  cli({"CONFIG", "SET", "maxmemory", "0"});
  EXPECT_EQ(write(*store, 2, 4), "dd");
}

TEST_F(RedisPageStoreTest, PasswordsUsersAndDatabases) {
  const auto ports = free_ports(1);
  ASSERT_TRUE(ports.ok());
  server_.reset();
  auto started = RedisProcess::start(
      {.directory = directory_.path(), .port = (*ports)[0], .options = {"--requirepass", "p@ss"}});
  ASSERT_TRUE(started.ok()) << to_string(started.error());
  const std::string where = "@localhost:" + std::to_string((*ports)[0]) + "/3";
  const auto right = open_store(options_for("redis://:p%40ss" + where));
  EXPECT_EQ(write(*right, 0, 1), "d");
  EXPECT_EQ(read(*right, 0, 1), "d");
  EXPECT_EQ(read(*open_store(options_for("redis://default:p%40ss" + where)), 0, 1), "d");
  EXPECT_EQ(read(*open_store(options_for("redis://:wrong" + where)), 0, 1), "f");
  EXPECT_EQ(read(*open_store(options_for("redis://" + where.substr(1))), 0, 1), "f");
}

TEST_F(RedisPageStoreTest, DescriptionsGoWithTheNextWrite) {
  const auto store = open();
  NamespaceDigest digest;
  digest.bytes[0] = 0xAB;
  store->describe(digest, "model=scribe dtype=bf16");
  for (int i = 0; i < 1000; ++i) store->describe(NamespaceDigest(), "more than it keeps");
  EXPECT_EQ(write(*store, 0, 1), "d");
  EXPECT_EQ(cli({"GET", "stemma:1:namespace:" + to_hex(digest.bytes)}),
            "model=scribe dtype=bf16\n");
  EXPECT_EQ(cli({"DEL", "stemma:1:namespace:" + to_hex(digest.bytes)}), "1\n");
  EXPECT_EQ(write(*store, 1, 2), "d");
  EXPECT_EQ(cli({"EXISTS", "stemma:1:namespace:" + to_hex(digest.bytes)}), "0\n") << "once";
}

TEST_F(RedisPageStoreTest, ReaderAndWriterRunAtOnce) {
  const auto store = open();
  const std::size_t pages = 64;
  std::string written;
  {
    std::jthread writer([&] {
      for (std::int64_t page = 0; page < 512; page += 64) written = write(*store, page, page + 64);
    });
    for (int round = 0; round < 20; ++round) read(*store, 0, 512);
  }
  EXPECT_EQ(written, std::string(pages, 'd'));
  EXPECT_EQ(read(*store, 0, 512), std::string(512, 'd'));
}

}  // namespace
}  // namespace stemma
