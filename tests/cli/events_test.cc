// stemma events, beside a publisher of this process.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "events/event_publisher.h"
#include "prefix/prefix_fixture.h"
#include "program.h"

namespace stemma {
namespace {

using ::testing::HasSubstr;

class EventsCommandTest : public ::testing::Test {
 protected:
  EventsCommandTest() : cache_({.page_size = 2, .events_pages_max = 100}) {
    EventPublisherOptions options;
    options.endpoint = "tcp://127.0.0.1:*";
    options.replay_endpoint = "tcp://127.0.0.1:*";
    publisher_ = EventPublisher::open(options, clock_).value();
  }

  void pump() {
    publisher_->pump([&](PrefixEventSink& to) { cache_.cache->drain_events(to); },
                     [&] { cache_.cache->resend_events(); });
  }

  std::string endpoints() const {
    return "events --endpoint '" + publisher_->endpoint() + "' --replay '" +
           publisher_->replay_endpoint() + "' ";
  }

  MonotonicClock clock_;
  PrefixFixture cache_;
  std::unique_ptr<EventPublisher> publisher_;
};

TEST_F(EventsCommandTest, PrintsWhatBeganAndStoppedToBeFound) {
  pump();
  cache_.add({1, 2, 3, 4});
  cache_.add({1, 2, 5, 6});
  pump();
  cache_.cache->evict(1).reset();
  pump();
  const ProgramRun run = run_stemma(endpoints() + "--batches 3 --check --json");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto lines = run.lines();
  ASSERT_EQ(lines.size(), 5u) << run.out;
  EXPECT_EQ(lines[0]["event"], "cleared");
  EXPECT_EQ(lines[0]["sequence"], 0);
  EXPECT_EQ(lines[1]["event"], "stored");
  EXPECT_EQ(lines[1]["tokens"], nlohmann::json({1, 2, 3, 4}));
  EXPECT_EQ(lines[1]["parent"], nullptr);
  EXPECT_EQ(lines[1]["medium"], "GPU");
  EXPECT_EQ(lines[2]["parent"], lines[1]["hashes"][0]);
  EXPECT_EQ(lines[3]["event"], "removed");
  EXPECT_EQ(lines[3]["hashes"][0], lines[1]["hashes"][1]);
  EXPECT_EQ(lines[4]["summary"]["pages"], 2);
  EXPECT_EQ(lines[4]["summary"]["complete"], true);
  EXPECT_EQ(lines[4]["summary"]["contradictions"], 0);

  const ProgramRun text = run_stemma(endpoints() + "--batches 3 --check");
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("1 stored 2 pages"));
  EXPECT_THAT(text.out, HasSubstr("2 pages; 3 batches, 3 of them replayed"));
}

TEST_F(EventsCommandTest, WrongFlagsAreNamed) {
  EXPECT_EQ(run_stemma("events").exit_code, 2);
  const ProgramRun negative = run_stemma(endpoints() + "--batches -1");
  EXPECT_EQ(negative.exit_code, 2);
  EXPECT_THAT(negative.err, HasSubstr("--batches must be at least 0"));
  EXPECT_THAT(run_stemma(endpoints() + "--medium GPU").err, HasSubstr("--medium requires --check"));
  const ProgramRun port = run_stemma("events --endpoint tcp://127.0.0.1:99999 --batches 1");
  EXPECT_EQ(port.exit_code, 2);
  EXPECT_THAT(port.err, HasSubstr("tcp://127.0.0.1:99999: its port must be from 0 to 65535"));
  const ProgramRun nowhere = run_stemma("events --endpoint nowhere");
  EXPECT_EQ(nowhere.exit_code, 2);
  EXPECT_THAT(nowhere.err, HasSubstr("--endpoint: nowhere: no address such as tcp://HOST:PORT"));
  for (const char* const url : {"127.0.0.1:8080", "https://127.0.0.1"}) {
    const ProgramRun probe = run_stemma(std::string("probe ") + url);
    EXPECT_EQ(probe.exit_code, 2) << url;
    EXPECT_THAT(probe.err, HasSubstr("is not of the form http://HOST:PORT")) << url;
  }
}

}  // namespace
}  // namespace stemma
