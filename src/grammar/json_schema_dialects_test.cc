// Schemas as other drafts and dialects have them, and what is not kept to where a schema is not
// strict.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/grammar_texts.h"

namespace stemma {
namespace {

TEST(JsonSchemaDialects, BoundsMayBeFlaggedAsExclusive) {
  ByteAutomaton above =
      automaton_of_schema(R"({"type":"integer","minimum":0,"exclusiveMinimum":true,"maximum":3})");
  EXPECT_FALSE(accepts(above, "0"));
  EXPECT_TRUE(accepts(above, "1"));
  EXPECT_TRUE(accepts(above, "3"));
  ByteAutomaton below =
      automaton_of_schema(R"({"type":"integer","minimum":0,"exclusiveMinimum":false,"maximum":3,)"
                          R"("exclusiveMaximum":true})");
  EXPECT_TRUE(accepts(below, "0"));
  EXPECT_TRUE(accepts(below, "2"));
  EXPECT_FALSE(accepts(below, "3"));
  ByteAutomaton bare = automaton_of_schema(R"({"type":"integer","exclusiveMaximum":true})");
  EXPECT_TRUE(accepts(bare, "7")) << "a flag of no bound says nothing";
}

TEST(JsonSchemaDialects, AFlagIsOfTheBoundBesideIt) {
  ByteAutomaton five = automaton_of_schema(
      R"({"type":"integer","allOf":[{"minimum":0,"exclusiveMinimum":true},{"minimum":5}]})");
  EXPECT_TRUE(accepts(five, "5"));
  EXPECT_FALSE(accepts(five, "4"));
  ByteAutomaton alone =
      automaton_of_schema(R"({"type":"integer","allOf":[{"minimum":0,"exclusiveMinimum":true},)"
                          R"({"minimum":5,"maximum":5}]})");
  EXPECT_TRUE(accepts(alone, "5"));
  ByteAutomaton other =
      automaton_of_schema(R"({"type":"integer","allOf":[{"maximum":9,"exclusiveMaximum":false},)"
                          R"({"maximum":5,"exclusiveMaximum":true}]})");
  EXPECT_TRUE(accepts(other, "4"));
  EXPECT_FALSE(accepts(other, "5"));
}

TEST(JsonSchemaDialects, MembersMayBeThoseThatPatternsName) {
  constexpr bool kIsStrict = false;
  ByteAutomaton closed = automaton_of_schema(
      R"({"type":"object","properties":{"a":{"type":"null"}},"patternProperties":)"
      R"({"^[a-z]+$":{"type":"integer"},"^B":{"type":"boolean"}},"additionalProperties":false})",
      kIsStrict);
  EXPECT_TRUE(accepts(closed, "{}"));
  EXPECT_TRUE(accepts(closed, R"({"a": null, "bc": 1, "Bd": true})"));
  EXPECT_FALSE(accepts(closed, R"({"bc": "text"})"));
  ByteAutomaton required = automaton_of_schema(
      R"({"type":"object","patternProperties":{"^[a-z]+$":{"type":"integer"}},"required":["k"],)"
      R"("additionalProperties":false})",
      kIsStrict);
  EXPECT_TRUE(accepts(required, R"({"k": 1, "more": 2})"));
  EXPECT_FALSE(accepts(required, R"({"more": 2})"));
  ByteAutomaton open =
      automaton_of_schema(R"({"type":"object","patternProperties":{"^i":{"type":"integer"}},)"
                          R"("additionalProperties":{"type":"string"}})",
                          kIsStrict);
  EXPECT_TRUE(accepts(open, R"({"i": 1, "s": "text"})"));
  EXPECT_FALSE(accepts(open, R"({"s": null})"));
}

// A list of names is kept to, another one of the same names would be lost.
TEST(JsonSchemaDialects, NamesOfSeveralSchemasAreRefusedWhereTheyAreStrict) {
  for (const std::string second : {R"({"enum":["b","c"]})", R"({"pattern":"^b"})"}) {
    ByteGrammar grammar;
    const auto schema = TemplateJson::parse(
        R"({"allOf":[{"propertyNames":{"enum":["a","b"]}},{"propertyNames":)" + second +
        R"(}],"type":"object","additionalProperties":{"type":"integer"}})");
    EXPECT_FALSE(add_json_schema(schema, {.strict = true}, grammar).ok()) << second;
  }
  ByteAutomaton same = automaton_of_schema(
      R"({"allOf":[{"propertyNames":{"enum":["a"]}},{"propertyNames":{"enum":["a"]}}],)"
      R"("type":"object","additionalProperties":{"type":"integer"}})");
  EXPECT_TRUE(accepts(same, R"({"a": 1})"));
  EXPECT_FALSE(accepts(same, R"({"b": 1})"));
}

// Each would be read again, with all that a schema says of it.
TEST(JsonSchemaDialects, ATypeThatIsNamedAgainIsReadOnce) {
  const auto steps_of = [](std::size_t names, const std::string& type, const std::string& words) {
    TemplateJson schema = TemplateJson::parse(words);
    schema["type"] = TemplateJson(std::vector<std::string>(names, type));
    ByteGrammar grammar;
    const auto whole = add_json_schema(schema, {}, grammar);
    if (!whole.ok()) return std::size_t{0};
    return grammar.compile(*whole).value().steps.size();
  };
  for (const auto& [type, words] : std::vector<std::pair<std::string, std::string>>{
           {"integer", R"({"multipleOf":397})"},
           {"number", R"({"multipleOf":0.37})"},
           {"object", R"({"required":["a","b"],"additionalProperties":{"type":"null"}})"}}) {
    const std::size_t once = steps_of(1, type, words);
    EXPECT_GT(once, 0U) << type;
    EXPECT_EQ(steps_of(2, type, words), once) << type;
    EXPECT_EQ(steps_of(1'000, type, words), once) << type;
  }
}

// What they may be is said once for all of them: each with all patterns would be too much.
TEST(JsonSchemaDialects, RequiredNamesShareWhatPatternsSay) {
  TemplateJson schema = {{"type", "object"}};
  for (int i = 0; i < 510; ++i) {
    schema["patternProperties"]["p" + std::to_string(i)] = {{"type", "integer"}};
  }
  for (int i = 0; i < 2'000; ++i) schema["required"].push_back("n" + std::to_string(i));
  ByteGrammar grammar;
  const auto whole = add_json_schema(schema, {.strict = false}, grammar);
  ASSERT_TRUE(whole.ok());
  EXPECT_TRUE(grammar.compile(*whole).ok());
}

}  // namespace
}  // namespace stemma
