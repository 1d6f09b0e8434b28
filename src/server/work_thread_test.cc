// Covers the work thread: in order; what waits is bounded in number and bytes, can be withdrawn,
// and is dropped at the end.
#include "server/work_thread.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace stemma {
namespace {

// A work thread that stands at a gate, so that what is posted waits.
class WorkThreadTest : public ::testing::Test {
 protected:
  WorkThreadTest() {
    EXPECT_TRUE(thread_->try_post({ExchangeId(0), 0, [this] {
                                     begun_.set_value();
                                     gate_.get_future().wait();
                                   }}));
    begun_.get_future().wait();
  }
  bool post(std::int64_t exchange, std::int64_t bytes) {
    return thread_->try_post(
        {ExchangeId(exchange), bytes, [this, exchange] { ran_ += std::to_string(exchange); }});
  }
  // What ran, once all that waits has.
  std::string let_go() {
    std::promise<void> last;
    EXPECT_TRUE(thread_->try_post({ExchangeId(99), 0, [&last] { last.set_value(); }}));
    gate_.set_value();
    last.get_future().wait();
    return ran_;
  }

  std::promise<void> begun_;
  std::promise<void> gate_;
  std::string ran_;
  std::unique_ptr<WorkThread> thread_ =
      std::make_unique<WorkThread>(WorkThread::Limits{.works = 4, .bytes = 100});
};

TEST_F(WorkThreadTest, WorkRunsInTheOrderInWhichItCame) {
  EXPECT_TRUE(post(1, 1) && post(2, 1) && post(3, 1));
  EXPECT_EQ(let_go(), "123");
}

TEST_F(WorkThreadTest, WhatALibraryThrowsCostsOneWorkAlone) {
  const auto look_up = [this] { ran_ += std::to_string(std::vector<int>().at(7)); };
  const auto note = [this](std::string_view what) { ran_ += what.empty() ? "?" : "!"; };
  EXPECT_TRUE(post(1, 1));
  EXPECT_TRUE(thread_->try_post({ExchangeId(2), 1, look_up, note}));
  EXPECT_TRUE(thread_->try_post({ExchangeId(3), 1, look_up}));
  EXPECT_EQ(let_go(), "1!");
}

TEST_F(WorkThreadTest, WhatWaitsIsBoundedInNumberAndBytes) {
  EXPECT_TRUE(post(1, 60));
  EXPECT_FALSE(post(2, 41)) << "more bytes";
  EXPECT_TRUE(post(3, 40) && post(4, 0));
  EXPECT_TRUE(thread_->try_post({ExchangeId(5), 0, [] {}}));
  EXPECT_FALSE(post(6, 0)) << "more pieces of work";
  thread_->withdraw(ExchangeId(5));
  EXPECT_EQ(let_go(), "134");
}

TEST_F(WorkThreadTest, WhatNobodyWantsAnyMoreIsNotRunAndLeavesItsRoom) {
  EXPECT_TRUE(post(1, 50) && post(2, 50));
  EXPECT_TRUE(thread_->withdraw(ExchangeId(1)));
  EXPECT_FALSE(thread_->withdraw(ExchangeId(7)));
  EXPECT_FALSE(thread_->withdraw(ExchangeId(0))) << "it runs";
  EXPECT_TRUE(post(3, 50));
  EXPECT_EQ(let_go(), "23");
}

TEST_F(WorkThreadTest, WhatHasRunLeavesItsRoom) {
  EXPECT_TRUE(post(1, 60) && post(2, 40));
  EXPECT_FALSE(post(3, 1));
  EXPECT_EQ(let_go(), "12");
  EXPECT_TRUE(post(4, 100));
}

TEST_F(WorkThreadTest, WhatWaitsAtTheEndIsDropped) {
  EXPECT_TRUE(post(1, 1));
  thread_->end();
  EXPECT_FALSE(post(2, 1));
  gate_.set_value();
  thread_.reset();
  EXPECT_EQ(ran_, "");
}

}  // namespace
}  // namespace stemma
