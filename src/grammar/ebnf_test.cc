#include "grammar/ebnf.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/json_text.h"
#include "grammar/grammar_texts.h"

namespace stemma {
namespace {

struct EbnfCase {
  std::string rules;
  std::vector<std::string> texts;
  std::vector<std::string> others;
};

void PrintTo(const EbnfCase& one, std::ostream* out) {
  *out << one.rules;
}

ByteAutomaton automaton_of_ebnf(std::string_view rules) {
  ByteGrammar grammar;
  const auto whole = add_ebnf(rules, grammar);
  STEMMA_CHECK(whole.ok(), whole.ok() ? "" : whole.error().detail.c_str());
  return automaton_of(grammar, *whole);
}

class EbnfTexts : public testing::TestWithParam<EbnfCase> {};

TEST_P(EbnfTexts, AreThoseOfRoot) {
  ByteAutomaton automaton = automaton_of_ebnf(GetParam().rules);
  for (const std::string& text : GetParam().texts) EXPECT_TRUE(accepts(automaton, text)) << text;
  for (const std::string& text : GetParam().others) EXPECT_FALSE(accepts(automaton, text)) << text;
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, EbnfTexts,
    testing::Values(
        EbnfCase{R"(root ::= "abc")", {"abc"}, {"ab", "abcd"}},
        EbnfCase{R"(root ::= "a" "b" | "c" |)", {"ab", "c", ""}, {"a", "abc"}},
        EbnfCase{R"(root ::= ("a" | "b") "c")", {"ac", "bc"}, {"c", "ab"}},
        EbnfCase{R"(root ::= "a"* "b"+ "c"? "d"{2} "e"{1,} "f"{0,2})",
                 {"bdde", "aabbcddeeff"},
                 {"dde", "bddefff"}},
        EbnfCase{R"(root ::= [a-c_] [^a-c\n])", {"ad", "_é"}, {"aa", "b\n", "dd"}},
        EbnfCase{R"(root ::= [\]\-\\"]+)", {"]-\\\""}, {"a"}},
        EbnfCase{R"(root ::= . .)", {"é\n", "ab"}, {"a", "abc"}},
        EbnfCase{R"(root ::= "\"\\\n\t\r\[\x41\u00e9\U0001F600é")", {"\"\\\n\t\r[Aé😀é"}, {"A"}},
        EbnfCase{R"(root ::= "")", {""}, {"a"}},
        EbnfCase{"root ::= a(\"b\"|\"c\")\na::=\"x\"", {"xb", "xc"}, {"x"}},
        EbnfCase{"a-b.c_1 ::= \"x\" y\nroot ::= a-b.c_1 # none of these: y ::= \"z\"\ny ::= [y]",
                 {"xy"},
                 {"xz"}},
        EbnfCase{
            "# two lines\nroot\n  ::= \"a\"\n  | \"b\" # more\n    tail\n\ntail ::= (\n \"c\"\n)",
            {"a", "bc"},
            {"b", "ac"}},
        EbnfCase{R"g(root ::= "(" root ")" | "x")g", {"x", "((x))"}, {"((x)", "()"}},
        EbnfCase{R"(root ::= [\U0001F600-\U0001F64F\u00e9\a\e]+)", {"😀é\x07\x1B"}, {"U", "0"}},
        EbnfCase{R"(root ::= "\b\f\v\a\e\'\?")", {"\b\f\v\a\x1B'?"}, {"b"}},
        EbnfCase{"root ::= 2fa-kv -x\n2fa-kv ::= \"x\"\n-x ::= [y]", {"xy"}, {"x"}},
        EbnfCase{"root ::= \"a\nb\" | # none: \"\n\"c\"", {"a\nb", "c"}, {"ab"}},
        EbnfCase{"root ::= item.item. | a.b\nitem ::= \"x\"\na.b ::= \"y\"", {"xyxz", "y"}, {"xx"}},
        EbnfCase{"root ::= (\"#\" \"|\") [#)]", {"#|#", "#|)"}, {"#|"}}));

TEST(Ebnf, NamesTheLineOfAMistake) {
  const auto refusal = [](std::string_view rules) {
    ByteGrammar grammar;
    const auto whole = add_ebnf(rules, grammar);
    return whole.ok() ? "" : whole.error().detail;
  };
  EXPECT_EQ(refusal("root ::= \"a\"\n\nb ::= c"), "line 3: no rule is c");
  EXPECT_EQ(refusal("rooot ::= \"a\""), "line 1: no rule is root");
  EXPECT_EQ(refusal("root ::= \"a\"\nroot ::= \"b\""), "line 2: a second rule root");
  EXPECT_EQ(refusal("root ::= \"a"), "line 1: a text without an end");
  EXPECT_EQ(refusal("root ::= \"a\n\nb"), "line 1: a text without an end");
  EXPECT_EQ(refusal("root ::= [a"), "line 1: a [ without a ]");
  EXPECT_EQ(refusal("root ::=\n[b-a]"), "line 2: [b-a]: at 4: a range in the wrong order");
  EXPECT_EQ(refusal("root ::= (\"a\"\nb ::= \"c\""), "line 2: a ( without a )");
  EXPECT_EQ(refusal("root ::= \"a\")"), "line 1: a ) without a (");
  EXPECT_EQ(refusal("root ::= * \"a\""), "line 1: neither a text nor a class, a group or a name");
  EXPECT_EQ(refusal("root ::= \"a\" + *"), "line 1: a quantifier of a quantifier");
  EXPECT_EQ(refusal("root ::= \"a\"{}"), "line 1: { without a count");
  EXPECT_EQ(refusal("root ::= \"a\"{1"), "line 1: { without a }");
  EXPECT_EQ(refusal("root ::= \"a\"{2,1}"), "line 1: counts in the wrong order");
  EXPECT_EQ(refusal("root ::= \"\\q\""), "line 1: \\ without a character");
  EXPECT_EQ(refusal("root ::= \"\\x4\""), "line 1: a character without its digits");
  EXPECT_EQ(refusal("root ::= \"\\ud800\""), "line 1: no character of Unicode");
  EXPECT_EQ(refusal("root ::= [\\U0001F60]"), "line 1: a character without its digits");
  EXPECT_EQ(refusal("root ::= [\\U00110000]"), "line 1: no character of Unicode");
  EXPECT_EQ(refusal("root ::= [a\\"), "line 1: a [ without a ]");
  EXPECT_EQ(refusal("root ::= item.b\nitem ::= \"x\""), "line 1: no rule is b");
  EXPECT_EQ(refusal(".a ::= \"a\""), "line 1: no rule begins here: name ::= ...");
  EXPECT_EQ(refusal("root ::= " + std::string(200, '(') + std::string(200, ')')),
            "line 1: groups nested too deep");
}

TEST(Ebnf, RefusesByNameWhatHasNoGrammar) {
  const auto refusal = [](std::string_view rules) {
    ByteGrammar grammar;
    const auto whole = add_ebnf(rules, grammar);
    EXPECT_FALSE(whole.ok());
    return whole.ok() ? Error{} : whole.error();
  };
  EXPECT_EQ(refusal("start: \"a\"").detail,
            "line 1: a grammar without ::= (of Lark?) is not supported");
  EXPECT_EQ(refusal("root ::= \"a\" (= \"b\")").detail,
            "line 1: what looks ahead is not supported");
  EXPECT_EQ(refusal("root ::= <think> .*").detail, "line 1: a token is not supported");
  const Error macro = refusal("root ::= TagDispatch((\"<a>\", b))");
  EXPECT_EQ(macro.detail, "line 1: the macro TagDispatch is not supported");
  EXPECT_EQ(macro.code, ErrorCode::kUnsupported);
}

TEST(Ebnf, RulesThatBeginWithThemselvesAreRefused) {
  ByteGrammar grammar;
  const auto whole = add_ebnf("root ::= root \"a\" | \"b\"", grammar);
  ASSERT_TRUE(whole.ok());
  EXPECT_FALSE(grammar.compile(*whole).ok());
}

constexpr std::string_view kJson = R"(
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [1-9] [0-9]{0,1})? ws
# white space
ws     ::= | " " | "\n" [ \t]{0,20}
)";

// What is behind is no mistake any more: it is not read.
TEST(Ebnf, IsNotReadFurtherThanAGrammarHasRoomFor) {
  std::string rules = "root ::= ";
  while (rules.size() < 3 * ByteGrammar::kPartsMax) rules += "[^a] . | ";
  ByteGrammar grammar;
  const auto whole = add_ebnf(rules + "nobody )", grammar);
  ASSERT_FALSE(whole.ok());
  EXPECT_EQ(whole.error().code, ErrorCode::kTooLarge);
  EXPECT_EQ(whole.error().detail, "more than 1048576 parts");
}

TEST(Ebnf, TextsOfAGrammarOfJsonAreJson) {
  ByteAutomaton automaton = automaton_of_ebnf(kJson);
  Prng prng(static_cast<std::uint64_t>(testing::UnitTest::GetInstance()->random_seed()));
  std::size_t bytes = 0;
  for (int i = 0; i < 200; ++i) {
    const std::string text = drawn_text(automaton, prng, 200);
    bytes += text.size();
    ASSERT_TRUE(accepts(automaton, text)) << text;
    // Halves of characters may be drawn as \ud800, of which a reader may say that they are none.
    if (text.find("\\u") != std::string::npos) continue;
    EXPECT_TRUE(TemplateJson::accept(text)) << text;
  }
  EXPECT_GT(bytes, 200u * 20);
  EXPECT_TRUE(accepts(automaton, R"({"a": [1, -2.5e3, "x\n\u0041"], "b": {"c": null}})"));
  EXPECT_FALSE(accepts(automaton, R"({"a": 01})"));
}

}  // namespace
}  // namespace stemma
