// Loans that streams wait for: a step that went on before sums were compared is void if one was
// wrong, wherever else its pages are found by then. Fault: row 3 (docs/FAULTS.md).
#include <gmock/gmock-more-matchers.h>

#include <chrono>
#include <utility>
#include <vector>

#include "cache/loans.h"
#include "device/cuda_fixture.h"
#include "tier/transfer_ticket.h"

namespace stemma {
namespace {

// Streams are let on at once; what became of a layer is known later.
class QueuedLanes final : public TransferLanes {
 public:
  void post(Transfer& job) override { posted = &job; }
  Transfer* try_take_done_or_null() override { return std::exchange(posted, nullptr); }
  void wait_done(std::chrono::microseconds) override {}
  bool wait_layer(Transfer&, std::int64_t layer) override {
    waited_for.push_back(layer);
    return right;
  }
  bool wait_layer_on(Transfer&, CudaStream&, std::int64_t) override { return true; }
  void stop() override {}

  Transfer* posted = nullptr;
  bool right = true;
  std::vector<std::int64_t> waited_for;
};

class LoansOnStreams : public CudaFixture {
 protected:
  LoansOnStreams() {
    auto ticket = transfers_.try_open(TransferKind::kPromote);
    Transfer& job = ticket->job();
    transfers_.submit(std::move(*ticket));
    loans_.add(job, 0);
  }

  QueuedLanes lanes_;
  TransferEngine transfers_{{}, lanes_};
  Loans loans_{transfers_};
};

TEST_F(LoansOnStreams, AreRightIfEveryLayerThatWasAskedForIs) {
  for (const std::int64_t layer : {0, 1, 2}) EXPECT_TRUE(loans_.wait_on(stream(), layer));
  EXPECT_TRUE(loans_.settle());
  EXPECT_THAT(lanes_.waited_for, testing::ElementsAre(2));
}

TEST_F(LoansOnStreams, AreWrongIfOneIsThoughTheStreamWentOn) {
  lanes_.right = false;
  EXPECT_TRUE(loans_.wait_on(stream(), 0));
  EXPECT_FALSE(loans_.settle());
}

TEST_F(LoansOnStreams, AreWrongForWhoWaitedByItselfToo) {
  lanes_.right = false;
  EXPECT_FALSE(loans_.wait(0));
  EXPECT_FALSE(loans_.settle());
}

TEST_F(LoansOnStreams, OfWhichNothingWasReadAreNotWaitedFor) {
  lanes_.right = false;
  EXPECT_TRUE(loans_.settle());
  EXPECT_THAT(lanes_.waited_for, testing::IsEmpty());
}

TEST_F(LoansOnStreams, SayNothingOfTheNextStep) {
  lanes_.right = false;
  EXPECT_TRUE(loans_.wait_on(stream(), 0));
  loans_.clear();
  EXPECT_TRUE(loans_.empty());
  EXPECT_TRUE(loans_.settle());
}

}  // namespace
}  // namespace stemma
