#include "grammar/schema_merge.h"

#include <fmt/format.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "grammar/grammar_texts.h"

namespace stemma {
namespace {

// Definitions that the cases name.
constexpr std::string_view kDefs = R"("$defs":{
  "ship":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]},
  "short":{"maxLength":9},
  "list":{"items":{"$ref":"#/$defs/short"}},
  "node":{"allOf":[{"properties":{"below":{"$ref":"#/$defs/node"}}},{"$ref":"#/$defs/tagged"}]},
  "tagged":{"type":"object","properties":{"tag":{"type":"null"}}},
  "self":{"$ref":"#/$defs/self","type":"null"}})";

TemplateJson with_defs(std::string_view schema) {
  std::string text = "{" + std::string(kDefs);
  if (schema.size() > 2)
    text += "," + std::string(schema.substr(1));
  else
    text += "}";
  return TemplateJson::parse(text);
}

std::string merged(std::string_view schema) {
  const TemplateJson root = with_defs(schema);
  SchemaBudget budget(root);
  SchemaReferences references(root);
  Result<TemplateJson> one = merged_schema(root, references, "s", budget);
  if (!one.ok()) return one.error().detail;
  return one->dump();
}

TEST(SchemaMerge, WordsOfAllBecomeWordsOfOne) {
  EXPECT_EQ(merged(R"({"allOf":[{"type":"string"},{"minLength":2}],"maxLength":5})"),
            R"({"maxLength":5,"type":"string","minLength":2})");
  EXPECT_EQ(merged(R"({"$ref":"#/$defs/short","minLength":2})"),
            R"({"minLength":2,"maxLength":9})");
  EXPECT_EQ(merged(R"({"allOf":[true,{},{"type":"null"}]})"), R"({"type":"null"})");
}

TEST(SchemaMerge, TheNearerBoundHolds) {
  EXPECT_EQ(merged(R"({"allOf":[{"minimum":1,"maximum":9},{"minimum":3,"maximum":20}]})"),
            R"({"minimum":3,"maximum":9})");
  EXPECT_EQ(merged(R"({"$ref":"#/$defs/short","maxLength":12})"), R"({"maxLength":9})");
}

TEST(SchemaMerge, TypesAndValuesAreThoseOfBoth) {
  EXPECT_EQ(merged(R"({"allOf":[{"type":["number","null"]},{"type":["integer","string"]}]})"),
            R"({"type":["integer"]})");
  EXPECT_EQ(merged(R"({"allOf":[{"enum":[1,2.5,"a",null]},{"enum":["a",2.5,7]}]})"),
            R"({"enum":[2.5,"a"]})");
  EXPECT_EQ(merged(R"({"allOf":[{"enum":[1,2.5,"a"]},{"type":"integer"}]})"), R"({"enum":[1]})");
  EXPECT_EQ(merged(R"({"allOf":[{"const":1},{"const":2}]})"), "false");
}

TEST(SchemaMerge, MembersAreThoseOfEither) {
  EXPECT_EQ(merged(R"({"$ref":"#/$defs/ship","properties":{"crew":{"type":"integer"}},
                       "required":["crew"]})"),
            R"({"properties":{"crew":{"type":"integer"},"name":{"type":"string"}},)"
            R"("required":["crew","name"],"type":"object"})");
  EXPECT_EQ(merged(R"({"$ref":"#/$defs/ship","properties":{"name":{"maxLength":3}}})"),
            R"({"properties":{"name":{"allOf":[{"maxLength":3},{"type":"string"}]}},)"
            R"("type":"object","required":["name"]})");
}

TEST(SchemaMerge, MembersThatTheOtherForbidsAreLeftOut) {
  EXPECT_EQ(merged(R"({"allOf":[{"properties":{"a":{},"b":{}},"additionalProperties":false},
                                {"properties":{"b":{},"c":{}}}]})"),
            R"({"properties":{"a":{},"b":{}},"additionalProperties":false})");
  EXPECT_EQ(merged(R"({"allOf":[{"properties":{"a":{}},"additionalProperties":false},
                                {"properties":{"c":{}},"required":["c"]}]})"),
            R"({"properties":{"a":{},"c":false},"additionalProperties":false,"required":["c"]})");
  EXPECT_EQ(
      merged(R"({"allOf":[{"properties":{"a":{}},"additionalProperties":{"type":"null"}},
                                {"properties":{"c":{"type":"null"}}}]})"),
      R"({"properties":{"a":{},"c":{"type":"null"}},"additionalProperties":{"type":"null"}})");
}

TEST(SchemaMerge, WhatIsSaidBesideChoicesGoesIntoEach) {
  EXPECT_EQ(merged(R"({"type":"object","properties":{"a":{},"b":{}},
                       "anyOf":[{"required":["a"]},{"required":["b"]}]})"),
            R"({"anyOf":[{"type":"object","properties":{"a":{},"b":{}},"required":["a"]},)"
            R"({"type":"object","properties":{"a":{},"b":{}},"required":["b"]}]})");
  EXPECT_EQ(merged(R"({"anyOf":[{"type":"null"},{"type":"string"}],"oneOf":[{"type":"string"}]})"),
            R"({"type":"string"})");
}

TEST(SchemaMerge, ItemsOfBothAreMergedWhenTheyAreRead) {
  EXPECT_EQ(merged(R"({"$ref":"#/$defs/list","items":{"type":"string"}})"),
            R"({"items":{"allOf":[{"type":"string"},{"$ref":"#/$defs/short"}]}})");
}

TEST(SchemaMerge, WhatHasNoSchemaTogetherIsRefusedByName) {
  EXPECT_EQ(merged(R"({"allOf":[{"pattern":"a"},{"pattern":"b"}]})"),
            "s: pattern of several schemas is not supported");
  EXPECT_EQ(merged(R"({"allOf":[{"multipleOf":2},{"multipleOf":3}]})"),
            "s: multipleOf of several schemas is not supported");
  EXPECT_EQ(merged(R"({"allOf":[{"format":"date"},{"format":"time"}]})"),
            "s: format of several schemas is not supported");
}

TEST(SchemaMerge, MembersThatAreForbiddenStayWhereOthersMayBe) {
  EXPECT_EQ(merged(R"({"allOf":[{"properties":{"a":false}},
                                {"properties":{"a":{}},"additionalProperties":{"type":"null"}}]})"),
            R"({"properties":{"a":false},"additionalProperties":{"type":"null"}})");
}

TEST(SchemaMerge, WhatOnlyDescribesIsLeftOut) {
  EXPECT_EQ(merged(R"({"allOf":[
              {"type":"null","title":"a","discriminator":{"propertyName":"a"},"readOnly":true},
              {"title":"b","discriminator":{"propertyName":"b"},"$comment":"c","x-order":1}]})"),
            R"({"type":"null"})");
  EXPECT_EQ(merged(R"({"allOf":[{"type":"string","format":"int32"},{"format":"date"}]})"),
            R"({"type":"string","format":"date"})");
}

TEST(SchemaMerge, ItemsOfOneAreThoseAtThePlacesOfTheOther) {
  EXPECT_EQ(merged(R"({"allOf":[{"prefixItems":[{"type":"integer"},{}]},
                                {"prefixItems":[{"minimum":1}],"items":{"maximum":9}}]})"),
            R"({"prefixItems":[{"allOf":[{"type":"integer"},{"minimum":1}]},{"maximum":9}],)"
            R"("items":{"maximum":9}})");
  EXPECT_EQ(merged(R"({"allOf":[{"prefixItems":[{"const":1},{"const":2}]},{"items":false}]})"),
            R"({"items":false})");
  EXPECT_EQ(merged(R"({"allOf":[{"prefixItems":[{"const":1},{"const":2}]},
                                {"prefixItems":[{}],"items":false}]})"),
            R"({"prefixItems":[{"const":1}],"items":false})");
}

TEST(SchemaMerge, AValueIsOneOfAllThatAreListed) {
  EXPECT_EQ(merged(R"({"allOf":[{"const":2,"enum":[1,2]},{"minimum":0}]})"),
            R"({"minimum":0,"enum":[2]})");
  EXPECT_EQ(merged(R"({"allOf":[{"const":3,"enum":[1,2]},{"minimum":0}]})"), "false");
}

TEST(SchemaMerge, MistakesAreNamed) {
  EXPECT_EQ(merged(R"({"allOf":[1,2]})"), "s: must be an object or a boolean");
  EXPECT_EQ(merged(R"({"anyOf":[],"type":"null"})"), "s: anyOf must be a list of at least one");
  EXPECT_EQ(merged(R"({"$ref":"#/nowhere","type":"null"})"), "s: \"#/nowhere\" is not there");
  EXPECT_EQ(merged(R"({"$ref":"#/$defs/self"})"),
            "s: schemas that stand for each other without an end");
  EXPECT_EQ(merged(R"({"allOf":[{"properties":[]},{"type":"object"}]})"),
            "s: properties must be an object");
  for (const char* const names : {R"("a")", "1", "true", R"({"a":"b"})", "[1]", "null"}) {
    EXPECT_EQ(merged(fmt::format(R"({{"allOf":[{{"required":{}}},{{"required":["b"]}}]}})", names)),
              "s: required must be a list of names");
  }
  EXPECT_EQ(merged(R"({"allOf":[{"enum":1},{"const":1}]})"),
            "s: enum must be a list of at least one");
  EXPECT_EQ(merged(R"({"allOf":[{"type":[null]},{"const":1}]})"),
            "s: type must be a name or a list of names");
}

TEST(SchemaMerge, ChoicesOfChoicesAreNotTooMany) {
  std::string choices;
  for (int i = 0; i < 20; ++i) {
    choices += (i == 0 ? "" : ",") + std::string(R"({"minimum":)") + std::to_string(i) + "}";
  }
  EXPECT_EQ(merged(R"({"anyOf":[)" + choices + R"(],"oneOf":[)" + choices + "]}"),
            "s: too many schemas to choose from together");
}

TEST(SchemaMerge, NoMoreIsCopiedThanARequestIsWorth) {
  std::string members;
  for (int i = 0; i < 2'000; ++i) {
    members += (i == 0 ? "" : ",") + fmt::format(R"("m{}":{{"type":"null"}})", i);
  }
  std::string choices;
  for (int i = 0; i < 200; ++i)
    choices += (i == 0 ? "" : ",") + std::string(R"({"required":["m1"]})");
  EXPECT_EQ(merged(R"({"properties":{)" + members + R"(},"anyOf":[)" + choices + "]}"),
            "s: so many schemas together are not supported");
}

std::string choices_of(std::string_view one, std::size_t times) {
  std::string all;
  for (std::size_t i = 0; i < times; ++i) all.append(i == 0 ? "" : ",").append(one);
  return all;
}

// Each choice is a copy of the list, which is worth more than what was sent.
TEST(SchemaMerge, AListIsNotCopiedForEveryChoice) {
  const TemplateJson root = TemplateJson::parse(
      R"({"type":"integer","anyOf":[)" + choices_of(R"({"$ref":"#/$defs/list"})", 256) +
      R"(],"$defs":{"list":{"enum":[)" + choices_of("1", 50'000) + "]}}}");
  SchemaBudget budget(root);
  SchemaReferences references(root);
  const auto one = merged_schema(root, references, "s", budget);
  ASSERT_FALSE(one.ok());
  EXPECT_EQ(one.error().detail, "s: so many schemas together are not supported");
}

TEST(SchemaMerge, WhatIsCopiedIsCounted) {
  const std::string text(1'600, 'a');
  const TemplateJson root = TemplateJson::parse(R"({"anyOf":[{"const":")" + text +
                                                R"("},{"const":1}],"allOf":[{"type":"string"}]})");
  SchemaBudget budget(root);
  SchemaReferences references(root);
  const auto one = merged_schema(root, references, "s", budget);
  ASSERT_TRUE(one.ok());
  EXPECT_GE(budget.taken(), SchemaBudget::units_of(*one));
  EXPECT_LT(budget.taken(), 6 * SchemaBudget::units_of(root));
  EXPECT_EQ(SchemaBudget::units_of(text), 1 + text.size() / SchemaBudget::kTextBytes);
}

TEST(SchemaMerge, OnceThereIsTooLittleLeftThereIsNothing) {
  SchemaBudget budget(TemplateJson(1));
  EXPECT_FALSE(budget.take(budget.units() + 1));
  EXPECT_FALSE(budget.take(1));
  EXPECT_EQ(budget.taken(), budget.units());
}

TEST(SchemaMerge, ASchemaThatSaysOneThingIsLeftAlone) {
  for (const char* const schema :
       {R"({"$ref":"#","description":"d","$defs":{}})", R"({"oneOf":[],"discriminator":{}})",
        R"({"allOf":[{"type":"null"}]})", R"({"type":"object","properties":{}})", "true"}) {
    EXPECT_FALSE(says_several(TemplateJson::parse(schema))) << schema;
  }
  EXPECT_TRUE(says_several(TemplateJson::parse(R"({"allOf":[true,true]})")));
  EXPECT_TRUE(says_several(TemplateJson::parse(R"({"anyOf":[true],"type":"null"})")));
}

TEST(SchemaMerge, NoMoreIsReadThanARequestIsWorth) {
  std::string defs;
  for (int i = 0; i < 28; ++i) {
    defs += fmt::format(
        R"("d{0}":{{"allOf":[{{"$ref":"#/$defs/d{1}"}},{{"$ref":"#/$defs/d{1}"}}]}},)", i, i + 1);
  }
  const TemplateJson root =
      TemplateJson::parse(R"({"$ref":"#/$defs/d0","$defs":{)" + defs + R"("d28":{}}})");
  SchemaBudget budget(root);
  SchemaReferences references(root);
  const auto one = merged_schema(root, references, "s", budget);
  ASSERT_FALSE(one.ok());
  EXPECT_EQ(one.error().detail, "s: so many schemas together are not supported");
}

// node: an object that may have a node below it, and a tag.
TEST(SchemaMerge, SchemasThatNameThemselvesHaveAGrammar) {
  ByteAutomaton automaton = automaton_of_schema(with_defs(R"({"$ref":"#/$defs/node"})").dump());
  EXPECT_TRUE(accepts(automaton, R"({"below": {"below": {}, "tag": null}})"));
  EXPECT_FALSE(accepts(automaton, R"({"below": {"tag": 1}})"));
  EXPECT_FALSE(accepts(automaton, R"({"other": 1})"));
}

// Members, each of which reads 2^10 schemas: no more together than one could.
TEST(SchemaMerge, TheMembersOfASchemaShareWhatMayBeRead) {
  std::string members;
  for (int i = 0; i < 400; ++i) {
    members += fmt::format(R"({}"m{}":{{"$ref":"#/$defs/d0","maxLength":{}}})", i == 0 ? "" : ",",
                           i, i + 1);
  }
  std::string defs;
  for (int i = 0; i < 10; ++i) {
    defs += fmt::format(
        R"("d{0}":{{"allOf":[{{"$ref":"#/$defs/d{1}"}},{{"$ref":"#/$defs/d{1}"}}]}},)", i, i + 1);
  }
  ByteGrammar grammar;
  const auto whole =
      add_json_schema(TemplateJson::parse(R"({"properties":{)" + members + R"(},"$defs":{)" + defs +
                                          R"("d10":{"type":"string"}}})"),
                      {.path = "s"}, grammar);
  ASSERT_FALSE(whole.ok());
  EXPECT_THAT(whole.error().detail,
              testing::EndsWith(": so many schemas together are not supported"));
}

// Of members that both name, each time another schema: told, and not made for ever.
TEST(SchemaMerge, WhatGrowsWithoutAnEndIsRefused) {
  ByteGrammar grammar;
  const TemplateJson schema = TemplateJson::parse(
      R"({"$ref":"#/$defs/a","$defs":{
        "a":{"type":"object","properties":{"x":{"$ref":"#/$defs/b"}}},
        "b":{"type":"object","properties":{
          "x":{"allOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}]}}}}})");
  const auto whole = add_json_schema(schema, {}, grammar);
  ASSERT_FALSE(whole.ok());
  EXPECT_EQ(whole.error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace stemma
