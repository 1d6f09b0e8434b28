#include "grammar/token_trie.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/prng.h"
#include "grammar/grammar_texts.h"

namespace stemma {
namespace {

// With work in portions of `units`, or all at once.
std::vector<TokenId> allowed_behind(const TokenTrie& trie, ByteAutomaton& automaton,
                                    std::string_view text, std::size_t tokens,
                                    std::int64_t units = 0) {
  std::vector<std::uint64_t> bits(token_words(static_cast<std::int64_t>(tokens)));
  TokenTrie::Walk walk(state_behind(automaton, text), bits);
  const auto allow_some = [&] {
    units == 0 ? automaton.allow_any_work() : automaton.allow_work(units);
  };
  for (allow_some(); !trie.find_allowed(automaton, walk); allow_some()) {
    EXPECT_LE(automaton.work_left(), 0) << "it stops for lack of work alone";
  }
  automaton.allow_any_work();
  std::vector<TokenId> allowed;
  for (std::size_t token = 0; token < tokens; ++token) {
    if ((bits[token / 64] >> (token % 64) & 1) != 0) allowed.push_back(static_cast<TokenId>(token));
  }
  return allowed;
}

//   0 t   1 tr   2 true   3 truth   4 (none)   5 rue   6 tr   7 ue   8 e
TEST(TokenTrie, AllowsTokensWhoseBytesMayCome) {
  const std::vector<std::string> bytes = {"t", "tr", "true", "truth", "", "rue", "tr", "ue", "e"};
  const TokenTrie trie(bytes);
  ByteAutomaton automaton = automaton_of_schema(R"({"type":"boolean"})");
  EXPECT_THAT(allowed_behind(trie, automaton, "", bytes.size()), testing::ElementsAre(0, 1, 2, 6));
  EXPECT_THAT(allowed_behind(trie, automaton, "t", bytes.size()), testing::ElementsAre(5));
  EXPECT_THAT(allowed_behind(trie, automaton, "tr", bytes.size()), testing::ElementsAre(7));
  EXPECT_THAT(allowed_behind(trie, automaton, "true", bytes.size()), testing::ElementsAre());
}

TEST(TokenTrie, OfNoTokensAllowsNone) {
  const TokenTrie trie({"", ""});
  ByteAutomaton automaton = automaton_of_schema("true");
  EXPECT_THAT(allowed_behind(trie, automaton, "", 2), testing::ElementsAre());
}

// Against every token by itself, behind texts of all kinds.
class TokenTrieOf : public testing::TestWithParam<const char*> {};

TEST_P(TokenTrieOf, AllowsWhatEachTokenAloneMay) {
  Prng prng(7);
  std::vector<std::string> bytes(700);
  for (std::string& token : bytes) {
    constexpr std::string_view kPieces[] = {
        "\"", "\\",   "{",  "}",    "[",    "]",        ",",        ": ",      " ", "\n",
        "0",  "19",   ".",  "e",    "E-",   "true",     "fals",     "nul",     "u", "word",
        "é",  "日本", "😀", "\xC3", "\xA9", "\xF0\x9F", "\x98\x80", "\xED\xA0"};
    const std::int64_t length = prng.below(5);
    for (std::int64_t i = 0; i < length; ++i) token += kPieces[prng.below(std::ssize(kPieces))];
  }
  const TokenTrie trie(bytes);
  ByteAutomaton automaton = automaton_of_schema(GetParam());
  for (int i = 0; i < 200; ++i) {
    std::string text = drawn_text(automaton, prng, 40);
    text.resize(static_cast<std::size_t>(prng.below(std::ssize(text) + 1)));
    std::vector<TokenId> alone;
    for (std::size_t token = 0; token < bytes.size(); ++token) {
      const bool may = state_behind(automaton, text + bytes[token]) != ByteAutomaton::kDead;
      if (may && !bytes[token].empty()) alone.push_back(static_cast<TokenId>(token));
    }
    ASSERT_EQ(allowed_behind(trie, automaton, text, bytes.size()), alone) << text;
  }
}

// States that are not known yet, each time.
TEST_P(TokenTrieOf, InPortionsAllowsTheSameForTheSameWork) {
  Prng prng(8);
  std::vector<std::string> bytes(300);
  for (std::string& token : bytes) {
    constexpr std::string_view kPieces[] = {"\"", "w", "rd", " ", "é", "日", "tru", "e", ":", "{"};
    for (std::int64_t i = prng.below(6); i > 0; --i) token += kPieces[prng.below(10)];
  }
  const TokenTrie trie(bytes);
  ByteAutomaton automaton = automaton_of_schema(GetParam());
  for (int i = 0; i < 30; ++i) {
    std::string text = drawn_text(automaton, prng, 40);
    text.resize(static_cast<std::size_t>(prng.below(std::ssize(text) + 1)));
    std::vector<std::vector<TokenId>> allowed;
    std::vector<std::int64_t> work;
    for (const std::int64_t units : {0, 1, 7, 1'000}) {
      ByteAutomaton afresh = automaton_of_schema(GetParam());
      allowed.push_back(allowed_behind(trie, afresh, text, bytes.size(), units));
      work.push_back(afresh.work_done());
    }
    EXPECT_THAT(allowed, testing::Each(allowed[0])) << text;
    EXPECT_THAT(work, testing::Each(work[0])) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Schemas, TokenTrieOf,
    testing::Values(
        "true", R"({"type":"string","maxLength":7})",
        R"({"type":"string","minLength":3,"maxLength":90})", R"({"pattern":"^[ -~]{2,20}é?$"})",
        R"({"pattern":"^.{0,5}$"})", R"({"pattern":"^[a-zé-￿]*$"})",
        R"({"properties":{"word":{},"é":{}},"additionalProperties":{"type":"string"}})"));

}  // namespace
}  // namespace stemma
