// Schemas that say what may not be: the texts that are left, judged by what the words mean; and
// what has no such form, refused by name.
#include "grammar/schema_exclusion.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "grammar/grammar_texts.h"

namespace stemma {
namespace {

struct ExclusionCase {
  std::string schema;
  std::vector<std::string> allowed;
  std::vector<std::string> refused;
};

void expect_texts(const std::vector<ExclusionCase>& cases) {
  for (const ExclusionCase& one : cases) {
    ByteAutomaton automaton = automaton_of_schema(one.schema);
    for (const std::string& text : one.allowed) {
      EXPECT_TRUE(accepts(automaton, text)) << one.schema << ' ' << text;
    }
    for (const std::string& text : one.refused) {
      EXPECT_FALSE(accepts(automaton, text)) << one.schema << ' ' << text;
    }
  }
}

std::string without(const std::string& schema) {
  const Result<TemplateJson> rest = without_not(TemplateJson::parse(schema));
  return rest.ok() ? rest->dump() : rest.error().detail;
}

TEST(SchemaExclusion, OfTypesLeavesTheOthers) {
  expect_texts({
      {R"({"type":["string","null","integer"],"not":{"type":"null"}})", {"\"a\"", "1"}, {"null"}},
      {R"({"not":{"type":["object","array","number"]}})",
       {"\"a\"", "true", "null"},
       {"1", "1.5", "[]", "{}"}},
      {R"({"minLength":2,"not":{"type":"null"}})", {"\"ab\""}, {"\"a\"", "null", "1"}},
      {R"({"enum":["a",1,1.5,null],"not":{"type":"integer"}})", {"\"a\"", "1.5", "null"}, {"1"}},
      {R"({"type":["integer","null"],"not":{"type":"number"}})", {"null"}, {"1"}},
  });
}

TEST(SchemaExclusion, OfValuesLeavesTheOthers) {
  expect_texts({
      {R"({"enum":["a","b",1],"not":{"const":"a"}})", {"\"b\"", "1"}, {"\"a\""}},
      {R"({"enum":[1,2,3],"not":{"enum":[1.0,3]}})", {"2"}, {"1", "3"}},
      {R"({"type":"boolean","not":{"const":true}})", {"false"}, {"true"}},
      {R"({"type":["boolean","null"],"not":{"enum":[null,false]}})", {"true"}, {"false", "null"}},
      {R"({"type":"string","not":{"enum":["","none"]}})",
       {"\"no\"", "\"nones\"", "\"x\""},
       {"\"\"", "\"none\"", "1"}},
      {R"({"type":["integer","string"],"not":{"const":"x"}})", {"\"y\"", "7"}, {"\"x\""}},
      {R"({"type":["integer","null"],"minimum":3,"not":{"const":null}})", {"3"}, {"2", "null"}},
  });
}

TEST(SchemaExclusion, OfSeveralLeavesWhatNoneIs) {
  expect_texts({
      {R"({"type":["string","null","boolean"],"not":{"anyOf":[{"type":"null"},{"const":true}]}})",
       {"\"a\"", "false"},
       {"null", "true"}},
      {R"({"allOf":[{"type":["string","null"],"not":{"type":"null"}},{"not":{"const":"a"}}]})",
       {"\"b\""},
       {"null", "\"a\""}},
  });
}

// As generators write a member that may not be there.
TEST(SchemaExclusion, OfAnythingLeavesNothing) {
  expect_texts({
      {R"({"anyOf":[{"not":{}},{"type":"null"}]})", {"null"}, {"1", "{}"}},
      {R"({"properties":{"a":{"not":{"title":"any"}},"b":{"type":"null"}},)"
       R"("additionalProperties":false})",
       {"{}", R"({"b": null})"},
       {R"({"a": 1})"}},
      {R"({"type":"null","not":false})", {"null"}, {"1"}},
  });
  ByteGrammar grammar;
  const auto nothing = add_json_schema({{"not", TemplateJson::object()}}, {.path = "s"}, grammar);
  ASSERT_FALSE(nothing.ok());
  EXPECT_EQ(nothing.error().detail, "s: not leaves nothing");
}

TEST(SchemaExclusion, ThatIsNoSchemaIsRefused) {
  EXPECT_EQ(without(R"({"type":"number","not":{"type":"integer"}})"),
            "not of integers is not supported");
  EXPECT_EQ(without(R"({"type":"integer","not":{"const":0}})"),
            "not of values of integer is not supported");
  EXPECT_EQ(without(R"({"type":"string","maxLength":3,"not":{"const":"a"}})"),
            "not of values of string is not supported");
  EXPECT_EQ(without(R"({"not":{"required":["a"]}})"), "not of required is not supported");
  EXPECT_EQ(without(R"({"not":{"type":"object","required":["a"]}})"),
            "not of several words is not supported");
  EXPECT_EQ(without(R"({"not":5})"), "not must be an object or a boolean");
  EXPECT_EQ(without(R"({"not":{"type":"x"}})"), "not.type must be a name or a list of names");
  EXPECT_EQ(without(R"({"not":{"enum":1}})"), "not.enum must be a list");
}

// As generators write maps whose keys are of an enum.
TEST(SchemaExclusion, NamesThatAreListedAreTheMembers) {
  expect_texts({
      {R"({"type":"object","propertyNames":{"enum":["a","b"]},)"
       R"("additionalProperties":{"type":"null"}})",
       {"{}", R"({"a": null})", R"({"a": null, "b": null})", R"({"b": null})"},
       {R"({"c": null})", R"({"a": 1})"}},
      {R"({"type":"object","propertyNames":{"type":"string","enum":["a","a"]},"required":["a"],)"
       R"("additionalProperties":{"type":"null"}})",
       {R"({"a": null})"},
       {"{}", R"({"a": null, "a": null})"}},
      {R"({"propertyNames":{"$ref":"#/$defs/k"},"properties":{"a":{"type":"null"},"z":{}},)"
       R"("$defs":{"k":{"title":"K","const":"a"}}})",
       {"{}", R"({"a": null})"},
       {R"({"z": 1})", R"({"a": 1})"}},
      {R"({"type":"object","propertyNames":{"enum":["a"]},"additionalProperties":false})",
       {"{}"},
       {R"({"a": 1})"}},
  });
}

// Of another way to write one of them nothing comes.
TEST(SchemaExclusion, StringsThatAreLeftHaveEscapes) {
  expect_texts({
      {R"({"type":"string","not":{"const":""}})",
       {R"("a\nb")", R"("a\"b")", R"("\n")", R"("\"")", R"("\u0001")", R"("a\u00e9")"},
       {R"("")"}},
      {R"({"type":"string","not":{"const":"a"}})",
       {R"("b\u0061")", R"("a\n")", R"("aa\\")", R"("\ta")"},
       {R"("a")", R"("\u0061")"}},
      {R"({"type":"string","not":{"enum":["\n","\nb\"","c"]}})",
       {R"("\n\n")", R"("\nb")", R"("\nb\"\"")", R"("\t")", R"("c\"")", R"("\"")", R"("d\n")"},
       {R"("\n")", R"("\nb\"")", R"("\u000a")", R"("c")"}},
      {R"({"type":"object","properties":{"a":{"type":"null"}},)"
       R"("additionalProperties":{"type":"string"}})",
       {R"({"b\nc": "x"})", R"({"\"": "x"})", R"({"a": null, "ab\t": ""})"},
       {R"({"a": "x"})", R"({"\u0061": "x"})"}},
  });
}

}  // namespace
}  // namespace stemma
