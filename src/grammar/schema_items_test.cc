// Lists whose items have schemas of their own, as each draft of JSON Schema says it.
#include "grammar/schema_items.h"

#include <gtest/gtest.h>

#include <string>

#include "grammar/grammar_texts.h"

namespace stemma {
namespace {

std::string refusal(std::string_view schema, bool strict = true) {
  ByteGrammar grammar;
  const auto whole =
      add_json_schema(TemplateJson::parse(schema), {.strict = strict, .path = "s"}, grammar);
  return whole.ok() ? "" : whole.error().detail;
}

TEST(SchemaItems, OfEarlierDraftsAreThoseAtTheirPlaces) {
  for (const bool strict : {true, false}) {
    ByteAutomaton pair = automaton_of_schema(
        R"({"type":"array","minItems":2,"maxItems":2,"items":[{"type":"integer"},{"const":"a"}]})",
        strict);
    EXPECT_TRUE(accepts(pair, R"([7, "a"])"));
    for (const char* const text : {"[]", "[7]", R"([7, "b"])", R"(["a", 7])", R"([7, "a", 7])"}) {
      EXPECT_FALSE(accepts(pair, text)) << text;
    }
  }
}

TEST(SchemaItems, BehindThoseAreAdditionalOnes) {
  ByteAutomaton any = automaton_of_schema(R"({"items":[{"const":1}]})");
  EXPECT_TRUE(accepts(any, R"([1, "a", {}])"));
  ByteAutomaton none = automaton_of_schema(R"({"items":[{"const":1}],"additionalItems":false})");
  EXPECT_TRUE(accepts(none, "[1]"));
  EXPECT_FALSE(accepts(none, "[1, 1]"));
  ByteAutomaton some =
      automaton_of_schema(R"({"items":[{"const":1}],"additionalItems":{"const":2}})");
  EXPECT_TRUE(accepts(some, "[1, 2, 2]"));
  EXPECT_FALSE(accepts(some, "[1, 1]"));
}

// The draft that has the word says so.
TEST(SchemaItems, ThatAreAdditionalToNoListSayNothing) {
  for (const char* const schema :
       {R"({"items":{"const":1},"additionalItems":false})",
        R"({"type":"array","prefixItems":[{"const":1}],"additionalItems":false})",
        R"({"allOf":[{"items":{"const":1}},{"additionalItems":false}]})"}) {
    ByteAutomaton automaton = automaton_of_schema(schema);
    EXPECT_TRUE(accepts(automaton, "[1, 1]")) << schema;
  }
  ByteAutomaton anything = automaton_of_schema(R"({"additionalItems":false})");
  EXPECT_TRUE(accepts(anything, "\"a\""));
}

TEST(SchemaItems, OfTwoDraftsMaySayThingsTogether) {
  ByteAutomaton both = automaton_of_schema(
      R"({"allOf":[{"items":[{"type":"integer"},{"type":"string"}],"additionalItems":false},
                   {"type":"array","prefixItems":[{"enum":[1,"a"]}],"items":{"enum":["b",2]}}]})");
  for (const char* const text : {"[]", "[1]", R"([1, "b"])"}) EXPECT_TRUE(accepts(both, text));
  for (const char* const text : {R"(["a"])", "[2]", "[1, 2]", R"([1, "b", "b"])"}) {
    EXPECT_FALSE(accepts(both, text)) << text;
  }
  ByteAutomaton named = automaton_of_schema(
      R"({"$defs":{"at":{"items":[{"$ref":"#/$defs/at/items/1"},{"const":1}]}},
          "$ref":"#/$defs/at","minItems":1,"maxItems":1})");
  EXPECT_TRUE(accepts(named, "[1]"));
  EXPECT_FALSE(accepts(named, "[2]"));
}

// The schema of draft-07 for schemas has at least one in such a list.
TEST(SchemaItems, ThatAreNoSchemasAreRefusedByTheirPlace) {
  for (const bool strict : {true, false}) {
    EXPECT_EQ(refusal(R"({"items":[{},1],"minItems":2})", strict),
              "s.items[1]: must be an object or a boolean");
    EXPECT_EQ(refusal(R"({"items":[{}],"additionalItems":1,"minItems":2})", strict),
              "s.additionalItems: must be an object or a boolean");
    EXPECT_EQ(refusal(R"({"items":[]})", strict),
              "s.items: must be a schema or a list of at least one");
    EXPECT_EQ(refusal(R"({"items":[{}],"prefixItems":[{}]})", strict),
              "s.items: must be a schema beside prefixItems");
    EXPECT_EQ(refusal(R"({"prefixItems":{}})", strict), "s.prefixItems: must be a list");
    EXPECT_EQ(refusal(R"({"allOf":[{"minItems":1},{"items":[]}]})", strict),
              "s: items must be a schema or a list of at least one");
  }
}

}  // namespace
}  // namespace stemma
