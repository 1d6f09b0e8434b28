#include "grammar/json_schema.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/prng.h"
#include "grammar/grammar_texts.h"

namespace stemma {
namespace {

// A schema, texts that it allows and texts that it does not.
struct SchemaCase {
  std::string name;
  std::string schema;
  std::vector<std::string> allowed;
  std::vector<std::string> refused;
};

void PrintTo(const SchemaCase& one, std::ostream* out) {
  *out << one.name;
}

class SchemaTexts : public testing::TestWithParam<SchemaCase> {};

TEST_P(SchemaTexts, KeepToIt) {
  ByteAutomaton automaton = automaton_of_schema(GetParam().schema);
  for (const std::string& text : GetParam().allowed) {
    EXPECT_TRUE(TemplateJson::accept(text)) << text;
    EXPECT_TRUE(accepts(automaton, text)) << text;
  }
  for (const std::string& text : GetParam().refused) {
    EXPECT_FALSE(accepts(automaton, text)) << text;
  }
}

const SchemaCase kValues[] = {
    {"Anything",
     "true",
     {"null", "true", "-0.5e+3", R"("a\n\u00e9\ud83d\ude00")", R"({"a": [1, {"b": {}}], "c": ""})",
      "[]", "{\n  \"a\": 1,\n  \"b\": [\n    2\n  ]\n}"},
     {"", "nul", "01", "1.", "+1", ".5", "\"\x01\"", R"("\x")", R"("\ud83d")", R"("\ude00")",
      "[1,]", "{\"a\"}", "\"\xFF\"", "'a'", "[1 ,2]", " 1", "1 "}},
    {"EmptySchema", "{}", {"1", "[]"}, {""}},
    {"Boolean", R"({"type":"boolean"})", {"true", "false"}, {"null", "True", "0"}},
    {"Null", R"({"type":"null"})", {"null"}, {"0", ""}},
    {"Number",
     R"({"type":"number"})",
     {"0", "-1", "3.25", "1e9", "123456789012345678"},
     {"1e999", "1234567890123456789", "--1", "NaN"}},
    {"Integer", R"({"type":"integer"})", {"0", "-17", "999999999999999999"}, {"1.0", "-0", "1e3"}},
    {"OneOfTypes", R"({"type":["string","null"]})", {"\"\"", "null"}, {"1", "true"}},
    {"StringOfLength",
     R"({"type":"string","minLength":2,"maxLength":3})",
     {R"("ab")", R"("é\n😀")", R"("\ud83d\ude00a")"},
     {R"("a")", R"("abcd")", R"("\ud83d\ude00")"}},
    {"Pattern",
     R"({"type":"string","pattern":"^[a-c\"\\\\\n]+\u0001?$"})",
     {R"("abc")", R"("a\"\\\n\u0001")"},
     {R"("")", R"("d")", R"("\u0061")"}},
    {"PatternOfHalves", R"({"pattern":"^[\\n\\ud800-\\udfff]$"})", {R"("\n")"}, {R"("n")"}},
    {"PatternAnywhere", R"({"pattern":"b"})", {R"("b")", R"("ab\nc")"}, {R"("ac")", "1"}},
    {"Date",
     R"({"type":"string","format":"date"})",
     {R"("2026-11-27")", R"("2024-02-28")", R"("1999-12-31")"},
     {R"("2026-13-01")", R"("2026-02-30")", R"("2026-04-31")", R"("26-1-1")"}},
    {"DateTime",
     R"({"type":"string","format":"date-time"})",
     {R"("2026-11-27T06:40:00Z")", R"("2026-11-27T23:59:59.123+05:30")"},
     {R"("2026-11-27")", R"("2026-11-27T24:00:00Z")", R"("2026-11-27T06:40:00")"}},
    {"Uuid",
     R"({"type":"string","format":"uuid"})",
     {R"("123e4567-e89b-12d3-a456-426614174000")"},
     {R"("123e4567e89b12d3a456426614174000")"}},
    {"Ipv4", R"({"format":"ipv4","type":"string"})", {R"("127.0.0.255")"}, {R"("1.2.3.256")"}},
    {"Ipv6",
     R"({"type":"string","format":"ipv6"})",
     {R"("2001:db8:0:1:2:3:4:5")", R"("::1")", R"("fe80::")", R"("2001:db8::7:1")", R"("::")"},
     {R"("1:2:3:4:5:6:7")", R"("1::2::3")", R"("12345::")", R"("1:2:3:4:5:6:7:8:9")",
      R"("1:2:3:4::5:6:7:8")", R"(":1")"}},
    {"Duration",
     R"({"type":"string","format":"duration"})",
     {R"("P1Y2M3D")", R"("PT36H")", R"("P3DT4H5M6S")", R"("P2W")", R"("PT5S")"},
     {R"("P")", R"("PT")", R"("P1DT")", R"("P1W2D")", R"("1D")", R"("P1H")", R"("PT1H5S")"}},
    {"Email",
     R"({"format":"email","type":"string"})",
     {R"("a.b+c@example.org")"},
     {R"("a@")", R"("@b")", R"("a b@c")"}},
    {"Enum",
     R"({"enum":["red","green",1,null,{"a":[2]}]})",
     {R"("red")", "1", "null", R"({"a":[2]})"},
     {R"("re")", R"("blue")", "2"}},
    {"ValuesOfAType",
     R"({"type":["integer","null"],"enum":[1,2.0,2.5,"a",null,true]})",
     {"1", "2.0", "null"},
     {"2.5", R"("a")", "true"}},
    {"Const", R"({"type":"string","const":"a\"é"})", {R"("a\"é")"}, {R"("a")"}},
    {"AnyOf",
     R"({"anyOf":[{"type":"integer"},{"type":"array","items":{"type":"integer"}}]})",
     {"1", "[1, 2]"},
     {"[\"a\"]", "null"}},
    {"AnyOfWithOneThatAllowsNothing",
     R"({"anyOf":[false,{"type":"integer","minimum":2,"maximum":1},{"type":"null"}]})",
     {"null"},
     {"1", "\"\""}},
    {"TypesOfWhichOneAllowsNothing",
     R"({"type":["string","null","array"],"minLength":2,"maxLength":1,"items":false,"minItems":1})",
     {"null"},
     {"\"\"", "[]"}},
    {"BoundsThatLeaveOneChoice",
     R"({"type":"integer","minimum":10,"anyOf":[{"maximum":5},{"minimum":20}]})",
     {"20"},
     {"3", "10"}},
    {"OneOf", R"({"oneOf":[{"type":"null"},{"const":1}]})", {"null", "1"}, {"2"}},
    {"AllOfOne", R"({"allOf":[{"type":"null"}]})", {"null"}, {"1"}},
    {"Described",
     R"({"type":"null","title":"t","description":"d","default":1,"examples":[],"format":"f"})",
     {"null"},
     {"1"}},
};

const SchemaCase kArrays[] = {
    {"ArrayOfAnything", R"({"type":"array"})", {"[]", "[1, \"a\"]"}, {"{}", "[", "[,]"}},
    {"Items", R"({"items":{"type":"integer"}})", {"[]", "[1,2]"}, {"[\"a\"]", "1"}},
    {"ItemsFromTo",
     R"({"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":3})",
     {"[1, 2]", "[1, 2, 3]"},
     {"[]", "[1]", "[1, 2, 3, 4]"}},
    {"NoItems", R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"}},
    {"PrefixItems",
     R"({"type":"array","prefixItems":[{"const":1},{"const":2}],"items":false})",
     {"[]", "[1]", "[1, 2]"},
     {"[2]", "[1, 2, 3]", "[2, 1]"}},
    {"PrefixAndItems",
     R"({"type":"array","prefixItems":[{"const":1},{"const":2}],"items":{"const":3},"minItems":2})",
     {"[1, 2]", "[1, 2, 3, 3]"},
     {"[]", "[1]", "[1, 2, 4]", "[3]"}},
    {"PrefixThatEndsWhereNothingMayBe",
     R"({"type":"array","prefixItems":[{"const":1},false,{}]})",
     {"[]", "[1]"},
     {"[1, 2]", "[1, 2, 3]"}},
    {"NoItemIsAllowed", R"({"items":{"anyOf":[false]}})", {"[]"}, {"[1]"}},
    {"ItemsOfOneAndPlacesOfTheOther",
     R"({"allOf":[{"type":"array","prefixItems":[{"type":["integer","string"]}]},
                  {"items":{"type":"string"}}]})",
     {"[]", R"(["a"])", R"(["a", "b"])"},
     {"[1]", R"([1, "a"])", R"(["a", 1])"}},
    {"PlacesThatTheOtherForbids",
     R"({"allOf":[{"type":"array","prefixItems":[{"type":"integer"}]},{"items":false}]})",
     {"[]"},
     {"[1]"}},
    {"PrefixCutShort",
     R"({"type":"array","prefixItems":[{"const":1},{"const":2}],"maxItems":1})",
     {"[]", "[1]"},
     {"[1, 2]"}},
};

const SchemaCase kObjects[] = {
    {"AnyObject", R"({"type":"object"})", {"{}", R"({"a": 1, "b": {}})"}, {"[]", "{", "{\"a\":}"}},
    {"AllRequired",
     R"({"properties":{"a":{"type":"integer"},"b":{"type":"null"}},"required":["b","a"],
         "additionalProperties":false})",
     {R"({"a": 1, "b": null})", R"({"a":1,"b":null})"},
     {"{}", R"({"a": 1})", R"({"b": null, "a": 1})", R"({"a": 1, "b": null, "c": 2})"}},
    {"SomeRequired",
     R"({"properties":{"a":{"const":1},"b":{"const":2},"c":{"const":3}},"required":["b"]})",
     {R"({"b": 2})", R"({"a": 1, "b": 2})", R"({"b": 2, "c": 3})", R"({"a":1,"b":2,"c":3})"},
     {"{}", R"({"a": 1})", R"({"a": 1, "c": 3})", R"({, "b": 2})", R"({"b": 2, "d": 4})"}},
    {"NoneRequired",
     R"({"properties":{"a":{"const":1},"b":{"const":2}}})",
     {"{}", R"({"a": 1})", R"({"b": 2})", R"({"a": 1, "b": 2})"},
     {R"({"b": 2, "a": 1})", R"({"a": 1,})", R"({"a": 1 "b": 2})"}},
    {"NoProperties", R"({"type":"object","additionalProperties":false})", {"{}"}, {R"({"a": 1})"}},
    {"Dictionary",
     R"({"type":"object","additionalProperties":{"type":"integer"}})",
     {"{}", R"({"x": 1, "y\n": 2})"},
     {R"({"x": "a"})"}},
    {"OthersToo",
     R"({"properties":{"ab":{"const":1},"é":{"const":2}},"required":["ab"],
         "additionalProperties":{"const":3}})",
     {R"({"ab": 1})", R"({"ab": 1, "é": 2, "a": 3, "abc": 3, "": 3, "è": 3, "b": 3})"},
     {R"({"ab": 1, "ab": 3})", R"({"ab": 1, "é": 3})", R"({"ab": 1, "x": 4})",
      R"({"ab": 1, "\u0061b": 3})"}},
    {"MembersThatMayNotBe",
     R"({"type":"object","properties":{"a":{"const":1},"b":false,"c":{"const":3}}})",
     {"{}", R"({"a": 1})", R"({"a": 1, "c": 3})"},
     {R"({"b": 1})"}},
    {"MembersThatMayNotBeAmongOthers",
     R"({"properties":{"b":false},"additionalProperties":{"const":1}})",
     {"{}", R"({"a": 1})"},
     {R"({"b": 1})"}},
    {"OthersThatMayNotBe",
     R"({"properties":{"a":{"const":1}},"additionalProperties":{"anyOf":[false]}})",
     {"{}", R"({"a": 1})"},
     {R"({"b": 1})"}},
    {"ChoicesByAConstantMember",
     R"({"allOf":[{"anyOf":[{"properties":{"k":{"const":"a"}},"required":["k"]},
                            {"properties":{"k":{"const":"b"}},"required":["k"]}]},
                  {"properties":{"k":{"const":"b"}}}]})",
     {R"({"k": "b"})"},
     {R"({"k": "a"})", "{}"}},
    {"WithoutAnEndUnlessLeftOut",
     R"({"properties":{"a":{"$ref":"#/$defs/a"},"b":{"const":1}},
         "$defs":{"a":{"properties":{"a":{"$ref":"#/$defs/a"}},"required":["a"]}}})",
     {"{}", R"({"b": 1})"},
     {R"({"a": 1})"}},
    {"RequiredOther",
     R"({"properties":{},"required":["x"],"additionalProperties":{"const":3}})",
     {R"({"x": 3})", R"({"x": 3, "y": 3})"},
     {"{}", R"({"y": 3})"}},
    {"NameWithEscapes",
     R"({"properties":{"a\"b\\":{"const":1}},"additionalProperties":{"const":2}})",
     {R"({"a\"b\\": 1})", R"({"a": 2})"},
     {R"({"a\"b\\": 2})"}},
};

const SchemaCase kReferences[] = {
    {"Definitions",
     R"({"$ref":"#/$defs/a","$defs":{"a":{"type":"array","items":{"$ref":"#/$defs/b"}},
         "b":{"const":1}}})",
     {"[]", "[1, 1]"},
     {"1", "[2]"}},
    {"Recursive",
     R"({"type":"object","properties":{"v":{"type":"integer"},
         "next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["v","next"]})",
     {R"({"v": 1, "next": null})", R"({"v": 1, "next": {"v": 2, "next": null}})"},
     {R"({"v": 1, "next": {}})", R"({"v": 1})"}},
    {"ReferenceOfAUri",
     R"({"$ref":"#/$defs/Partial%3CFoo%3E","$defs":{"Partial<Foo>":{"const":1}}})",
     {"1"},
     {"2"}},
    {"ReferenceAsItIsWritten",
     R"({"$ref":"#/$defs/100%","$defs":{"100%":{"const":1}}})",
     {"1"},
     {"2"}},
    {"EscapedPointer",
     R"({"$ref":"#/definitions/a~1b","definitions":{"a/b":{"const":1}}})",
     {"1"},
     {"2"}},
};

constexpr auto kName = [](const auto& one) { return one.param.name; };
INSTANTIATE_TEST_SUITE_P(Values, SchemaTexts, testing::ValuesIn(kValues), kName);
INSTANTIATE_TEST_SUITE_P(Arrays, SchemaTexts, testing::ValuesIn(kArrays), kName);
INSTANTIATE_TEST_SUITE_P(Objects, SchemaTexts, testing::ValuesIn(kObjects), kName);
INSTANTIATE_TEST_SUITE_P(References, SchemaTexts, testing::ValuesIn(kReferences), kName);

// Every integer near the borders of drawn ranges.
TEST(JsonSchema, IntegersAreThoseOfTheirRange) {
  Prng prng(3);
  for (int i = 0; i < 200; ++i) {
    const std::int64_t width = prng.below(4) == 0 ? 30 : 30'000;
    const std::int64_t least = prng.below(2 * width) - width;
    const std::int64_t most = least + prng.below(width);
    ByteAutomaton automaton =
        automaton_of_schema(R"({"type":"integer","minimum":)" + std::to_string(least) +
                            R"(,"exclusiveMaximum":)" + std::to_string(most + 1) + "}");
    for (const std::int64_t border : {least, most, std::int64_t{0}, least / 10, most * 10}) {
      for (std::int64_t value = border - 12; value <= border + 12; ++value) {
        ASSERT_EQ(accepts(automaton, std::to_string(value)), value >= least && value <= most)
            << value << " of " << least << " to " << most;
      }
    }
  }
}

// Numbers of up to six digits behind the point near the borders of drawn ranges.
TEST(JsonSchema, NumbersAreThoseOfTheirRange) {
  Prng prng(5);
  const auto written = [](std::int64_t millionths, std::size_t digits) {
    const std::int64_t whole = std::abs(millionths) / 1'000'000;
    std::string rest = std::to_string(1'000'000 + std::abs(millionths) % 1'000'000).substr(1);
    rest.resize(digits);
    return (millionths < 0 ? "-" : "") + std::to_string(whole) + (digits > 0 ? "." + rest : "");
  };
  for (int i = 0; i < 150; ++i) {
    const std::int64_t width = prng.below(3) == 0   ? 40
                               : prng.below(2) == 0 ? 3'000'000
                                                    : 90'000'000;
    const std::int64_t least = prng.below(2 * width) - width;
    const std::int64_t most = least + prng.below(width);
    ByteAutomaton automaton =
        automaton_of_schema(R"({"type":"number","minimum":)" + written(least, 6) +
                            R"(,"maximum":)" + written(most, 6) + "}");
    for (const std::int64_t border : {least, most, std::int64_t{0}}) {
      for (std::int64_t value = border - 30; value <= border + 30; ++value) {
        for (const std::size_t digits : {0U, 1U, 3U, 5U, 6U}) {
          const std::string text = written(value, digits);
          const auto read = static_cast<std::int64_t>(std::llround(std::stod(text) * 1e6));
          if (text[0] == '-' && read == 0) continue;  // one zero is enough
          ASSERT_EQ(accepts(automaton, text), read >= least && read <= most)
              << text << " of " << least << " to " << most;
        }
      }
    }
  }
}

// Every integer near the borders of drawn ranges and near 0.
TEST(JsonSchema, IntegersAreMultiplesInTheirRange) {
  Prng prng(7);
  for (int i = 0; i < 150; ++i) {
    const std::int64_t steps[] = {1, 2, 7, 10, 25, 60, 100, 250, 1 + prng.below(400), 3000};
    const std::int64_t step = steps[prng.below(std::ssize(steps))];
    const std::int64_t width = step * (1 + prng.below(300));
    const std::int64_t least = prng.below(2 * width) - width;
    const std::int64_t most = least + step + prng.below(width);
    ByteAutomaton automaton = automaton_of_schema(
        R"({"type":"integer","multipleOf":)" + std::to_string(step) + R"(,"minimum":)" +
        std::to_string(least) + R"(,"maximum":)" + std::to_string(most) + "}");
    for (const std::int64_t border : {least, most, std::int64_t{0}, least / 10, most * 10}) {
      for (std::int64_t value = border - step - 5; value <= border + step + 5; ++value) {
        ASSERT_EQ(accepts(automaton, std::to_string(value)),
                  value >= least && value <= most && value % step == 0)
            << value << " of " << least << " to " << most << " by " << step;
      }
    }
  }
}

// Numbers of up to three digits behind the point, in thousandths.
TEST(JsonSchema, NumbersAreMultiplesInTheirRange) {
  const auto written = [](std::int64_t thousandths, int digits) {
    const std::int64_t magnitude = std::abs(thousandths);
    std::string rest = std::to_string(1000 + magnitude % 1000).substr(1);
    rest.resize(static_cast<std::size_t>(digits));
    return (thousandths < 0 ? "-" : "") + std::to_string(magnitude / 1000) +
           (digits > 0 ? "." + rest : "");
  };
  struct Step {
    const char* text;
    std::int64_t thousandths;
  };
  Prng prng(9);
  for (const Step& step : {Step{"0.01", 10}, Step{"0.25", 250}, Step{"0.5", 500}, Step{"2.5", 2500},
                           Step{"0.005", 5}, Step{"5", 5000}, Step{"1e-1", 100}}) {
    for (int i = 0; i < 12; ++i) {
      const std::int64_t least = prng.below(20'000) - 10'000;
      const std::int64_t most = least + step.thousandths + prng.below(9000);
      ByteAutomaton automaton = automaton_of_schema(
          R"({"type":"number","multipleOf":)" + std::string(step.text) + R"(,"minimum":)" +
          written(least, 3) + R"(,"maximum":)" + written(most, 3) + "}");
      for (const std::int64_t border : {least, most, std::int64_t{0}}) {
        for (std::int64_t value = border - 300; value <= border + 300; ++value) {
          const bool meant = value >= least && value <= most && value % step.thousandths == 0;
          // A fraction has as many digits as the step has, or fewer.
          const int places = step.thousandths % 1000 == 0  ? 0
                             : step.thousandths % 100 == 0 ? 1
                             : step.thousandths % 10 == 0  ? 2
                                                           : 3;
          for (int digits = 0; digits <= 3; ++digits) {
            constexpr std::int64_t kCut[] = {1000, 100, 10, 1};
            if (value % kCut[digits] != 0) continue;
            ASSERT_EQ(accepts(automaton, written(value, digits)), meant && digits <= places)
                << written(value, digits) << " of " << written(least, 3) << " to "
                << written(most, 3) << " by " << step.text;
          }
        }
      }
    }
  }
}

TEST(JsonSchema, MultiplesWithoutBoundsHaveAnyMagnitude) {
  ByteAutomaton automaton = automaton_of_schema(R"({"multipleOf":0.01})");
  for (const char* const text : {"0", "0.00", "19.99", "-5.5", "123456789012.34"}) {
    EXPECT_TRUE(accepts(automaton, text)) << text;
  }
  for (const char* const text : {"0.001", "01", "-0", ".5", "5.", "1e2"}) {
    EXPECT_FALSE(accepts(automaton, text)) << text;
  }
  ByteAutomaton thousands = automaton_of_schema(R"({"type":"integer","multipleOf":1e3})");
  EXPECT_TRUE(accepts(thousands, "999999999999999000"));
  EXPECT_TRUE(accepts(thousands, "0"));
  EXPECT_FALSE(accepts(thousands, "500"));
  EXPECT_FALSE(accepts(thousands, "0000"));
}

// Of both signs: most of their rules are the same.
TEST(JsonSchema, LargeStepsAndThoseWithManyPlacesHaveRoomInASchema) {
  ByteAutomaton eighths = automaton_of_schema(R"({"multipleOf":0.125})");
  EXPECT_TRUE(accepts(eighths, "-123456789012.375"));
  EXPECT_TRUE(accepts(eighths, "0.5"));
  EXPECT_FALSE(accepts(eighths, "0.126"));
  ByteAutomaton large = automaton_of_schema(R"({"type":"integer","multipleOf":399})");
  EXPECT_TRUE(accepts(large, "999999999999999999"));
  EXPECT_TRUE(accepts(large, "-798"));
  EXPECT_FALSE(accepts(large, "-799"));
}

TEST(JsonSchema, BoundsOfNumbersAreRoundedIntoTheRange) {
  ByteAutomaton automaton =
      automaton_of_schema(R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1})");
  for (const char* const text : {"0.000001", "0.5", "0.999999"})
    EXPECT_TRUE(accepts(automaton, text));
  for (const char* const text : {"0", "0.0", "1", "1.0", "-0.1", "5e-1", "0.0000001"}) {
    EXPECT_FALSE(accepts(automaton, text)) << text;
  }
  ByteAutomaton open = automaton_of_schema(R"({"type":"number","minimum":2.5})");
  EXPECT_TRUE(accepts(open, "2.5"));
  EXPECT_TRUE(accepts(open, "999999999999"));
  EXPECT_FALSE(accepts(open, "2.499999"));
}

// Where doubles are further apart than units, of bounds too: a number is within as it is written
// and as it is read.
TEST(JsonSchema, BoundsOfAnyMagnitudeAreKeptTo) {
  struct Case {
    const char *schema, *allowed, *refused;
  };
  const Case cases[] = {
      {R"({"type":"number","exclusiveMaximum":10000000000})", "9999999999.999999", "10000000000"},
      {R"({"type":"number","exclusiveMinimum":10000000000})", "10000000000.000002", "10000000000"},
      {R"({"type":"number","exclusiveMinimum":-99999999999.5})", "-99999999999.4",
       "-99999999999.5"},
      {R"({"type":"number","maximum":999999999999})", "999999999999.0", "999999999999.000001"},
      {R"({"type":"integer","exclusiveMaximum":1e17})", "99999999999999984", "100000000000000000"},
      {R"({"type":"integer","exclusiveMinimum":9007199254740992})", "9007199254740994",
       "9007199254740992"},
      {R"({"type":"integer","minimum":9007199254740993})", "9007199254740993", "9007199254740992"},
      {R"({"type":"integer","maximum":-123456789012345678})", "-123456789012345678",
       "-123456789012345677"},
      {R"({"type":"integer","maximum":18446744073709551615})", "999999999999999999", "1.0"},
      {R"({"type":"integer","multipleOf":10,"exclusiveMinimum":1e16})", "10000000000000010",
       "10000000000000000"}};
  for (const Case& one : cases) {
    ByteAutomaton automaton = automaton_of_schema(one.schema);
    EXPECT_TRUE(accepts(automaton, one.allowed)) << one.schema;
    EXPECT_FALSE(accepts(automaton, one.refused)) << one.schema;
  }
}

TEST(JsonSchema, BoundsOfIntegersMayBeFractions) {
  ByteAutomaton automaton =
      automaton_of_schema(R"({"type":"integer","minimum":-1.5,"maximum":1e99})");
  EXPECT_TRUE(accepts(automaton, "-1"));
  EXPECT_FALSE(accepts(automaton, "-2"));
  EXPECT_TRUE(accepts(automaton, "999999999999999999"));
}

TEST(JsonSchema, TextsThatAreDrawnAreJson) {
  Prng prng(11);
  for (const char* const schema :
       {"true", R"({"type":"object"})", R"({"type":"array","items":{"type":"string"}})",
        R"({"properties":{"a":{},"b":{"type":"number"}},"additionalProperties":{}})"}) {
    ByteAutomaton automaton = automaton_of_schema(schema);
    for (int i = 0; i < 500; ++i) {
      const std::string text = drawn_text(automaton, prng, 60);
      ASSERT_TRUE(TemplateJson::accept(text)) << text;
    }
  }
}

std::string refusal(std::string_view schema, bool strict = true) {
  ByteGrammar grammar;
  const SchemaRules rules = {.strict = strict, .path = "s"};
  const auto whole = add_json_schema(TemplateJson::parse(schema), rules, grammar);
  if (!whole.ok()) return whole.error().detail;
  const auto program = grammar.compile(*whole);
  return program.ok() ? "" : program.error().detail;
}

TEST(JsonSchema, OfWhichThereIsNoRoomForAStringIsRefusedForItsSize) {
  std::string items = "{}";
  while (items.size() < ByteGrammar::kPartsMax) items += ",{}";
  const std::string schema = R"({"type":["array","string"],"prefixItems":[)" + items + "],";
  EXPECT_EQ(refusal(schema + R"("format":"date"})"), "more than 1048576 parts");
  EXPECT_EQ(refusal(schema + R"("pattern":"a"})"), "s.pattern: more than 1048576 parts");
}

TEST(JsonSchema, SaysWhatIsWrongAndWhere) {
  EXPECT_EQ(refusal("1"), "s: must be an object or a boolean");
  EXPECT_EQ(refusal("false"), "s: false allows nothing");
  EXPECT_EQ(refusal(R"({"type":"text"})"), "s.type: \"text\" is no type");
  EXPECT_EQ(refusal(R"({"type":1})"), "s.type: must be a name or a list of names");
  EXPECT_EQ(refusal(R"({"properties":{"a":{"items":[]}}})"),
            "s.properties.a.items: must be a schema or a list of at least one");
  EXPECT_EQ(refusal(R"({"enum":[1],"type":"x"})"), "s.type: \"x\" is no type");
  EXPECT_EQ(refusal(R"({"enum":[1],"type":"null"})"), "s: no value is of its type");
  EXPECT_EQ(refusal(R"({"anyOf":[false,{"minItems":2,"maxItems":1}]})"),
            "s.anyOf[1]: maxItems is below minItems");
  EXPECT_EQ(refusal(R"({"properties":{"a":false,"b":{"anyOf":[false]}},"required":["b"]})"),
            "s.properties.b.anyOf[0]: false allows nothing");
  EXPECT_EQ(refusal(R"({"prefixItems":[{},false],"minItems":2})"),
            "s.prefixItems[1]: false allows nothing");
  EXPECT_EQ(refusal(R"({"anyOf":[]})"), "s.anyOf: must be a list of at least one");
  EXPECT_EQ(refusal(R"({"anyOf":[true,{"type":"x"}]})"), "s.anyOf[1].type: \"x\" is no type");
  EXPECT_EQ(refusal(R"({"$ref":"#/a"})"), "s.$ref: \"#/a\" is not there");
  EXPECT_EQ(refusal(R"({"$ref":"#a"})"), "s.$ref: \"#a\" is no place");
  EXPECT_EQ(refusal(R"({"$ref":"http://a"})"), "s.$ref: only within the schema (#...)");
  EXPECT_EQ(refusal(R"({"minItems":-1})"), "s.minItems: must be a number of things");
  EXPECT_EQ(refusal(R"({"minLength":3,"maxLength":2})"), "s: maxLength is below minLength");
  EXPECT_EQ(refusal(R"({"required":["x"],"additionalProperties":false})"),
            "s.required: \"x\" is no property");
  EXPECT_EQ(refusal(R"({"type":"integer","minimum":2,"maximum":1})"),
            "s: no integer of at most 18 digits is in this range");
  EXPECT_EQ(refusal(R"({"prefixItems":[1],"items":false,"minItems":2})"),
            "s: minItems are more than items");
  EXPECT_EQ(refusal(R"({"type":"number","minimum":0.0000001,"maximum":0.0000002})"),
            "s: no number with six digits of a fraction is in this range");
  EXPECT_EQ(refusal(R"({"type":"integer","minimum":"1"})"), "s: minimum must be a number");
  EXPECT_EQ(refusal(R"({"multipleOf":0})"), "s.multipleOf: must be a number above 0");
  EXPECT_EQ(refusal(R"({"multipleOf":"2"})"), "s.multipleOf: must be a number above 0");
  EXPECT_EQ(refusal(R"({"multipleOf":7,"minimum":8,"maximum":13})"),
            "s: no multiple is in this range");
  EXPECT_EQ(refusal(R"~({"pattern":"(a"})~"), "s.pattern: at 2: a ( without a )");
  EXPECT_EQ(refusal(R"({"type":"string","pattern":1})"), "s.pattern: must be a string");
}

// Members grow beyond what was taken for them while names are looked up.
TEST(JsonSchema, NamesThatNoPropertyHasMayBeRequiredAmongOthers) {
  ByteAutomaton automaton = automaton_of_schema(
      R"({"properties":{"a":{"const":1},"b":{"const":2}},"required":["w","x","y","z","b"],
          "additionalProperties":{"const":0}})");
  EXPECT_TRUE(accepts(automaton, R"({"b": 2, "w": 0, "x": 0, "y": 0, "z": 0})"));
  EXPECT_FALSE(accepts(automaton, R"({"a": 1, "w": 0, "x": 0, "y": 0, "z": 0})"));
}

TEST(JsonSchema, ANameThatIsRequiredTwiceComesOnce) {
  ByteAutomaton automaton =
      automaton_of_schema(R"({"type":"object","required":["a","a"],"additionalProperties":true})");
  EXPECT_TRUE(accepts(automaton, R"({"a": 1})"));
}

TEST(JsonSchema, RefusesWhatNoTextCanBe) {
  EXPECT_EQ(refusal(R"({"properties":{"a":{"$ref":"#"}},"required":["a"]})"),
            "there is no finite text of this form");
  EXPECT_EQ(refusal(R"({"$ref":"#"})"), "there is no finite text of this form");
  EXPECT_EQ(refusal(R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})"), "a form begins with itself");
  EXPECT_EQ(refusal(R"({"maxLength":1e9})"), "more than 262144 steps");
}

TEST(JsonSchema, AStrictOneKeepsToAllThatItSays) {
  EXPECT_EQ(refusal(R"({"properties":{"a":{"uniqueItems":true}}})"),
            "s.properties.a.uniqueItems: not supported where a schema is strict");
  EXPECT_EQ(refusal(R"({"multipleOf":0.12345678})"),
            "s.multipleOf: not supported with so many digits where a schema is strict");
  EXPECT_EQ(refusal(R"({"type":"integer","multipleOf":401})"),
            "s.multipleOf: not supported with so many digits where a schema is strict");
  EXPECT_EQ(refusal(R"({"multipleOf":0.399})"),
            "s.multipleOf: not supported with so many digits where a schema is strict");
  EXPECT_EQ(refusal(R"({"pattern":"a\\b"})"), "s.pattern: at 2: \\b is not supported");
  EXPECT_EQ(refusal(R"({"pattern":"a","maxLength":3})"),
            "s.pattern: not supported beside a length");
  EXPECT_EQ(refusal(R"({"allOf":[{"pattern":"a"},{"pattern":"b"}]})"),
            "s: pattern of several schemas is not supported");
  EXPECT_EQ(refusal(R"({"allOf":[{"type":"null"},{"type":"string"}]})"),
            "s: nothing keeps to all that it says");
  EXPECT_EQ(refusal(R"({"anyOf":[true],"not":{"maxLength":2}})"),
            "s: not of maxLength is not supported");
  EXPECT_EQ(refusal(R"({"enum":[1],"minimum":2})"), "s: minimum beside enum is not supported");
}

// Generators write them: of a record with any names, of a list that may repeat.
TEST(JsonSchema, WhatNarrowsNothingIsKeptToByAll) {
  for (const char* const word :
       {R"("propertyNames":{"type":"string"})", R"("propertyNames":{})", R"("propertyNames":true)",
        R"("minProperties":0)", R"("uniqueItems":false)"}) {
    const std::string schema = R"({"additionalProperties":{"type":["number","array"]},)";
    EXPECT_EQ(refusal((schema + word + "}").c_str()), "") << word;
  }
  ByteAutomaton automaton = automaton_of_schema(
      R"({"type":"object","propertyNames":{"type":"string"},"additionalProperties":true})");
  EXPECT_TRUE(accepts(automaton, R"({"any name": 1})"));
  for (const char* const narrow :
       {R"({"propertyNames":{"type":"string","maxLength":3}})", R"({"minProperties":1})",
        R"({"allOf":[{"uniqueItems":false},{"uniqueItems":true}]})",
        R"({"allOf":[{"uniqueItems":true},{"uniqueItems":false}]})"}) {
    EXPECT_NE(refusal(narrow), "") << narrow;
  }
}

TEST(JsonSchema, OneThatIsNotStrictKeepsToWhatItCan) {
  for (const char* const schema :
       {R"~({"type":"string","pattern":"(?=x)"})~", R"({"pattern":"x","minLength":2})",
        R"({"type":"number","multipleOf":0.1234567})", R"({"type":"number","multipleOf":0.399})",
        R"({"allOf":[{"pattern":"a"},{"pattern":"b"}]})",
        R"({"anyOf":[true],"not":{"maxLength":2}})"}) {
    EXPECT_EQ(refusal(schema, /*strict=*/false), "") << schema;
  }
  EXPECT_EQ(refusal(R"({"type":"x"})", /*strict=*/false), "s.type: \"x\" is no type");
}

}  // namespace
}  // namespace stemma
