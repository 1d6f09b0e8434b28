// Which types a schema says: by type, values, words of a type, choices and references.
#include "grammar/schema_types.h"

#include <gmock/gmock-matchers.h>
#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace stemma {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

WordNames types_of(const std::string& schema, const char* definitions = "{}") {
  const TemplateJson root = {{"$defs", TemplateJson::parse(definitions)}};
  SchemaReferences references(root);
  SchemaTypes types(references);
  const TemplateJson parsed = TemplateJson::parse(schema);
  return types.of(parsed);
}

TEST(SchemaTypes, AreThoseThatAreNamed) {
  EXPECT_THAT(types_of(R"({"type":"integer","minimum":1})"), ElementsAre("integer"));
  EXPECT_THAT(types_of(R"({"type":["string","null"]})"), ElementsAre("null", "string"));
}

TEST(SchemaTypes, AreThoseOfValues) {
  EXPECT_THAT(types_of(R"({"const":true})"), ElementsAre("true"));
  EXPECT_THAT(types_of(R"({"enum":["a",null,[1],{}]})"),
              ElementsAre("array", "null", "object", "string"));
  EXPECT_THAT(types_of(R"({"enum":[1.5]})"), ElementsAre("number"));
}

TEST(SchemaTypes, AreTrueAndFalseForBoolean) {
  EXPECT_THAT(types_of(R"({"type":"boolean"})"), ElementsAre("false", "true"));
  EXPECT_THAT(types_of(R"({"type":["boolean","string"],"enum":["a",false]})"),
              ElementsAre("false", "string"));
}

TEST(SchemaTypes, AreThoseThatAllOfASchemaAllows) {
  EXPECT_THAT(types_of(R"({"type":["string","null"],"enum":["None",5]})"), ElementsAre("string"));
  EXPECT_THAT(types_of(R"({"anyOf":[{"const":null},{"const":1}],"type":["null","string"]})"),
              ElementsAre("null"));
}

TEST(SchemaTypes, OfWordsOfOneTypeAreNotMeantBesideAType) {
  for (const char* const schema :
       {R"({"type":["string","null"],"allOf":[{"maxLength":3}]})",
        R"({"anyOf":[{"maxLength":3},{"const":1}],"type":["string","null"]})"}) {
    EXPECT_THAT(types_of(schema), ElementsAre("null", "string")) << schema;
  }
}

TEST(SchemaTypes, AreMeantByWordsOfOneType) {
  EXPECT_THAT(types_of(R"({"title":"x","properties":{}})"), ElementsAre("object"));
  EXPECT_THAT(types_of(R"({"pattern":"a"})"), ElementsAre("string"));
}

TEST(SchemaTypes, OfChoicesAreAllOfThem) {
  EXPECT_THAT(types_of(R"({"anyOf":[{"type":"string"},{"oneOf":[{"type":"null"},{"const":1}]}]})"),
              ElementsAre("integer", "null", "number", "string"));
  EXPECT_THAT(types_of(R"({"anyOf":[{"type":"string"},{}]})"), IsEmpty()) << "one may be any";
}

TEST(SchemaTypes, OfSchemasTogetherAreTheirCommonOnes) {
  EXPECT_THAT(types_of(R"({"allOf":[{"type":["string","null"]},{"title":"x"},{"type":"string"}]})"),
              ElementsAre("string"));
}

TEST(SchemaTypes, AreFollowedThroughReferences) {
  const char* const definitions = R"({"a":{"$ref":"#/$defs/b"},"b":{"type":"array"}})";
  EXPECT_THAT(types_of(R"({"description":"x","$ref":"#/$defs/a"})", definitions),
              ElementsAre("array"));
}

TEST(SchemaTypes, AreNotSaidWhereNothingIs) {
  for (const char* const schema :
       {"true", "{}", "5", R"({"title":"x"})", R"({"type":"thing"})", R"({"type":7})",
        R"({"enum":[]})", R"({"$ref":"#/nowhere"})", R"({"$ref":7})", R"({"anyOf":7})"}) {
    EXPECT_THAT(types_of(schema), IsEmpty()) << schema;
  }
}

// Each schema is looked at once: choices of choices, all of 4096 values, are 2^36 looks.
TEST(SchemaTypes, AreFoundWithoutLookingTwice) {
  TemplateJson definitions;
  definitions["d0"] = {{"enum", std::vector<int>(4096, 5)}};
  for (int i = 1; i < 4; ++i) {
    const TemplateJson below = {{"$ref", "#/$defs/d" + std::to_string(i - 1)}};
    definitions["d" + std::to_string(i)] = {{"anyOf", std::vector<TemplateJson>(256, below)}};
  }
  EXPECT_THAT(types_of(R"({"$ref":"#/$defs/d3"})", definitions.dump().c_str()),
              ElementsAre("integer", "number"));
}

// Each doubles the one before it, and the last names itself: whoever follows all goes on for ever.
TEST(SchemaTypes, AreNotLookedForWithoutEnd) {
  TemplateJson definitions;
  for (int i = 0; i < 60; ++i) {
    const TemplateJson next = {{"$ref", "#/$defs/d" + std::to_string(i < 59 ? i + 1 : 0)}};
    definitions["d" + std::to_string(i)] = {{"allOf", {next, next}}};
  }
  EXPECT_THAT(types_of(R"({"$ref":"#/$defs/d0"})", definitions.dump().c_str()), IsEmpty());
}

}  // namespace
}  // namespace stemma
