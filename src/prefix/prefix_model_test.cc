// The radix prefix cache against the naive model: every sequence of commands up to a length in a
// small scope, and long random ones for every eviction order, page size and look-up hash. After
// each command both trees, usages, locked pages and evicted pages are the same, and the audit
// passes.
//
// Long mode, 1,000,000 commands and more with other seeds each time:
//   prefix_test --gtest_filter='*Random*' --gtest_shuffle --gtest_repeat=20
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/prng.h"
#include "prefix/prefix_twins.h"

namespace stemma {
namespace {

using Tokens = PrefixTwins::Tokens;

constexpr std::size_t kLengthMax = 6;
constexpr std::int64_t kRandomCommands = 50'000;

// Texts over two pages, a and b, that differ in the last token of a page only.
Tokens text_of(const std::string& letters, std::int64_t page_size) {
  Tokens tokens;
  for (const char letter : letters) {
    tokens.insert(tokens.end(), static_cast<std::size_t>(page_size - 1), 0);
    tokens.push_back(letter == 'a' ? 0 : 1);
  }
  return tokens;
}

// Runs every sequence of commands by its numbers; a command that does nothing cuts its branch.
class Enumeration {
 public:
  explicit Enumeration(const TwinsOptions& options) : options_(options) {}

  // All sequences that begin with `commands`.
  void run(std::vector<int>& commands) {
    for (int command = 0; command < kCommands; ++command) {
      PrefixTwins twins(options_);
      for (const int earlier : commands) apply(twins, earlier);
      if (!apply(twins, command)) continue;
      ++states_;
      const auto difference = twins.difference();
      commands.push_back(command);
      ASSERT_EQ(difference, std::nullopt) << testing::PrintToString(commands);
      if (commands.size() < kLengthMax) run(commands);
      if (testing::Test::HasFatalFailure()) return;
      commands.pop_back();
    }
  }

  std::int64_t states() const { return states_; }

 private:
  static constexpr int kCommands = 10;

  // False if the command had nothing to act on.
  bool apply(PrefixTwins& twins, int command) const {
    static const std::vector<std::string> texts = {"a", "ab", "aab", "abb", "bbbb"};
    if (command < 5) {
      if (twins.held() == 2) return false;
      twins.match(0, text_of(texts[static_cast<std::size_t>(command)], options_.page_size));
      return true;
    }
    if (command < 7) {  // publish everything, or one page
      if (twins.held() == 0) return false;
      const auto& last = twins.held(twins.held() - 1);
      if (last.lock.tokens() == static_cast<std::int64_t>(last.tokens.size())) return false;
      twins.insert(twins.held() - 1, command == 5 ? 4 : 1, 0);
      return true;
    }
    if (command == 7) {
      if (twins.held() == 0) return false;
      twins.unlock(0);
      return true;
    }
    twins.evict(command == 8 ? 1 : 3);
    return true;
  }

  TwinsOptions options_;
  std::int64_t states_ = 0;
};

TEST(PrefixModel, EverySequenceOfSixCommandsInASmallScope) {
  for (const std::int64_t page_size : {1, 2}) {
    Enumeration all({.page_size = page_size, .pages = 4});
    std::vector<int> commands;
    all.run(commands);
    EXPECT_GT(all.states(), 50'000);
  }
}

Tokens random_text(Prng& random, const TwinsOptions& options) {
  const std::int64_t pages = random.below(9);
  Tokens tokens;
  for (std::int64_t i = 0; i < pages * options.page_size; ++i) {
    tokens.push_back(static_cast<TokenId>(random.below(4) == 0 ? 1 : 0));
  }
  return tokens;
}

void random_command(PrefixTwins& twins, Prng& random, const TwinsOptions& options) {
  const auto ns = static_cast<std::size_t>(random.below(options.namespaces));
  const auto any_held = [&] {
    return static_cast<std::size_t>(random.below(static_cast<std::int64_t>(twins.held())));
  };
  switch (random.below(10)) {
    case 0:
    case 1:
    case 2:
      if (twins.held() < 8) twins.match(ns, random_text(random, options));
      break;
    case 3:
    case 4:
    case 5:
      if (twins.held() == 0) break;
      twins.insert(any_held(), 1 + random.below(4), static_cast<std::int32_t>(random.below(3)));
      break;
    case 6:
    case 7:
      if (twins.held() > 0) twins.unlock(any_held());
      break;
    case 8:
      twins.evict(random.below(6));
      break;
    default:
      twins.probe(ns, random_text(random, options));
      if (random.below(50) == 0) twins.reset();
  }
}

class RandomPrefixModel : public testing::TestWithParam<std::string> {};

std::uint64_t seed_of_run(std::uint64_t run) {
  const int first_seed =
      testing::GTEST_FLAG(shuffle) ? testing::UnitTest::GetInstance()->random_seed() : 1;
  return static_cast<std::uint64_t>(first_seed) * 1000 + run;
}

TEST_P(RandomPrefixModel, RandomCommandsKeepTheTwinsEqual) {
  std::uint64_t run = 0;
  for (const std::int64_t page_size : {1, 2, 4}) {
    for (const int hash_bits : {32, 8}) {
      const std::uint64_t seed = seed_of_run(run++);
      SCOPED_TRACE("seed " + std::to_string(seed));
      const TwinsOptions options{.page_size = page_size,
                                 .pages = 24,
                                 .namespaces = 2,
                                 .eviction = GetParam(),
                                 .hash_bits = hash_bits};
      PrefixTwins twins(options);
      Prng random(seed);
      for (std::int64_t i = 0; i < kRandomCommands / 42; ++i) {
        random_command(twins, random, options);
        ASSERT_EQ(twins.difference(), std::nullopt) << "command " << i;
      }
    }
  }
}

// Of three tenants two have quotas, which change now and then.
TEST_P(RandomPrefixModel, RandomCommandsUnderQuotasKeepTheTwinsEqual) {
  const std::uint64_t seed = seed_of_run(100);
  SCOPED_TRACE("seed " + std::to_string(seed));
  const TwinsOptions options{
      .page_size = 2, .pages = 24, .namespaces = 3, .eviction = GetParam(), .quotas = {6, 9}};
  PrefixTwins twins(options);
  Prng random(seed);
  for (std::int64_t i = 0; i < kRandomCommands / 14; ++i) {
    if (random.below(100) == 0) {
      twins.set_quota(static_cast<std::size_t>(random.below(2)), random.below(12));
    }
    random_command(twins, random, options);
    ASSERT_EQ(twins.difference(), std::nullopt) << "command " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(EveryOrder, RandomPrefixModel,
                         testing::Values("lru", "lfu", "fifo", "mru", "filo", "slru", "priority",
                                         "gdsf"),
                         [](const auto& order) { return order.param; });

}  // namespace
}  // namespace stemma
