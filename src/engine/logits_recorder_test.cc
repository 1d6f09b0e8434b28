// What is kept of the logits that a runner gives.
#include "engine/logits_recorder.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "engine/hash_model.h"
#include "model/one_request.h"

namespace stemma {
namespace {

// One logit a row: how many batches there were.
class CountingRunner final : public Runner {
 public:
  Result<LogitsView> forward(const KvBatch& batch, KvPools) override {
    ++batches_;
    logits_.assign(static_cast<std::size_t>(batch.outputs()), static_cast<float>(batches_));
    return LogitsView{.logits = logits_.data(), .outputs = batch.outputs(), .vocab_tokens = 1};
  }

 private:
  int batches_ = 0;
  std::vector<float> logits_;
};

TEST(LogitsRecorder, OfAStepThatIsComputedTwiceTheSecondIsKept) {
  KvCacheOptions options;
  options.page_size = 4;
  options.pages = 4;
  const auto pool = HashModel::make_pool(options);
  CountingRunner inner;
  LogitsRecorder recorder(inner);
  OneRequest request(/*page_size=*/4);
  const auto compute = [&](const KvBatch& batch) {
    ASSERT_TRUE(recorder.forward(batch, {*pool}).ok());
  };
  compute(request.next({1, 2, 3}));
  compute(request.next({4}));
  compute(request.batch());
  compute(request.next({5}));
  EXPECT_EQ(recorder.rows().at(RequestId(0)), (std::vector<float>{1, 3, 4}));
}

}  // namespace
}  // namespace stemma
