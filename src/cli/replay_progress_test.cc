// ReplayProgress: what is shown, how often, and that it does not stay.
#include "cli/replay_progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

namespace stemma {
namespace {

using Show = ReplayProgress::Show;

ReplayProgress::State half_way() {
  return {.read_bytes = 50, .requests = 7, .hit_rate = 0.25, .lane = "lru, 10 pages"};
}

// As many calls as it takes to be looked at once.
void look(ReplayProgress& progress) {
  for (std::int64_t i = 0; i < ReplayProgress::kCallsPerLook; ++i) progress.update(half_way);
}

TEST(ReplayProgress, SaysShareRequestsAndHits) {
  FakeClock clock;
  std::ostringstream out;
  ReplayProgress progress(clock, out, Show::kLines, 100);
  clock.advance_us(500'000);
  look(progress);
  EXPECT_EQ(out.str(), "stemma: lru, 10 pages: 50% read, 7 requests, 25.0% hits\n");
}

TEST(ReplayProgress, IsSilentInTheFirstHalfSecondAndBetweenLines) {
  FakeClock clock;
  std::ostringstream out;
  ReplayProgress progress(clock, out, Show::kLines, 100);
  for (int step = 1; step <= 24; ++step) {  // 2.4 s
    clock.advance_us(100'000);
    look(progress);
  }
  const std::string text = out.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
}

TEST(ReplayProgress, InPlaceItLeavesNothingBehind) {
  FakeClock clock;
  std::ostringstream out;
  {
    ReplayProgress progress(clock, out, Show::kInPlace, 100);
    clock.advance_us(500'000);
    look(progress);
  }
  const std::string text = out.str();
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_EQ(text.rfind("\r\033[K"), text.size() - 4) << "erased at the end";
}

TEST(ReplayProgress, IsSilentIfNobodyLooks) {
  FakeClock clock;
  std::ostringstream out;
  {
    ReplayProgress progress(clock, out, Show::kNever, 100);
    clock.advance_us(5'000'000);
    look(progress);
  }
  EXPECT_EQ(out.str(), "");
}

TEST(ReplayProgress, OfAnUnknownSizeNoShareIsSaid) {
  FakeClock clock;
  std::ostringstream out;
  ReplayProgress progress(clock, out, Show::kLines, 0);
  clock.advance_us(500'000);
  look(progress);
  EXPECT_EQ(out.str(), "stemma: lru, 10 pages: 7 requests, 25.0% hits\n");
}

}  // namespace
}  // namespace stemma
