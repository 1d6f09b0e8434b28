// Batches put into their order: gaps that a replay fills, what comes twice, servers that begin anew
// in every way that numbers alone would hide, and what nobody has any more. Without sockets.
#include "events/event_stream.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/prng.h"
#include "events/event_fixture.h"

namespace stemma {
namespace {

// A server that lives on the far side of nothing: its batches, each with a page of its own.
class FakeServer final : public ReplaySource {
 public:
  explicit FakeServer(int life = 0) : life_(life) { publish(true); }

  EventMessage publish(bool clears = false) {
    EventWriter writer({});
    if (clears) writer.add({});
    const PageKey key = key_of(static_cast<int>(next_ % 250) + 1 + life_);
    const Tokens tokens = {static_cast<TokenId>(next_)};
    writer.add({.kind = PrefixEvent::Kind::kStored,
                .keys = std::span(&key, 1),
                .digest = {},
                .parent = {},
                .tokens = tokens});
    const EventMessage message{next_, writer.finish(life_)};
    kept[next_++] = message;
    return message;
  }

  Status replay(std::uint64_t first, FunctionRef<void(const EventMessage&)> visit) override {
    ++replays;
    if (!answers) return Error{ErrorCode::kDeadline, "no answer"};
    for (auto at = kept.lower_bound(first); at != kept.end(); ++at) visit(at->second);
    return {};
  }

  std::map<std::uint64_t, EventMessage> kept;
  int replays = 0;
  bool answers = true;

 private:
  int life_;
  std::uint64_t next_ = 0;
};

std::vector<std::uint64_t> first_numbers(std::uint64_t count) {
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t i = 0; i < count; ++i) numbers.push_back(i);
  return numbers;
}

struct Followed {
  explicit Followed(int life = 0) : server(life), stream(sink, &server) {}
  FakeServer server;
  IndexSink sink;
  EventStream stream;
};

TEST(EventStream, WhatComesInOrderIsTaken) {
  Followed f;
  f.stream.take(f.server.kept[0]);
  f.stream.take(f.server.publish());
  EXPECT_EQ(f.sink.sequences, first_numbers(2));
  EXPECT_EQ(f.server.replays, 0);
  EXPECT_TRUE(f.stream.complete());
}

TEST(EventStream, AGapIsFilledAndWhatComesAgainIsPassedOver) {
  Followed f;
  f.stream.take(f.server.kept[0]);
  const EventMessage late = f.server.publish();
  f.server.publish();
  f.stream.take(f.server.publish());
  f.stream.take(late);
  EXPECT_EQ(f.sink.sequences, first_numbers(4));
  EXPECT_EQ(f.stream.counters().gaps, 1);
  EXPECT_EQ(f.stream.counters().replayed, 3);
  EXPECT_EQ(f.stream.counters().duplicates, 2);
  EXPECT_EQ(f.sink.forgotten, 0);
}

TEST(EventStream, WhoComesLateIsToldWhatWas) {
  Followed f;
  for (int i = 0; i < 10; ++i) f.server.publish();
  f.stream.catch_up();
  EXPECT_EQ(f.sink.sequences, first_numbers(11));
  f.stream.take(f.server.publish());
  EXPECT_EQ(f.sink.sequences, first_numbers(12));
}

TEST(EventStream, WhatNobodyHasIsLostUntilAllIsSaidAnew) {
  Followed f;
  f.stream.take(f.server.kept[0]);
  for (int i = 0; i < 5; ++i) f.server.publish();
  f.server.kept.erase(0);
  f.server.kept.erase(1);
  f.server.kept.erase(2);
  f.stream.take(f.server.publish());
  EXPECT_FALSE(f.stream.complete());
  EXPECT_EQ(f.stream.counters().losses, 1);
  EXPECT_EQ(f.sink.index.pages(), 0);
  f.stream.take(f.server.publish());
  EXPECT_EQ(f.sink.index.pages(), 0);
  f.stream.take(f.server.publish(true));
  EXPECT_TRUE(f.stream.complete());
  EXPECT_EQ(f.sink.index.pages(), 1);
}

// The live ones wait in the socket while a replay has gone ahead of them.
TEST(EventStream, WhatComesLateBehindALossIsPassedOver) {
  Followed f;
  std::vector<EventMessage> live;
  for (int i = 0; i < 10; ++i) live.push_back(f.server.publish());
  for (std::uint64_t i = 0; i < 8; ++i) f.server.kept.erase(i);
  for (const EventMessage& message : live) f.stream.take(message);
  EXPECT_EQ(f.server.replays, 1);
  EXPECT_EQ(f.stream.counters().restarts, 0);
  EXPECT_EQ(f.stream.counters().losses, 1);
  f.stream.take(FakeServer(1).kept[0]);
  EXPECT_EQ(f.stream.counters().restarts, 1);
}

TEST(EventStream, WithoutAReplayAGapIsALoss) {
  FakeServer server;
  IndexSink sink;
  EventStream stream(sink, nullptr);
  stream.take(server.kept[0]);
  server.publish();
  stream.take(server.publish());
  EXPECT_FALSE(stream.complete());
  EXPECT_EQ(sink.forgotten, 1);
  EXPECT_EQ(sink.sequences, first_numbers(1));
}

TEST(EventStream, WhoOnlyLooksOnIsShownWhatComesAfterALoss) {
  FakeServer server;
  IndexSink sink;
  EventStream stream(sink, nullptr, AfterLoss::kWhatever);
  server.publish();
  stream.take(server.publish());
  stream.take(server.publish());
  EXPECT_EQ(sink.sequences, (std::vector<std::uint64_t>{2, 3}));
  EXPECT_FALSE(stream.complete());
  stream.take(server.publish(true));
  EXPECT_TRUE(stream.complete());
}

TEST(EventStream, AnAnswerThatDoesNotComeIsALoss) {
  Followed f;
  f.stream.take(f.server.kept[0]);
  f.server.publish();
  f.server.answers = false;
  f.stream.take(f.server.publish());
  EXPECT_FALSE(f.stream.complete());
  EXPECT_EQ(f.stream.next_sequence(), 3u);
}

TEST(EventStream, AServerThatBeginsAnewIsSeenByANumberThatWasThere) {
  Followed f;
  f.stream.take(f.server.kept[0]);
  f.stream.take(f.server.publish());
  f.server = FakeServer(1);
  f.stream.take(f.server.kept[0]);
  EXPECT_EQ(f.stream.counters().restarts, 1);
  EXPECT_EQ(f.sink.forgotten, 1);
  EXPECT_EQ(f.sink.index.pages(), 1);
  EXPECT_EQ(f.stream.next_sequence(), 1u);
}

// Its first batches were missed, and the next one has the number that a gap would have.
TEST(EventStream, AServerThatBeganAnewBehindAGapIsSeenByWhatItReplays) {
  Followed f;
  f.stream.take(f.server.kept[0]);
  f.stream.take(f.server.publish());
  f.server = FakeServer(1);
  for (int i = 0; i < 8; ++i) f.server.publish();
  f.stream.take(f.server.publish());
  EXPECT_EQ(f.stream.counters().restarts, 1);
  EXPECT_TRUE(f.stream.complete());
  EXPECT_EQ(f.sink.index.pages(), 10);
}

// After a new connection, with a number that would be the next.
TEST(EventStream, AServerThatBeganAnewIsSeenWhenCatchingUp) {
  for (const int batches : {0, 1, 6}) {
    Followed f;
    f.stream.take(f.server.kept[0]);
    f.stream.take(f.server.publish());
    f.server = FakeServer(1);
    for (int i = 0; i < batches; ++i) f.server.publish();
    f.stream.catch_up();
    EXPECT_EQ(f.stream.counters().restarts, 1) << batches;
    EXPECT_TRUE(f.stream.complete());
    EXPECT_EQ(f.sink.index.pages(), batches + 1);
  }
}

// It has as many batches behind it as the one before, and nobody says whose they are.
TEST(EventStream, BehindANewConnectionAServerThatSaysNothingMayBeAnother) {
  for (const bool has_replay : {false, true}) {
    FakeServer server;
    IndexSink sink;
    EventStream stream(sink, has_replay ? &server : nullptr);
    stream.catch_up_anew();
    EXPECT_TRUE(stream.complete()) << "nothing was known";
    stream.take(server.kept[0]);
    for (int i = 0; i < 4; ++i) stream.take(server.publish());
    server = FakeServer(1);
    server.answers = false;
    stream.catch_up_anew();
    for (int i = 0; i < 5; ++i) server.publish();
    stream.take(server.kept[5]);
    EXPECT_FALSE(stream.complete()) << has_replay;
    EXPECT_EQ(sink.index.pages(), 0);
    stream.take(server.publish(true));
    EXPECT_TRUE(stream.complete());
    EXPECT_EQ(sink.index.pages(), 1);
  }
}

// What it says before it falls silent tells that it is the same.
TEST(EventStream, BehindANewConnectionHalfAnAnswerIsEnough) {
  class Halting final : public ReplaySource {
   public:
    explicit Halting(FakeServer& server) : server_(server) {}
    Status replay(std::uint64_t first, FunctionRef<void(const EventMessage&)> visit) override {
      visit(server_.kept.at(first));
      return Error{ErrorCode::kDeadline, "no more"};
    }

   private:
    FakeServer& server_;
  };
  FakeServer server;
  Halting halting(server);
  IndexSink sink;
  EventStream stream(sink, &halting);
  stream.take(server.kept[0]);
  stream.take(server.publish());
  stream.catch_up_anew();
  stream.take(server.publish());
  EXPECT_TRUE(stream.complete());
  EXPECT_EQ(sink.index.pages(), 3);
}

// It kept only what comes right behind what is known: whether it is the same server, nobody knows.
TEST(EventStream, WhatCannotBeToldApartIsALoss) {
  Followed f;
  f.stream.take(f.server.kept[0]);
  for (int i = 0; i < 3; ++i) f.server.publish();
  f.server.kept.erase(0);
  f.stream.catch_up();
  EXPECT_FALSE(f.stream.complete());
  EXPECT_EQ(f.stream.counters().losses, 1);
}

// It waited in the socket while its server was replaced.
TEST(EventStream, WhatTheServerDoesNotHaveIsPassedOver) {
  Followed f;
  f.stream.take(f.server.kept[0]);
  EventMessage stray = f.server.publish();
  stray.sequence = 40;
  f.stream.take(stray);
  EXPECT_EQ(f.stream.counters().strays, 1);
  EXPECT_TRUE(f.stream.complete());
  EXPECT_EQ(f.sink.sequences, first_numbers(2));
}

TEST(EventStream, WhatCannotBeReadIsLost) {
  Followed f;
  f.stream.take(f.server.kept[0]);
  f.stream.take({1, {0xC1}});
  EXPECT_EQ(f.stream.counters().malformed, 1);
  EXPECT_FALSE(f.stream.complete());
  f.stream.take({~std::uint64_t{0}, {0xC0}});
  EXPECT_EQ(f.stream.counters().malformed, 2);
  EXPECT_EQ(f.stream.next_sequence(), 2u);
}

// One event of each kind that is named, of a server that does not clear when it begins.
EventMessage said(std::uint64_t sequence, double seconds, std::string_view kinds) {
  EventWriter writer({});
  const Tokens tokens = {1};
  for (const char kind : kinds) {
    const PageKey key = key_of(7);
    const bool stores = kind != 'c';
    writer.add({.kind = stores ? PrefixEvent::Kind::kStored : PrefixEvent::Kind::kCleared,
                .keys = std::span(&key, stores ? 1 : 0),
                .digest = {},
                .parent = kind == 'b' ? std::optional(key_of(9)) : std::nullopt,
                .tokens = std::span(tokens).first(stores ? 1 : 0)});
  }
  return {sequence, writer.finish(seconds)};
}

TEST(EventStream, BehindALossAServerThatBeginsAnewIsWhole) {
  IndexSink sink;
  EventStream stream(sink, nullptr);
  stream.take(said(0, 1, "s"));
  stream.take(said(5, 1, "s"));
  EXPECT_FALSE(stream.complete());
  stream.take(said(0, 2, "s"));
  EXPECT_EQ(stream.counters().restarts, 1);
  EXPECT_TRUE(stream.complete());
  EXPECT_EQ(sink.index.pages(), 1);
}

// What a batch says before it clears all is of what was lost.
TEST(EventStream, BehindALossABatchCountsFromWhereItClears) {
  IndexSink sink;
  EventStream stream(sink, nullptr);
  stream.take(said(5, 1, "s"));
  EXPECT_FALSE(stream.complete());
  stream.take(said(6, 1, "bcs"));
  EXPECT_TRUE(stream.complete());
  EXPECT_EQ(sink.index.pages(), 1);
  EXPECT_EQ(sink.index.contradictions(), 0) << sink.index.first_contradiction();
}

// Any loss, with a server that keeps everything: nothing is missing in the end, nothing comes
// twice.
TEST(EventStream, AnyLossIsMadeGood) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Prng prng(seed);
    Followed f;
    f.stream.take(f.server.kept[0]);
    std::uint64_t published = 1;
    for (; published < 500; ++published) {
      const EventMessage message = f.server.publish();
      if (prng.below(10) == 0) continue;
      f.stream.take(message);
      if (prng.below(20) == 0) f.stream.take(message);
    }
    f.stream.catch_up();
    EXPECT_EQ(f.sink.sequences, first_numbers(published));
    EXPECT_GT(f.stream.counters().gaps, 10);
  }
}

}  // namespace
}  // namespace stemma
