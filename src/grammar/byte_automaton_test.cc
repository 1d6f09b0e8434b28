#include "grammar/byte_automaton.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/byte_regex.h"
#include "grammar/ebnf.h"
#include "grammar/grammar_texts.h"

namespace stemma {
namespace {

using Part = ByteGrammar::Part;

TEST(ByteAutomaton, SaysWhatMayComeNext) {
  ByteGrammar grammar;
  ByteAutomaton automaton =
      automaton_of(grammar, grammar.either({grammar.text("ab"), grammar.text("abc")}));
  EXPECT_FALSE(automaton.may_end(automaton.start()));
  const ByteAutomaton::State behind_ab = state_behind(automaton, "ab");
  EXPECT_TRUE(automaton.may_end(behind_ab));
  EXPECT_TRUE(automaton.may_go_on(behind_ab));
  const ByteAutomaton::State whole = state_behind(automaton, "abc");
  EXPECT_TRUE(automaton.may_end(whole));
  EXPECT_FALSE(automaton.may_go_on(whole));
  EXPECT_EQ(automaton.next(whole, 'x'), ByteAutomaton::kDead);
}

TEST(ByteAutomaton, IsInOneStateWhereTextsGoOnAlike) {
  ByteAutomaton automaton = automaton_of_schema(R"({"type":"string"})");
  const ByteAutomaton::State inside = state_behind(automaton, "\"a");
  EXPECT_EQ(state_behind(automaton, "\"many words, one place"), inside);
  const std::size_t size = automaton.size();
  EXPECT_EQ(state_behind(automaton, "\"" + std::string(10'000, 'x')), inside);
  EXPECT_EQ(automaton.size(), size);
}

TEST(ByteAutomaton, KeepsWhatItIsToldAndForgetsTheRest) {
  ByteAutomaton automaton = automaton_of_schema(R"({"type":"array"})");
  const std::size_t at_first = automaton.size();
  ByteAutomaton::State inside = state_behind(automaton, R"([[1, "a)");
  ByteAutomaton::State other = state_behind(automaton, R"([{"b": [nu)");
  state_behind(automaton, R"({"much": ["else", [[[[[[[[]]]]]]]]]})");
  const std::size_t before = automaton.size();
  ByteAutomaton::State* const kept[] = {&inside, &other};
  automaton.keep_only(kept);
  EXPECT_LT(automaton.size(), before);
  EXPECT_GT(automaton.size(), at_first);
  const auto ends_with = [&](ByteAutomaton::State state, std::string_view rest) {
    for (const char byte : rest) {
      if (state != ByteAutomaton::kDead)
        state = automaton.next(state, static_cast<std::uint8_t>(byte));
    }
    return state != ByteAutomaton::kDead && automaton.may_end(state);
  };
  EXPECT_TRUE(ends_with(inside, "bc\"]]"));
  EXPECT_FALSE(ends_with(inside, "bc\"]}"));
  EXPECT_TRUE(ends_with(other, "ll]}]"));
  EXPECT_FALSE(ends_with(other, "ll}]]"));
  EXPECT_EQ(state_behind(automaton, R"([[1, "a)"), inside);
  automaton.keep_only({});
  EXPECT_EQ(automaton.size(), at_first);
  EXPECT_TRUE(accepts(automaton, R"([[1, "a"], {"b": [null]}])"));
}

// list = "[" list "]" | "(" list ")" | "x", and each of the two as often again: 2^n ways to read n.
TEST(ByteAutomaton, WhatIsReadInManyWaysIsFollowedAsOne) {
  ByteGrammar grammar;
  const Part list = grammar.rule();
  const auto enclosed = [&] {
    return grammar.sequence({grammar.text("["), list, grammar.text("]")});
  };
  grammar.define(list, grammar.either({enclosed(), enclosed(), grammar.text("x")}));
  ByteAutomaton automaton = automaton_of(grammar, list);
  const std::string deep = std::string(40, '[') + "x" + std::string(40, ']');
  EXPECT_TRUE(accepts(automaton, deep));
  EXPECT_LT(automaton.size(), deep.size() * 3);
  EXPECT_FALSE(accepts(automaton, deep + "]"));
}

// Readings begin at every character, each of many places.
TEST(ByteAutomaton, WhatIsReadInManyWaysComesToAnEnd) {
  struct Case {
    const char* schema;
    std::string text;
  };
  const std::string long_text = "\"" + std::string(60, 'x') + "\"";
  for (const auto& [schema, text] : std::vector<Case>{
           {R"({"type":"string","pattern":".{9,}"})", "\"123456789\""},
           {R"({"type":"string","pattern":".{9,}"})", long_text},
           {R"({"type":"string","pattern":".{20}$"})", long_text},
           {R"({"type":"string","pattern":"a.{50}$"})",
            "\"" + std::string(110, 'a') + std::string(50, 'x') + "\""},
           {R"({"type":"string","pattern":"\\S{8,}"})", "\"12345678\""},
           {R"({"type":"string","pattern":"[^y]{10,}"})", long_text},
           {R"({"type":"string","pattern":".{50,}"})", long_text},
           {R"({"type":"string","pattern":".{400,}"})", "\"" + std::string(400, 'x') + "\""}}) {
    ByteAutomaton automaton = automaton_of_schema(schema);
    EXPECT_TRUE(accepts(automaton, text)) << schema;
  }
  for (const auto& [expression, text] :
       std::vector<Case>{{R"([\s\S]*\S{20})", std::string(20, 'x')},
                         {".*.{40,}", std::string(40, 'x')},
                         {".*[^y]{600}", std::string(600, 'x')},
                         {".*[^y]{600}", std::string(1'000, 'x')}}) {
    ByteGrammar grammar;
    const auto whole = add_regex(expression, RegexMatch::kWhole, grammar);
    ByteAutomaton automaton = automaton_of(grammar, *whole);
    EXPECT_TRUE(accepts(automaton, text)) << expression;
  }
}

TEST(ByteAutomaton, ManyMembersAndChoicesAreAllFollowed) {
  std::string members;
  std::string choices;
  for (int i = 0; i < 600; ++i) {
    members += (i > 0 ? ",\"m" : "\"m") + std::to_string(i) + R"(":{"type":"null"})";
    choices += (i > 0 ? "," : "") + (R"({"type":"object","properties":{"m)" + std::to_string(i)) +
               R"(":{"type":"null"}},"required":["m)" + std::to_string(i) + R"("]})";
  }
  ByteAutomaton closed = automaton_of_schema(R"({"type":"object","properties":{)" + members +
                                             R"(},"additionalProperties":false})");
  EXPECT_TRUE(accepts(closed, "{}"));
  EXPECT_TRUE(accepts(closed, R"({"m0": null, "m599": null})"));
  ByteAutomaton any_of = automaton_of_schema(R"({"anyOf":[)" + choices + "]}");
  EXPECT_TRUE(accepts(any_of, R"({"m0": null})"));
  EXPECT_TRUE(accepts(any_of, R"({"m599": null})"));
}

// Choices that begin with the same free member, as those of types with a common base do.
TEST(ByteAutomaton, ChoicesThatBeginAlikeAreAllFollowed) {
  struct Case {
    std::string first;  // a member
    std::string value;
  };
  for (const auto& [first, value] :
       std::vector<Case>{{R"({"type":"string"})", R"("some \n thought")"},
                         {R"({"type":"string"})", R"("")"},
                         {R"({"type":"number"})", "-12.5"},
                         {R"({"type":"string","format":"date"})", R"("2024-01-01")"},
                         {R"({"type":"array","items":{"type":"string"}})", R"(["a", "b"])"},
                         {"{}", R"([{"a": [1, "b"]}])"}}) {
    for (const int n : {33, 64, 200}) {
      std::string choices;
      for (int i = 0; i < n; ++i) {
        choices += (i > 0 ? "," : "") + (R"({"type":"object","properties":{"first":)" + first) +
                   R"(,"action":{"const":"a)" + std::to_string(i) +
                   R"("}},"required":["first","action"],"additionalProperties":false})";
      }
      const std::string any_of = R"({"anyOf":[)" + choices + "]}";
      ByteAutomaton one = automaton_of_schema(any_of);
      ByteAutomaton list = automaton_of_schema(R"({"type":"array","items":)" + any_of + "}");
      for (int i = 0; i < n; ++i) {
        const std::string text =
            R"({"first": )" + value + R"(, "action": "a)" + std::to_string(i) + "\"}";
        EXPECT_TRUE(accepts(one, text)) << text;
        EXPECT_TRUE(accepts(list, "[" + text + ", " + text + "]")) << text;
      }
      EXPECT_FALSE(accepts(one, R"({"first": )" + value + R"(, "action": "b"})"));
    }
  }
}

TEST(ByteAutomaton, AlternativesOfRulesThatBeginAlikeAreAllFollowed) {
  for (const int n : {33, 64, 200}) {
    std::string root = "root ::= ";
    for (int i = 0; i < n; ++i) root += (i > 0 ? "| s \"a" : "s \"a") + std::to_string(i) + "\" ";
    ByteGrammar grammar;
    const auto whole = add_ebnf(root + "\ns ::= [0-9]+ \",\"\n", grammar);
    ASSERT_TRUE(whole.ok());
    ByteAutomaton automaton = automaton_of(grammar, *whole);
    for (int i = 0; i < n; ++i) {
      EXPECT_TRUE(accepts(automaton, "15,a" + std::to_string(i))) << i << " of " << n;
    }
    EXPECT_FALSE(accepts(automaton, "15,a" + std::to_string(n)));
  }
}

// Where the middle is may be said in as many ways as the text has characters.
TEST(ByteAutomaton, TextsWhoseMiddleIsAnywhereAreFollowed) {
  ByteGrammar grammar;
  const auto whole =
      add_ebnf("root ::= \"a\" root \"a\" | \"b\" root \"b\" | \"a\" | \"b\"", grammar);
  ASSERT_TRUE(whole.ok());
  ByteAutomaton automaton = automaton_of(grammar, *whole);
  const std::string half = std::string(150, 'a') + "bbab";
  const std::string text = half + "b" + std::string(half.rbegin(), half.rend());
  EXPECT_TRUE(accepts(automaton, text));
  EXPECT_FALSE(accepts(automaton, text + "a"));
  EXPECT_FALSE(accepts(automaton, text + "bb"));
}

TEST(ByteAutomaton, WithoutWorkLeftKeepsNothingOfWhatItDidNotLookFor) {
  ByteAutomaton automaton = automaton_of_schema(R"({"type":"boolean"})");
  const std::size_t size = automaton.size();
  automaton.allow_work(0);
  EXPECT_EQ(automaton.next(automaton.start(), 't'), ByteAutomaton::kDead);
  EXPECT_TRUE(automaton.stopped());
  EXPECT_FALSE(automaton.exhausted());
  EXPECT_EQ(automaton.size(), size);
  EXPECT_EQ(automaton.work_done(), 0);
  automaton.allow_work(1);
  EXPECT_NE(automaton.next(automaton.start(), 't'), ByteAutomaton::kDead) << "what begins is done";
  EXPECT_FALSE(automaton.stopped());
  EXPECT_LE(automaton.work_left(), 0);
  EXPECT_GT(automaton.work_done(), 0);
}

TEST(ByteAutomaton, KnowsNoRunOfCharactersBeforeItWasLookedFor) {
  ByteAutomaton automaton = automaton_of_schema(R"({"type":"string","maxLength":9})");
  const ByteAutomaton::State inside = state_behind(automaton, "\"");
  for (std::int64_t portions = 0; portions < 1'000; ++portions) {
    automaton.allow_work(1);
    const int run = automaton.free_run(inside, ByteAutomaton::Text::kAny);
    if (automaton.stopped()) continue;
    EXPECT_EQ(run, 9);
    EXPECT_GT(portions, 9);
    return;
  }
  FAIL() << "each portion finds a state at least";
}

// A text may be at each of the letters, as all before may be left out.
TEST(ByteAutomaton, AByteThatNeedsTooMuchExhaustsIt) {
  ByteGrammar grammar;
  const Part letters = grammar.repeated(grammar.optional(grammar.text("b")), 120'000, 120'000);
  ByteAutomaton automaton =
      automaton_of(grammar, grammar.sequence({grammar.text("a"), letters, grammar.text("c")}));
  automaton.allow_work(1);
  EXPECT_EQ(automaton.next(automaton.start(), 'a'), ByteAutomaton::kDead);
  EXPECT_TRUE(automaton.exhausted());
}

// root = "a" and then rules of which each may be nothing in many ways.
TEST(ByteAutomaton, NothingInManyWaysIsNothingOnce) {
  ByteGrammar grammar;
  Part nothing = grammar.rule(grammar.sequence({}));
  for (int i = 0; i < 24; ++i) {
    nothing =
        grammar.rule(grammar.either({grammar.sequence({nothing, nothing}), grammar.sequence({})}));
  }
  ByteAutomaton automaton =
      automaton_of(grammar, grammar.sequence({grammar.text("a"), nothing, grammar.text("b")}));
  EXPECT_TRUE(accepts(automaton, "ab"));
  EXPECT_FALSE(accepts(automaton, "a"));
  EXPECT_LT(automaton.work_done(), 1'000);
}

}  // namespace
}  // namespace stemma
