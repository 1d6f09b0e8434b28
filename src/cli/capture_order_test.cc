// Requests end in any order, and are due in that in which they came.
#include "cli/capture_order.h"

#include <gtest/gtest.h>

#include <vector>

namespace stemma {
namespace {

class CaptureOrderTest : public ::testing::Test {
 protected:
  void end(std::int64_t id, FinishReason finish = FinishReason::kStop, std::size_t tokens = 10) {
    EndedRequest request;
    request.request = RequestId(id);
    request.finish = finish;
    request.tokens = std::vector<TokenId>(tokens);
    order_.ended(std::move(request));
  }
  std::vector<std::int64_t> due() {
    std::vector<std::int64_t> ids;
    while (const auto next = order_.try_next()) {
      EXPECT_GE(next->submitted_us, latest_us_);
      latest_us_ = next->submitted_us;
      ids.push_back(next->ended.request.value());
    }
    return ids;
  }

  CaptureOrder order_{100};
  std::int64_t latest_us_ = 0;
};

using Ids = std::vector<std::int64_t>;

TEST_F(CaptureOrderTest, WhoEndsWaitsForThoseBefore) {
  for (const int id : {4, 5, 6, 7}) order_.came(RequestId(id), 1'000 * id);
  end(6);
  end(5);
  EXPECT_EQ(due(), Ids());
  end(4);
  EXPECT_EQ(due(), (Ids{4, 5, 6}));
  end(7);
  EXPECT_EQ(due(), Ids{7});
  EXPECT_EQ(order_.left_out(), 0);
}

// Threads that submit are not in step with the one that takes requests in.
TEST_F(CaptureOrderTest, TimesDoNotGoBack) {
  order_.came(RequestId(1), 5'000);
  order_.came(RequestId(2), 4'000);
  end(1);
  end(2);
  EXPECT_EQ(order_.try_next()->submitted_us, 5'000);
  EXPECT_EQ(order_.try_next()->submitted_us, 5'000);
}

TEST_F(CaptureOrderTest, WhatFailedIsNotDueAndHoldsNobodyUp) {
  for (const int id : {1, 2}) order_.came(RequestId(id), 0);
  end(2);
  end(1, FinishReason::kFailed);
  EXPECT_EQ(due(), Ids{2});
  EXPECT_EQ(order_.left_out(), 0);
}

TEST_F(CaptureOrderTest, WhoIsWaitedForForTooLongIsLeftOut) {
  for (const int id : {1, 2, 3, 4, 5}) order_.came(RequestId(id), 0);
  for (const int id : {2, 4}) end(id, FinishReason::kStop, 50);
  EXPECT_EQ(due(), Ids());
  end(5, FinishReason::kStop, 1);
  EXPECT_EQ(due(), Ids{2}) << "50 and 1 tokens may go on waiting for the third";
  EXPECT_EQ(order_.left_out(), 1);
  end(1);
  EXPECT_EQ(due(), Ids());
  end(3);
  EXPECT_EQ(due(), (Ids{3, 4, 5}));
}

TEST_F(CaptureOrderTest, WhatIsLostIsLeftOut) {
  for (const int id : {1, 2}) order_.came(RequestId(id), 0);
  end(2);
  order_.lost(RequestId(1));
  order_.lost(RequestId(9));
  EXPECT_EQ(due(), Ids{2});
  EXPECT_EQ(order_.left_out(), 1);
}

TEST_F(CaptureOrderTest, AtTheEndNobodyIsWaitedFor) {
  for (const int id : {1, 2, 3}) order_.came(RequestId(id), 0);
  end(2);
  order_.give_up_rest();
  EXPECT_EQ(due(), Ids{2});
  end(3);
  EXPECT_EQ(due(), Ids());
}

}  // namespace
}  // namespace stemma
