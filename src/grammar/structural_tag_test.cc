#include "grammar/structural_tag.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "grammar/grammar_texts.h"

namespace stemma {
namespace {

using testing::ElementsAre;

TemplateJson tag_of(const std::string& format) {
  return TemplateJson::parse(R"({"type":"structural_tag","format":)" + format + "}");
}

ByteAutomaton automaton_of_tag(const TemplateJson& tag) {
  ByteGrammar grammar;
  const Result<ByteGrammar::Part> whole = add_structural_tag(tag, "tag", grammar);
  EXPECT_TRUE(whole.ok()) << whole.error().detail;
  return automaton_of(grammar, *whole);
}

// What of `texts` is of the format.
std::vector<std::string> accepted(const std::string& format,
                                  const std::vector<std::string>& texts) {
  ByteAutomaton automaton = automaton_of_tag(tag_of(format));
  std::vector<std::string> kept;
  for (const std::string& text : texts) {
    if (accepts(automaton, text)) kept.push_back(text);
  }
  return kept;
}

// What is wrong with it.
std::string fault_of(const std::string& format) {
  ByteGrammar grammar;
  const Result<ByteGrammar::Part> whole = add_structural_tag(tag_of(format), "tag", grammar);
  return whole.ok() ? "" : whole.error().detail;
}

TEST(StructuralTag, IsATextASchemaAnExpressionOrAGrammar) {
  EXPECT_THAT(accepted(R"({"type":"const_string","value":"so"})", {"so", "s", "soo"}),
              ElementsAre("so"));
  EXPECT_THAT(accepted(R"({"type":"json_schema","json_schema":{"type":"boolean"}})", {"true", "1"}),
              ElementsAre("true"));
  EXPECT_THAT(accepted(R"({"type":"json_schema","json_schema":true})", {"[1]", "x"}),
              ElementsAre("[1]"));
  EXPECT_THAT(accepted(R"({"type":"regex","pattern":"a+"})", {"aa", "b", ""}), ElementsAre("aa"));
  EXPECT_THAT(
      accepted(R"({"type":"grammar","grammar":"root ::= \"x\" root | \"y\""})", {"xxy", "xx"}),
      ElementsAre("xxy"));
}

TEST(StructuralTag, IsMadeOfOthers) {
  const std::string a = R"({"type":"const_string","value":"a"})";
  const std::string b = R"({"type":"const_string","value":"b"})";
  EXPECT_THAT(
      accepted(R"({"type":"sequence","elements":[)" + a + "," + b + "]}", {"ab", "a", "ba"}),
      ElementsAre("ab"));
  EXPECT_THAT(accepted(R"({"type":"or","elements":[)" + a + "," + b + "]}", {"a", "b", "ab", ""}),
              ElementsAre("a", "b"));
  EXPECT_THAT(accepted(R"({"type":"optional","content":)" + a + "}", {"", "a", "aa"}),
              ElementsAre("", "a"));
  EXPECT_THAT(accepted(R"({"type":"plus","content":)" + a + "}", {"", "a", "aa"}),
              ElementsAre("a", "aa"));
  EXPECT_THAT(accepted(R"({"type":"star","content":)" + a + "}", {"", "aa", "b"}),
              ElementsAre("", "aa"));
  EXPECT_THAT(
      accepted(R"({"type":"repeat","min":1,"max":2,"content":)" + a + "}", {"", "a", "aa", "aaa"}),
      ElementsAre("a", "aa"));
  EXPECT_THAT(accepted(R"({"type":"repeat","min":2,"max":-1,"content":)" + a + "}", {"a", "aaa"}),
              ElementsAre("aaa"));
}

TEST(StructuralTag, AnyTextGoesUpToTheEndOfItsTag) {
  const std::string thought =
      R"({"type":"tag","begin":"<think>","content":{"type":"any_text"},"end":"</think>"})";
  EXPECT_THAT(accepted(thought, {"<think></think>", "<think>so </think",
                                 "<think>a</think>b</think>", "<think>so, </then>\n</think>"}),
              ElementsAre("<think></think>", "<think>so, </then>\n</think>"));
  const std::string two_ends =
      R"({"type":"tag","begin":"<","content":{"type":"any_text"},"end":[">","]"]})";
  EXPECT_THAT(accepted(two_ends, {"<a>", "<a]", "<a]>", "<a"}), ElementsAre("<a>", "<a]"));
  const std::string within = R"({"type":"tag","begin":"<","end":">","content":{"type":"sequence",
      "elements":[{"type":"const_string","value":"it "},{"type":"any_text"}]}})";
  EXPECT_THAT(accepted(within, {"<it is>", "<it >>", "<is>"}), ElementsAre("<it is>"));
}

TEST(StructuralTag, AnyTextIsWithoutWhatIsExcluded) {
  EXPECT_THAT(accepted(R"({"type":"any_text"})", {"", "all <of> it"}),
              ElementsAre("", "all <of> it"));
  for (const char* const name : {"excludes", "excluded_str"}) {
    EXPECT_THAT(accepted(std::string(R"({"type":"any_text",")") + name + R"(":["no","never"]})",
                         {"on", "not", "nev", "nevernever"}),
                ElementsAre("on", "nev"));
  }
  const std::string never_ends =
      R"({"type":"tag","begin":">","content":{"type":"any_text"},"end":""})";
  EXPECT_THAT(accepted(never_ends, {">", ">a>b", "a"}), ElementsAre(">", ">a>b"));
}

// Calls in the way of Llama, beside whatever else is said.
std::string calls(const std::string& more) {
  return R"({"type":"triggered_tags","triggers":["<function="],"tags":[
      {"begin":"<function=one>","content":{"type":"json_schema","json_schema":{"type":"boolean"}},
       "end":"</function>"},
      {"type":"tag","begin":"<function=two>","content":{"type":"any_text"},"end":"</function>"}])" +
         more + "}";
}
const std::string kOne = "<function=one>true</function>";
const std::string kTwo = "<function=two>[</function>";

TEST(StructuralTag, TagsComeWhereATriggerDoes) {
  EXPECT_THAT(accepted(calls(""), {"", "some text, <func", kOne, "a" + kOne + "b" + kTwo + "c"}),
              testing::SizeIs(4));
  EXPECT_THAT(accepted(calls(""), {"<function=", "<function=three>1</function>",
                                   "<function=one>1</function>", kOne + "<function="}),
              ElementsAre());
}

TEST(StructuralTag, TheFirstTagMayHaveToComeOrEndAll) {
  const std::vector<std::string> texts = {"", "a" + kOne, kOne, kOne + "a", kOne + kTwo};
  EXPECT_THAT(accepted(calls(R"(,"at_least_one":true)"), texts),
              ElementsAre(kOne, kOne + "a", kOne + kTwo));
  EXPECT_THAT(accepted(calls(R"(,"stop_after_first":true)"), texts),
              ElementsAre("", "a" + kOne, kOne));
  EXPECT_THAT(accepted(calls(R"(,"at_least_one":true,"stop_after_first":true)"), texts),
              ElementsAre(kOne));
  EXPECT_THAT(accepted(calls(R"(,"excludes":["a"])"), texts), ElementsAre("", kOne, kOne + kTwo));
}

// The free text around them ends where the tag does; texts of inner tags are their own.
TEST(StructuralTag, TriggeredTagsEndWithTheTagAroundThem) {
  const std::string format =
      R"({"type":"tag","begin":"{","content":)" + calls("") + R"(,"end":"}"})";
  EXPECT_THAT(accepted(format, {"{}", "{a" + kOne + "b}", "{a}b}", "{<function=two>}</function>}"}),
              ElementsAre("{}", "{a" + kOne + "b}", "{<function=two>}</function>}"));
}

TEST(StructuralTag, TagsHaveASeparator) {
  const auto format = [](const std::string& more) {
    return R"({"type":"tags_with_separator","separator":", ","tags":[
        {"begin":"<","content":{"type":"regex","pattern":"[ab]"},"end":">"}])" +
           more + "}";
  };
  const std::vector<std::string> texts = {"", "<a>", "<a>, <b>", "<a><b>", "<a>, ", "<c>"};
  EXPECT_THAT(accepted(format(""), texts), ElementsAre("", "<a>", "<a>, <b>"));
  EXPECT_THAT(accepted(format(R"(,"at_least_one":true)"), texts), ElementsAre("<a>", "<a>, <b>"));
  EXPECT_THAT(accepted(format(R"(,"stop_after_first":true)"), texts), ElementsAre("", "<a>"));
}

TEST(StructuralTag, MarksDispatch) {
  const auto format = [](const std::string& more) {
    return R"({"type":"dispatch","rules":[["#",{"type":"regex","pattern":"\\d"}],
        ["$",{"type":"const_string","value":"x"}]])" +
           more + "}";
  };
  const std::vector<std::string> texts = {"", "a#1b$x", "#", "$y", "#1", "#1b"};
  EXPECT_THAT(accepted(format(""), texts), ElementsAre("", "a#1b$x", "#1", "#1b"));
  EXPECT_THAT(accepted(format(R"(,"loop":false)"), texts), ElementsAre("", "#1"));
}

TEST(StructuralTag, ThatOfOldIsTriggeredTags) {
  ByteAutomaton automaton = automaton_of_tag(TemplateJson::parse(R"({"type":"structural_tag",
      "structures":[{"begin":"<f>","schema":{"type":"integer"},"end":"</f>"}],
      "triggers":["<f"]})"));
  EXPECT_TRUE(accepts(automaton, "It is <f>12</f>, I think."));
  EXPECT_FALSE(accepts(automaton, "It is <f>a</f>."));
}

TEST(StructuralTag, WhatIsWrongIsToldByItsPlace) {
  EXPECT_EQ(fault_of(R"({})"), "tag.format.type: must be a string");
  EXPECT_EQ(fault_of(R"({"type":"token","token":1})"),
            "tag.format.type: \"token\" is no format that is known");
  EXPECT_EQ(fault_of(R"({"type":"json_schema","json_schema":{},"style":"qwen_xml"})"),
            "tag.format.style: only \"json\" is supported");
  EXPECT_EQ(fault_of(R"({"type":"or","elements":[]})"),
            "tag.format.elements: must be a list of at least one");
  EXPECT_EQ(fault_of(R"({"type":"sequence","elements":[{"type":"regex","pattern":"("}]})"),
            "tag.format.elements[0].pattern: at 1: a ( without a )");
  EXPECT_EQ(fault_of(R"({"type":"tag","begin":"","content":{"type":"json_schema",
                        "json_schema":{"type":1}},"end":""})"),
            "tag.format.content.json_schema.type: must be a name or a list of names");
  EXPECT_EQ(fault_of(R"({"type":"tag","begin":"a","content":{"type":"any_text"}})"),
            "tag.format.end: must be a string, or a list of strings");
  EXPECT_EQ(fault_of(R"({"type":"triggered_tags","triggers":["a","ab"],"tags":[
                        {"begin":"abc","content":{"type":"any_text"},"end":""}]})"),
            "tag.format.tags[0].begin: must begin with exactly one trigger");
  EXPECT_EQ(fault_of(R"({"type":"any_text","excludes":[""]})"),
            "tag.format.excludes[0]: must be a string, and not empty");
  EXPECT_EQ(fault_of(R"({"type":"repeat","min":2,"max":1,"content":{"type":"any_text"}})"),
            "tag.format.max: is below min");
  EXPECT_EQ(fault_of(R"({"type":"repeat","min":-1,"max":1,"content":{"type":"any_text"}})"),
            "tag.format.min: must be an integer from 0 to 1000000");
  ByteGrammar grammar;
  EXPECT_EQ(add_structural_tag(TemplateJson::object(), "tag", grammar).error().detail,
            "tag.format: missing");
}

// More than there are places in a text, which are one where they are alike.
TEST(StructuralTag, HasManyTagsWhoseBeginsAreAlike) {
  const std::string begin = "<t>" + std::string(1'000, 'a');
  std::string tags;
  for (int i = 1'000; i < 2'000; ++i) {
    tags += (i == 1'000 ? "" : ",") + (R"({"begin":")" + begin) + std::to_string(i) +
            R"(","end":"</t>","content":{"type":"const_string","value":"x"}})";
  }
  const std::string one = begin + "1999x</t>";
  const std::string other = begin + "1000x</t>";
  const std::string unknown = begin + "2000x</t>";
  const std::string texts = R"("tags":[)" + tags + "]}";
  const auto kept_of = [](const std::string& format, const std::vector<std::string>& all) {
    return accepted(format, all).size();
  };
  const std::string separated = R"({"type":"tags_with_separator","separator":",",)" + texts;
  EXPECT_EQ(kept_of(separated, {one, one + "," + other}), 2U);
  EXPECT_EQ(kept_of(separated, {begin, unknown}), 0U);
  const std::string triggered = R"({"type":"triggered_tags","triggers":["<t>"],)" + texts;
  EXPECT_EQ(kept_of(triggered, {"so " + one + " on", other}), 2U);
  EXPECT_EQ(kept_of(triggered, {unknown}), 0U);
}

TEST(StructuralTag, RefusesMoreTriggersThanFitInATextBeforeItReadsTags) {
  std::string triggers;
  for (int i = 0; i < 300; ++i) {
    triggers += (i == 0 ? "\"" : ",\"") + std::to_string(1'000 + i) + "\"";
  }
  EXPECT_EQ(fault_of(R"({"type":"triggered_tags","tags":[1],"triggers":[)" + triggers + "]}"),
            "tag.format: marks of 1200 bytes (at most 1024)");
}

}  // namespace
}  // namespace stemma
