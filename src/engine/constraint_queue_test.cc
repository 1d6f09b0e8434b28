// Covers who is worked for: no more than a step may, cheap ones at once, costly ones in the end.
#include "engine/constraint_queue.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>

#include "engine/costly_constraint.h"

namespace stemma {
namespace {

class ConstraintQueueTest : public ::testing::Test {
 protected:
  static constexpr std::int64_t kUnits = ConstraintQueue::kStepWork;

  struct Output {
    Request request;
    std::unique_ptr<CostlyConstraint> constraint;
  };

  // Whose tokens take so much work each.
  Output& add(std::int64_t work, bool in_flight = true) {
    Output& output = outputs_.emplace_back();
    output.constraint = std::make_unique<CostlyConstraint>(
        CostlyConstraint::Extent{.least = 0, .most = 1'000'000, .work = work});
    output.request.start(
        {.id = RequestId(std::ssize(outputs_)), .ns = NamespaceId(0), .prompt = {1}});
    output.request.slot = static_cast<std::int32_t>(outputs_.size() - 1);
    if (in_flight) output.request.become(RequestState::kPrefilling);
    queue_.add(output.request, *output.constraint);
    return output;
  }
  // Whoever does not rest has a token.
  std::int64_t step() {
    const std::int64_t work = queue_.work();
    for (Output& output : outputs_) {
      if (output.request.rests || !output.request.in_flight()) continue;
      output.constraint->accept(1);
      queue_.note_accepted(output.request);
      ++tokens_[output.request.id];
    }
    return work;
  }

  ConstraintQueue queue_{200};
  std::deque<Output> outputs_;
  std::map<RequestId, std::int64_t> tokens_;
};

TEST_F(ConstraintQueueTest, WhoIsReadyDoesNotRest) {
  Output& cheap = add(10);
  Output& costly = add(100 * kUnits);
  EXPECT_GE(queue_.work(), kUnits);
  EXPECT_FALSE(cheap.request.rests);
  EXPECT_TRUE(costly.request.rests);
  queue_.remove(costly.request);
  EXPECT_EQ(queue_.work(), 0);
}

TEST_F(ConstraintQueueTest, AStepWorksNoMoreThanItMay) {
  for (int i = 0; i < 64; ++i) add(1'500'000);
  for (int steps = 0; steps < 500; ++steps) {
    const std::int64_t work = step();
    EXPECT_GE(work, kUnits);
    EXPECT_LE(work, kUnits + 64) << "and what each began";
  }
}

TEST_F(ConstraintQueueTest, CheapOnesHaveATokenEachStepBesideCostlyOnes) {
  for (int i = 0; i < 64; ++i) add(1'500'000);
  for (int steps = 0; steps < 10; ++steps) step();  // all are new in the first
  const Output& cheap = add(2'500);
  for (int steps = 0; steps < 300; ++steps) step();
  EXPECT_GE(tokens_[cheap.request.id], 295);
}

TEST_F(ConstraintQueueTest, CostlyOnesComeToTheirEndBesideManyCheapOnes) {
  const Output& costly = add(10 * kUnits);
  for (int i = 0; i < 150; ++i) add(2'500);
  for (int steps = 0; steps < 20; ++steps) step();
  EXPECT_EQ(tokens_[costly.request.id], 1) << "a half of each step";
  for (const Output& output : outputs_) EXPECT_GT(tokens_[output.request.id], 0);
}

TEST_F(ConstraintQueueTest, EqualOnesHaveAsManyTokens) {
  for (int i = 0; i < 16; ++i) add(2 * kUnits);
  for (int steps = 0; steps < 330; ++steps) step();
  for (const Output& output : outputs_) {
    EXPECT_GE(tokens_[output.request.id], 9);
    EXPECT_LE(tokens_[output.request.id], 11);
  }
}

TEST_F(ConstraintQueueTest, WhoWaitsInTheQueueIsWorkedForLast) {
  Output& waits = add(3 * kUnits / 2, /*in_flight=*/false);
  Output& runs = add(3 * kUnits / 2);
  step();
  step();
  EXPECT_EQ(tokens_[runs.request.id], 1);
  EXPECT_TRUE(waits.request.rests);
  queue_.remove(runs.request);
  outputs_.pop_back();
  step();
  step();
  EXPECT_FALSE(waits.request.rests);
}

}  // namespace
}  // namespace stemma
