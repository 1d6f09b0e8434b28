// Log: an event is one line of key=value fields; below the threshold nothing is formatted.
#include "stemma/log.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace stemma {
namespace {

class Log : public testing::Test {
 protected:
  void SetUp() override {
    set_log_sink([this](LogLevel, std::string_view line) { lines_.emplace_back(line); });
  }
  void TearDown() override {
    set_log_level(LogLevel::kInfo);
    set_log_format(LogFormat::kText);
    set_log_sink({});
  }
  std::vector<std::string> lines_;
};

TEST_F(Log, AnEventIsOneLineOfFields) {
  STEMMA_LOG(kInfo, "pool.opened", kv("pages", 64), kv("dtype", "bf16"));
  EXPECT_EQ(lines_, std::vector<std::string>{"pool.opened pages=64 dtype=bf16"});
}

TEST_F(Log, WhatASinkLogsIsDropped) {
  set_log_sink([this](LogLevel, std::string_view line) {
    lines_.emplace_back(line);
    STEMMA_LOG(kError, "log.of_a_log");
  });
  STEMMA_LOG(kInfo, "one");
  STEMMA_LOG(kInfo, "two");
  EXPECT_EQ(lines_, (std::vector<std::string>{"one", "two"}));
}

TEST_F(Log, ASinkMaySetAnother) {
  set_log_sink([this](LogLevel, std::string_view line) {
    lines_.emplace_back(line);
    set_log_sink({});
  });
  STEMMA_LOG(kInfo, "one");
  STEMMA_LOG(kInfo, "two");
  EXPECT_EQ(lines_, (std::vector<std::string>{"one"}));
}

TEST_F(Log, ValuesThatWouldBreakTheLineAreQuoted) {
  STEMMA_LOG(kWarning, "file.refused", kv("path", "a b"), kv("why", "said \"no\"\nand left"));
  EXPECT_EQ(lines_,
            std::vector<std::string>{"file.refused path=\"a b\" why=\"said \\\"no\\\" and left\""});
}

TEST_F(Log, NoValueTalksToTheTerminal) {
  const auto shown = [&](std::string_view value) {
    lines_.clear();
    STEMMA_LOG(kInfo, "e", kv("v", value));
    return lines_.at(0).substr(4);
  };
  EXPECT_EQ(shown("\x1b[2J"), R"("\x1b[2J")");
  EXPECT_EQ(shown("\a\b\v\f\x7f"), R"("\x07\x08\x0b\x0c\x7f")");
  EXPECT_EQ(shown(std::string_view("\0", 1)), R"("\x00")");
  EXPECT_EQ(shown("\u0085\u009b"), R"("\xc2\x85\xc2\x9b")") << "C1, as it is in UTF-8";
  EXPECT_EQ(shown("\u2028\u2029"), R"("\xe2\x80\xa8\xe2\x80\xa9")");
  EXPECT_EQ(shown("a\x9b\xff"), R"("a\x9b\xff")") << "what is not UTF-8";
  EXPECT_EQ(shown("\\x1b\x1b"), R"("\\x1b\x1b")") << "a backslash of its own is doubled";
  EXPECT_EQ(shown("\\x1b"), R"(\x1b)") << "where nothing is quoted, nothing is escaped";
  EXPECT_EQ(shown("grün\u00a0水🌱"), "grün\u00a0水🌱");
}

TEST_F(Log, AsJsonAnEventIsOneObject) {
  set_log_format(LogFormat::kJson);
  STEMMA_LOG(kWarning, "file.refused", kv("path", "a \"b\"\n\\"), kv("pages", 64), kv("share", 0.5),
             kv("ratio", std::nan("")));
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_THAT(lines_[0],
              testing::MatchesRegex(R"(\{"time":[0-9]+\.[0-9]{6},"level":"warning",.*)"));
  const std::string rest = lines_[0].substr(lines_[0].find(R"("level")"));
  EXPECT_EQ(rest, R"("level":"warning","event":"file.refused","path":"a \"b\"\u000a\\",)"
                  R"("pages":64,"share":0.500000,"ratio":"nan"})");
}

TEST_F(Log, AsJsonControlsAreEscapedAndWhatIsNotUtf8IsReplaced) {
  set_log_format(LogFormat::kJson);
  const auto shown = [&](std::string_view value) {
    lines_.clear();
    STEMMA_LOG(kInfo, "e", kv("v", value));
    const std::string& line = lines_.at(0);
    const std::size_t begin = line.find(R"("v":")") + 5;
    return line.substr(begin, line.size() - begin - 2);
  };
  EXPECT_EQ(shown("grün 水 🌱"), "grün 水 🌱");
  EXPECT_EQ(shown("a\xff"
                  "b"),
            "a\\ufffdb");
  EXPECT_EQ(shown("\x1b\x7f\u0080\u009f\u2028\u2029"), R"(\u001b\u007f\u0080\u009f\u2028\u2029)");
  EXPECT_EQ(shown("\u00a0"), "\u00a0");
  EXPECT_EQ(shown("\xc0\x80"), "\\ufffd\\ufffd") << "overlong";
  EXPECT_EQ(shown("\xed\xa0\x80"), "\\ufffd\\ufffd\\ufffd") << "a surrogate";
  EXPECT_EQ(shown("\xe6\xb0"), "\\ufffd\\ufffd") << "cut off";
  EXPECT_EQ(shown("\xf4\x90\x80\x80"), "\\ufffd\\ufffd\\ufffd\\ufffd");
}

TEST_F(Log, BelowTheThresholdNothingIsFormatted) {
  int formatted = 0;
  const auto count = [&] { return ++formatted; };
  set_log_level(LogLevel::kError);
  STEMMA_LOG(kInfo, "quiet", kv("n", count()));
  EXPECT_EQ(formatted, 0);
  STEMMA_LOG(kError, "loud", kv("n", count()));
  EXPECT_EQ(lines_, std::vector<std::string>{"loud n=1"});
}

}  // namespace
}  // namespace stemma
