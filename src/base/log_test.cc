// Log: an event is one line of key=value fields; below the threshold nothing is formatted.
#include "stemma/log.h"

#include <gtest/gtest.h>

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
    set_log_sink({});
  }
  std::vector<std::string> lines_;
};

TEST_F(Log, AnEventIsOneLineOfFields) {
  STEMMA_LOG(kInfo, "pool.opened", kv("pages", 64), kv("dtype", "bf16"));
  EXPECT_EQ(lines_, std::vector<std::string>{"pool.opened pages=64 dtype=bf16"});
}

TEST_F(Log, ValuesThatWouldBreakTheLineAreQuoted) {
  STEMMA_LOG(kWarning, "file.refused", kv("path", "a b"), kv("why", "said \"no\"\nand left"));
  EXPECT_EQ(lines_,
            std::vector<std::string>{"file.refused path=\"a b\" why=\"said \\\"no\\\" and left\""});
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
