// Covers stemma/c_events.h: who applies each event knows what the cache has.
#include "stemma/c_events.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <set>
#include <string>

#include "bindings/c_fixture.h"

namespace stemma {
namespace {

using ::testing::ElementsAre;

std::string key_at(const std::uint8_t* keys, std::size_t place) {
  return {reinterpret_cast<const char*>(keys + 32 * place), 32};
}

// What somebody outside makes of events.
struct Follower {
  std::set<std::string> found;  // keys
  std::vector<std::int32_t> kinds;
  std::vector<Text> texts;  // of what was stored

  static void take(void* context, const stemma_event* event) {
    Follower& follower = *static_cast<Follower*>(context);
    ASSERT_EQ(event->struct_size, sizeof(stemma_event));
    follower.kinds.push_back(event->kind);
    if (event->kind == STEMMA_CLEARED) follower.found.clear();
    if (event->kind == STEMMA_STORED) follower.store(*event);
    for (std::size_t i = 0; event->kind == STEMMA_REMOVED && i < event->pages; ++i) {
      EXPECT_EQ(follower.found.erase(key_at(event->keys, i)), 1u);
      EXPECT_EQ(event->tokens, nullptr);
    }
  }
  void store(const stemma_event& event) {
    ASSERT_EQ(event.tokens_count, event.pages * static_cast<std::size_t>(kPageSize));
    ASSERT_EQ(event.digest[0], 9) << "the namespace's";
    EXPECT_TRUE(event.parent == nullptr || found.contains(key_at(event.parent, 0)));
    texts.emplace_back(event.tokens, event.tokens + event.tokens_count);
    for (std::size_t i = 0; i < event.pages; ++i) found.insert(key_at(event.keys, i));
  }
};

class CEvents : public testing::Test {
 protected:
  void open(std::int64_t events_pages_max) {
    stemma_cache_options options;
    stemma_cache_options_init(&options, sizeof(options));
    options.pages = 4;
    options.page_size = kPageSize;
    options.context_tokens_max = 16;
    options.events_pages_max = events_pages_max;
    ASSERT_EQ(stemma_cache_open(&options, nullptr, &cache_), STEMMA_OK) << stemma_last_error();
    const std::array<std::uint8_t, 32> digest = {9};
    ASSERT_EQ(stemma_namespace_open(cache_, digest.data(), &ns_), STEMMA_OK);
  }
  void TearDown() override { stemma_cache_close(cache_); }

  void publish(const Text& tokens) {
    stemma_sequence* sequence = nullptr;
    ASSERT_EQ(stemma_begin(cache_, ns_, tokens.data(), tokens.size(), &sequence), STEMMA_OK);
    ASSERT_EQ(stemma_reserve(sequence, std::ssize(tokens)), STEMMA_OK);
    ASSERT_EQ(stemma_finish(sequence, tokens.data(), tokens.size()), STEMMA_OK);
  }
  Follower drain(Follower follower) {
    EXPECT_EQ(stemma_drain_events(cache_, &Follower::take, &follower), STEMMA_OK);
    return follower;
  }

  stemma_cache* cache_ = nullptr;
  std::int32_t ns_ = -1;
};

TEST_F(CEvents, TellWhatIsPublishedAndWhatIsEvicted) {
  open(16);
  publish(text(1, 8));
  Follower follower = drain({});
  EXPECT_THAT(follower.kinds, ElementsAre(STEMMA_STORED));
  EXPECT_THAT(follower.texts, ElementsAre(text(1, 8)));
  EXPECT_EQ(follower.found.size(), 2u);

  publish(text(50, 16));  // takes the pages of the first
  follower.kinds.clear();
  follower = drain(follower);
  EXPECT_EQ(follower.found.size(), 4u);
  EXPECT_THAT(follower.kinds, ::testing::Contains(STEMMA_REMOVED));
  EXPECT_THAT(drain({}).kinds, ElementsAre()) << "nothing has changed since";
}

TEST_F(CEvents, TellEverythingToWhoFollowsFromNowOn) {
  open(16);
  publish(text(1, 8));
  const Follower before = drain({});
  ASSERT_EQ(stemma_resend_events(cache_), STEMMA_OK);
  const Follower anew = drain({});
  EXPECT_EQ(anew.kinds.front(), STEMMA_CLEARED);
  EXPECT_EQ(anew.found, before.found);
}

TEST_F(CEvents, AreNotKeptWhereNobodyAskedForThem) {
  open(0);
  publish(text(1, 8));
  EXPECT_THAT(drain({}).kinds, ElementsAre());
}

TEST_F(CEvents, WrongArgumentsAreRefused) {
  open(16);
  EXPECT_EQ(stemma_drain_events(cache_, nullptr, nullptr), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(stemma_drain_events(nullptr, &Follower::take, nullptr), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(stemma_resend_events(nullptr), STEMMA_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace stemma
