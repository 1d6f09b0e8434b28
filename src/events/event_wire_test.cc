// The wire form of events: frozen bytes of both forms, what is read from what was written, what
// other servers write, and bytes that are no batch.
#include "events/event_wire.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/digest.h"
#include "base/prng.h"
#include "events/event_fixture.h"

namespace stemma {
namespace {

using Json = nlohmann::json;
using Bytes = std::vector<std::uint8_t>;

// All that may be in a batch: two pages behind none, one behind the second, two that go, and all.
Bytes sample_batch(const EventWireOptions& options) {
  EventWriter writer(options);
  const std::vector<PageKey> keys = {key_of(0x01), key_of(0xF2), key_of(0x33)};
  const Tokens tokens = {1, 128, 300, 70'000, 5, 6};
  PrefixEvent event;
  writer.add(event);
  event.kind = PrefixEvent::Kind::kStored;
  event.digest = digest_of(0xAB);
  event.keys = std::span(keys).first(2);
  event.tokens = std::span(tokens).first(4);
  writer.add(event);
  event.keys = std::span(keys).last(1);
  event.tokens = std::span(tokens).last(2);
  event.parent = keys[1];
  writer.add(event);
  event = {};
  event.kind = PrefixEvent::Kind::kRemoved;
  event.keys = std::span(keys).last(2);
  writer.add(event);
  return writer.finish(1'700'000'000.25);
}

const std::map<std::string, EventWireOptions>& forms() {
  static const std::map<std::string, EventWireOptions> forms = {
      {"position-unsigned", {.medium = "GPU", .data_parallel_rank = 0}},
      {"position-signed", {.hashes = HashForm::kSigned, .medium = "GPU", .data_parallel_rank = 3}},
      {"position-bytes", {.hashes = HashForm::kBytes, .medium = "GPU"}},
      {"name-unsigned", {.form = EventForm::kByName, .medium = "GPU"}},
      {"name-bytes",
       {.form = EventForm::kByName, .hashes = HashForm::kBytes, .medium = "CPU_PINNED"}}};
  return forms;
}

TEST(EventWire, TheBytesAreThoseOfTheGoldenFile) {
  std::ifstream golden("tests/golden/event_batch.txt");
  ASSERT_TRUE(golden.good());
  std::string name;
  std::string hex;
  std::size_t lines = 0;
  for (; golden >> name >> hex; ++lines) {
    ASSERT_TRUE(forms().contains(name)) << name;
    EXPECT_EQ(to_hex(sample_batch(forms().at(name))), hex) << name;
  }
  EXPECT_EQ(lines, forms().size());
}

TEST(EventWire, WhatIsWrittenIsRead) {
  for (const auto& [name, options] : forms()) {
    SCOPED_TRACE(name);
    const Result<WireBatch> batch = read_event_batch(sample_batch(options));
    ASSERT_TRUE(batch.ok()) << to_string(batch.error());
    EXPECT_EQ(batch->seconds, 1'700'000'000.25);
    EXPECT_EQ(batch->data_parallel_rank, options.data_parallel_rank);
    ASSERT_EQ(batch->events.size(), 4u);
    const auto hash = [&](int byte) { return EventHash::of(key_of(byte), options.hashes); };
    EXPECT_EQ(batch->events[0].kind, WireEvent::Kind::kCleared);
    const WireEvent& root = batch->events[1];
    EXPECT_EQ(root.kind, WireEvent::Kind::kStored);
    EXPECT_EQ(root.hashes, (std::vector{hash(0x01), hash(0xF2)}));
    EXPECT_EQ(root.parent, std::nullopt);
    EXPECT_EQ(root.tokens, (Tokens{1, 128, 300, 70'000}));
    EXPECT_EQ(root.page_size, 2);
    EXPECT_EQ(root.medium, options.medium);
    const bool says_namespace = options.form == EventForm::kByName;
    EXPECT_EQ(root.namespace_digest, says_namespace ? to_hex(digest_of(0xAB).bytes) : "");
    EXPECT_EQ(batch->events[2].parent, hash(0xF2));
    EXPECT_EQ(batch->events[3].kind, WireEvent::Kind::kRemoved);
    EXPECT_EQ(batch->events[3].hashes, (std::vector{hash(0xF2), hash(0x33)}));
    EXPECT_EQ(batch->events[3].medium, options.medium);
  }
}

// vLLM's own readers by name refuse what was stored without a lora_name; by position it stands
// behind, where older ones pass over it.
TEST(EventWire, TheAdapterOfWhatIsStoredIsTold) {
  const std::vector<PageKey> keys = {key_of(0x01)};
  const Tokens tokens = {7};
  for (const std::string adapter : {"", "poet"}) {
    const auto stored = [&](EventForm form) {
      EventWriter writer({.form = form});
      PrefixEvent event;
      event.kind = PrefixEvent::Kind::kStored;
      event.keys = keys;
      event.tokens = tokens;
      event.adapter = adapter;
      writer.add(event);
      return writer.finish(0);
    };
    const Bytes by_name = stored(EventForm::kByName);
    EXPECT_EQ(Json::from_msgpack(by_name)[1][0]["lora_name"],
              adapter.empty() ? Json() : Json(adapter));
    EXPECT_EQ(read_event_batch(by_name)->events[0].adapter, adapter);
    const Json by_position = Json::from_msgpack(stored(EventForm::kByPosition))[1][0];
    EXPECT_EQ(by_position.size(), adapter.empty() ? 7u : 8u);
    EXPECT_EQ(by_position.back(), adapter.empty() ? "GPU" : adapter);
  }
}

// A batch is cut by its places: of many small events, too, it takes no more bytes than they say.
TEST(EventWire, ABatchTakesFiveBytesAPlaceAtMost) {
  constexpr std::int64_t kBatchBytes = 32;  // its time, its rank and the count of its events
  const std::vector<PageKey> keys = {key_of(0xF2)};
  const Tokens tokens = {std::numeric_limits<TokenId>::max()};
  for (auto [name, options] : forms()) {
    for (const std::size_t medium_bytes : {3u, 300u}) {
      SCOPED_TRACE(name + ", " + std::to_string(medium_bytes));
      options.medium = std::string(medium_bytes, 'M');
      for (const auto kind :
           {PrefixEvent::Kind::kCleared, PrefixEvent::Kind::kStored, PrefixEvent::Kind::kRemoved}) {
        PrefixEvent event;
        event.kind = kind;
        if (kind != PrefixEvent::Kind::kCleared) event.keys = keys;
        if (kind == PrefixEvent::Kind::kStored) {
          event.tokens = tokens;
          event.parent = keys[0];
          event.adapter = options.medium;
        }
        EventWriter writer(options);
        for (int i = 0; i < 1000; ++i) writer.add(event);
        const std::int64_t places = writer.places();
        EXPECT_LE(std::ssize(writer.finish(1'700'000'000.25)), 5 * places + kBatchBytes);
      }
    }
  }
}

TEST(EventWire, BothFormsOfANumberAreOneHash) {
  const auto first = read_event_batch(sample_batch(forms().at("position-unsigned")));
  const auto second = read_event_batch(sample_batch(forms().at("position-signed")));
  EXPECT_EQ(first->events[1].hashes, second->events[1].hashes);
  EXPECT_EQ(first->events[1].hashes[1].number(), 0xF200'0000'0000'0000u);
}

// As vLLM writes them: more fields behind, or fields left out where they have their defaults.
TEST(EventWire, MoreAndFewerFieldsThanOursAreRead) {
  const Json stored = {"BlockStored", {1, 2},  7, {10, 11},         1,      nullptr, "GPU",
                       "adapter",     nullptr, 0, "full_attention", nullptr};
  const Json few = {"BlockStored", {3}, nullptr, Json::array(), 16};
  const Json batch = {12, {stored, few, Json::array({"AllBlocksCleared"}), {"BlockRemoved", {-1}}}};
  const auto read = read_event_batch(Json::to_msgpack(batch));
  ASSERT_TRUE(read.ok()) << to_string(read.error());
  EXPECT_EQ(read->seconds, 12);
  EXPECT_EQ(read->data_parallel_rank, std::nullopt);
  EXPECT_EQ(read->events[0].parent, EventHash::of(7));
  EXPECT_EQ(read->events[1].medium, "");
  EXPECT_TRUE(read->events[1].tokens.empty());
  EXPECT_EQ(read->events[3].hashes[0], EventHash::of(~std::uint64_t{0}));
}

TEST(EventWire, NamesComeInAnyOrderAndUnknownOnesArePassedOver) {
  const Json event = {{"medium", "GPU"}, {"zeta", {{"deep", {1, 2}}}},  {"token_ids", {5}},
                      {"block_size", 1}, {"block_hashes", {9}},         {"type", "BlockStored"},
                      {"group_idx", 2},  {"parent_block_hash", nullptr}};
  const Json batch = {{"events", {event, {{"type", "SomethingNew"}, {"x", 1}}}}, {"ts", 1.5}};
  const auto read = read_event_batch(Json::to_msgpack(batch));
  ASSERT_TRUE(read.ok()) << to_string(read.error());
  EXPECT_EQ(read->events[0].group, 2);
  EXPECT_EQ(read->events[0].tokens, Tokens{5});
  EXPECT_EQ(read->events[1].kind, WireEvent::Kind::kOther);
}

TEST(EventWire, WhatIsWrongIsRefusedByItsField) {
  const auto error_of = [](const Json& batch) {
    const auto read = read_event_batch(Json::to_msgpack(batch));
    return read.ok() ? "read" : read.error().detail;
  };
  const auto of_event = [&](const Json& event) { return error_of({1, Json::array({event})}); };
  EXPECT_EQ(error_of(5), "event batch: events: a batch has fields");
  EXPECT_EQ(error_of({"now", Json::array()}), "event batch: ts: a time is wanted");
  EXPECT_EQ(error_of({1, 2}), "event batch: events: an array is wanted");
  EXPECT_EQ(error_of({1, Json::array(), "rank"}),
            "event batch: data_parallel_rank: a whole number is wanted");
  EXPECT_EQ(of_event(7), "event batch: events: an event has fields");
  EXPECT_EQ(of_event({7, 8}), "event batch: type: an event's name is wanted");
  EXPECT_EQ(of_event({"BlockRemoved", 8}), "event batch: block_hashes: an array is wanted");
  EXPECT_EQ(of_event({"BlockRemoved", {"x"}}),
            "event batch: block_hashes: a hash is a number or bytes");
  EXPECT_EQ(of_event({"BlockRemoved", {Json::binary({})}}),
            "event batch: block_hashes: a hash has 1 to 32 bytes");
  EXPECT_EQ(of_event({"BlockRemoved", {Json::binary(Bytes(33))}}),
            "event batch: block_hashes: a hash has 1 to 32 bytes");
  EXPECT_EQ(of_event({"BlockStored", {1}, 1.5, {1}, 1}),
            "event batch: parent_block_hash: a hash is a number or bytes");
  EXPECT_EQ(of_event({"BlockStored", {1}, nullptr, {1}, 0}),
            "event batch: block_size: 1 to 1048576 tokens are wanted");
  EXPECT_EQ(of_event({"BlockStored", {1}, nullptr, Json::array(), (1 << 20) + 1}),
            "event batch: block_size: 1 to 1048576 tokens are wanted");
  EXPECT_EQ(error_of({std::numeric_limits<double>::infinity(), Json::array()}),
            "event batch: ts: a time is wanted");
  EXPECT_EQ(of_event({"BlockRemoved", {1}, "GPU", "x"}),
            "event batch: group_idx: a whole number is wanted");
  EXPECT_EQ(of_event({"BlockStored", {1}, nullptr, {1}, ~std::uint64_t{0}}),
            "event batch: block_size: a whole number is wanted");
  EXPECT_EQ(of_event({"BlockStored", {1}, nullptr, {1, 2}, 1}),
            "event batch: token_ids: not as many as the pages have");
  EXPECT_EQ(of_event({"BlockStored", {1}, nullptr, {-1}, 1}),
            "event batch: token_ids: a token is a number of 31 bits");
  EXPECT_EQ(of_event({"BlockStored", {1}, nullptr, {std::int64_t{1} << 31}, 1}),
            "event batch: token_ids: a token is a number of 31 bits");
  EXPECT_EQ(of_event({"BlockStored", {1}, nullptr, {1}, 1, nullptr, 4}),
            "event batch: medium: a text is wanted");
}

TEST(EventWire, BytesThatNestTooDeeplyOrAreTooManyAreRefused) {
  const Bytes deep(1 << 20, 0x91);  // arrays of one array of one array …
  EXPECT_EQ(read_event_batch(deep).error().detail,
            "event batch: MessagePack nested deeper than 16 levels");
  const Bytes many(kEventBatchBytesMax + 1, 0xC0);
  EXPECT_EQ(read_event_batch(many).error().code, ErrorCode::kTooLarge);
  EXPECT_EQ(read_event_batch({}).error().code, ErrorCode::kCorrupt);
  Bytes more = sample_batch({});
  more.push_back(0xC0);
  EXPECT_EQ(read_event_batch(more).error().code, ErrorCode::kCorrupt);
}

// Cut anywhere, and with any byte replaced: an error, or a batch, never anything else.
TEST(EventWire, BrokenBatchesDoNoHarm) {
  constexpr std::uint64_t kSeed = 411;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  Prng prng(kSeed);
  for (const auto& [name, options] : forms()) {
    const Bytes whole = sample_batch(options);
    for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
      EXPECT_FALSE(read_event_batch(std::span(whole).first(bytes)).ok());
    }
    for (int i = 0; i < 20'000; ++i) {
      Bytes broken = whole;
      broken[static_cast<std::size_t>(prng.below(std::ssize(broken)))] =
          static_cast<std::uint8_t>(prng.below(256));
      const auto read = read_event_batch(broken);
      EXPECT_TRUE(read.ok() || read.error().code == ErrorCode::kCorrupt);
    }
  }
}

TEST(EventBuffer, LongRunsComeInPiecesEachBehindTheOneBefore) {
  EventBuffer buffer;
  EXPECT_TRUE(buffer.empty());
  std::vector<PageKey> keys;
  for (int i = 0; i < 10; ++i) keys.push_back(key_of(i));
  const Tokens tokens = counted(0, 20);
  PrefixEvent event{.kind = PrefixEvent::Kind::kStored,
                    .keys = keys,
                    .digest = digest_of(1),
                    .parent = key_of(99),
                    .tokens = tokens};
  buffer.take(event);
  buffer.take({.kind = PrefixEvent::Kind::kRemoved,
               .keys = keys,
               .digest = {},
               .parent = {},
               .tokens = {}});
  EXPECT_FALSE(buffer.begins_anew());
  std::vector<std::size_t> pieces;
  Tokens seen;
  buffer.for_each(40, [&](const PrefixEvent& piece) {  // four pages of two tokens and a key
    pieces.push_back(piece.keys.size());
    if (piece.kind == PrefixEvent::Kind::kRemoved) return;
    EXPECT_EQ(piece.parent,
              seen.empty() ? key_of(99) : key_of(static_cast<int>(seen.size()) / 2 - 1));
    seen.insert(seen.end(), piece.tokens.begin(), piece.tokens.end());
  });
  EXPECT_EQ(pieces, (std::vector<std::size_t>{4, 4, 2, 5, 5}));
  EXPECT_EQ(seen, tokens);
  buffer.clear();
  buffer.take({});
  EXPECT_TRUE(buffer.begins_anew());
}

TEST(EventBuffer, KeepsAdaptersAndForgetsAllWhenItIsCleared) {
  EventBuffer buffer;
  const PageKey key = key_of(1);
  const Tokens tokens = {7};
  buffer.take({.kind = PrefixEvent::Kind::kStored,
               .keys = std::span(&key, 1),
               .digest = digest_of(1),
               .parent = {},
               .tokens = tokens,
               .adapter = "poet"});
  buffer.end_history();
  buffer.for_each(40, [](const PrefixEvent& event) { EXPECT_EQ(event.adapter, "poet"); });
  buffer.clear();
  EXPECT_TRUE(buffer.empty());
  EXPECT_EQ(buffer.bytes(), 0U);
  EXPECT_FALSE(buffer.ends_history());
}

TEST(EventWriter, BehindABatchTheNextOneBeginsWithNothing) {
  EventWriter writer({});
  const PageKey key = key_of(1);
  writer.add({.kind = PrefixEvent::Kind::kRemoved,
              .keys = std::span(&key, 1),
              .digest = {},
              .parent = {},
              .tokens = {}});
  EXPECT_FALSE(writer.empty());
  writer.finish(1);
  EXPECT_TRUE(writer.empty());
  EXPECT_TRUE(read_event_batch(writer.finish(2)).value().events.empty());
}

}  // namespace
}  // namespace stemma
