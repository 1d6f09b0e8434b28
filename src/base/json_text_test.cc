#include "base/json_text.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

namespace stemma {
namespace {

std::string fault_of(std::string_view text, const JsonLimits& limits = {}) {
  const auto parsed = parse_ordered_json(text, "f", limits);
  return parsed.ok() ? "" : parsed.error().detail;
}

TEST(JsonText, ReadsWhatTheParserReads) {
  for (const std::string text :
       {"null", "-0.0", "18446744073709551615", "-9223372036854775808", "1e30", R"("a\u00e9\n")",
        "[]", "{}", R"([1,[true,{}],[],"x"])", R"({"b":{"a":[{"c":null}],"d":2},"a":false})"}) {
    const auto ordered = parse_ordered_json(text, "f", {});
    ASSERT_TRUE(ordered.ok()) << ordered.error().detail;
    EXPECT_EQ(ordered->dump(), nlohmann::ordered_json::parse(text).dump());
    const auto sorted = parse_json_value(text, "f", {});
    ASSERT_TRUE(sorted.ok());
    EXPECT_EQ(*sorted, nlohmann::json::parse(text));
  }
}

TEST(JsonText, WhatIsNoJsonIsRefusedWithItsByte) {
  EXPECT_EQ(fault_of(""), "f: not valid JSON at byte 1");
  EXPECT_EQ(fault_of("[1,]"), "f: not valid JSON at byte 4");
  EXPECT_EQ(fault_of("{} {}"), "f: not valid JSON at byte 4");
  EXPECT_EQ(fault_of("\"\xFF\""), "f: not valid JSON at byte 2");
  EXPECT_EQ(fault_of("[1e400]").substr(0, 18), "f: not valid JSON:");
}

TEST(JsonText, LimitsHold) {
  EXPECT_EQ(fault_of("[[]]", {.depth_max = 2}), "");
  EXPECT_EQ(fault_of("[[[]]]", {.depth_max = 2}), "f: JSON nested deeper than 2 levels");
  EXPECT_EQ(fault_of(R"({"a":1,"b":{"c":1,"d":2}})", {.fields_max = 2}), "");
  EXPECT_EQ(fault_of(R"([{"a":1,"b":2,"c":3}])", {.fields_max = 2}),
            "f: a JSON object of more than 2 fields");
  EXPECT_EQ(fault_of("[1]", {.text_bytes_max = 2}), "f: 3 bytes of JSON; at most 2 are accepted");
}

std::string fault_of(const std::vector<std::uint8_t>& bytes, const JsonLimits& limits = {}) {
  const auto parsed = parse_msgpack(bytes, "m", limits);
  return parsed.ok() ? "" : parsed.error().detail;
}

TEST(MessagePack, ReadsWhatWasWritten) {
  const auto value = nlohmann::json::parse(R"([null,true,-7,1e30,"x",{"a":[{}],"b":{"c":[]}}])");
  const auto bytes = nlohmann::json::to_msgpack(value);
  const auto parsed = parse_msgpack(bytes, "m", {});
  ASSERT_TRUE(parsed.ok()) << parsed.error().detail;
  EXPECT_EQ(*parsed, value);
  for (std::size_t whole = 0; whole < bytes.size(); ++whole) {
    EXPECT_NE(fault_of({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(whole)}), "");
  }
}

TEST(MessagePack, OneWholeValueWithinTheLimits) {
  EXPECT_EQ(fault_of({0xC0, 0xC0}), "m: not valid MessagePack at byte 2") << "two values";
  EXPECT_EQ(fault_of({0xC1}), "m: not valid MessagePack at byte 1");
  EXPECT_EQ(fault_of({0x91, 0x91, 0x90}, {.depth_max = 2}),
            "m: MessagePack nested deeper than 2 levels");
  EXPECT_EQ(fault_of({0x82, 0xA1, 'a', 1, 0xA1, 'a', 2}), "m: key 'a' appears twice");
  EXPECT_EQ(fault_of({0xC0, 0xC0}, {.text_bytes_max = 1}),
            "m: 2 bytes of MessagePack; at most 1 are accepted");
}

TEST(JsonText, ANameComesOnceUnlessItMayRepeat) {
  const std::string text = R"({"a":1,"b":{"a":2},"a":[{"c":3}]})";
  EXPECT_EQ(fault_of(text), "f: key 'a' appears twice");
  const auto ordered = parse_ordered_json(text, "f", {.names_repeat = true});
  ASSERT_TRUE(ordered.ok());
  EXPECT_EQ(ordered->dump(), R"({"a":[{"c":3}],"b":{"a":2}})") << "the last value, the first place";
  const auto sorted = parse_json_value(text, "f", {.names_repeat = true});
  EXPECT_EQ(*sorted, nlohmann::json::parse(text));
}

TEST(JsonText, IntegersBeyond64BitsAreDoublesUnlessTheirDigitsAreKept) {
  const std::string text = R"([18446744073709551615,-18446744073709551616,1.5,1e30])";
  const auto rounded = parse_ordered_json(text, "f", {});
  ASSERT_TRUE(rounded.ok());
  EXPECT_EQ((*rounded)[1], -18446744073709551616.0);
  const auto kept = parse_ordered_json(text, "f", {.keeps_wide_integers = true});
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ((*kept)[0], 18446744073709551615U);
  const auto& digits = (*kept)[1].get_binary();
  EXPECT_EQ(std::string(digits.begin(), digits.end()), "-18446744073709551616");
  EXPECT_EQ((*kept)[2], 1.5);
  EXPECT_EQ((*kept)[3], 1e30);
}

TEST(JsonText, DigitsThatWereKeptBecomeDoublesAgain) {
  const std::string text = R"({"a":[1,{"b":36893488147419103232}],"c":"x","d":-1e30})";
  auto kept = parse_ordered_json(text, "f", {.keeps_wide_integers = true});
  const auto rounded = parse_ordered_json(text, "f", {});
  ASSERT_TRUE(kept.ok() && rounded.ok());
  EXPECT_NE(*kept, *rounded);
  EXPECT_TRUE(narrow_wide_integers(*kept));
  EXPECT_EQ(*kept, *rounded);
  EXPECT_FALSE(narrow_wide_integers(*kept));
}

TEST(JsonText, NamesThatRepeatCostNoSearch) {
  std::string text = "{\"0\":0";
  for (int i = 1; i < 100'000; ++i) text += ",\"" + std::to_string(i) + "\":0";
  for (int i = 0; i < 400'000; ++i) text += ",\"99999\":1";
  const auto began = std::chrono::steady_clock::now();
  const auto parsed = parse_ordered_json(text + "}", "f",
                                         {.text_bytes_max = text.size() + 1, .names_repeat = true});
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->size(), 100'000U);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20))
      << "it was a minute";
}

// The parser's own callback looks at all objects before one in its list: these would take a minute.
TEST(JsonText, ManyObjectsInAListCostAsMuchAsTheirText) {
  std::string text = "[{}";
  for (int i = 1; i < 300'000; ++i) text += ",{}";
  const auto began = std::chrono::steady_clock::now();
  const auto parsed = parse_ordered_json(text + "]", "f", {});
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->size(), 300'000U);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20));
}

}  // namespace
}  // namespace stemma
