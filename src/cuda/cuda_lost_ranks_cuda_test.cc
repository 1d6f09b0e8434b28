// Ranks that lose each other in the middle of steps that were recorded: the step is an error, no
// graph keeps a gather of those that are given up, and the ranks meet again.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "cuda/cuda_runner_fixture.h"
#include "device/cuda_ranks.h"
#include "device/thread_ranks_fixture.h"
#include "model/one_request.h"

namespace stemma {
namespace {

constexpr std::int64_t kPageSize = 16;

// One rank, whose gathers are copies that can be recorded, and which others leave when it is told.
class LeftRanks final : public CudaRanks {
 public:
  LeftRanks(CudaStream& stream, RankGroup& group) : CudaRanks(group), stream_(stream) {
    last = this;
  }
  ~LeftRanks() override { last = nullptr; }

  static std::unique_ptr<CudaRanks> make(CudaStream& stream, RankGroup& group) {
    return std::make_unique<LeftRanks>(stream, group);
  }
  static inline LeftRanks* last = nullptr;

  bool records() const override { return true; }
  Status all_gather(const void* own, void* all, std::size_t part_bytes) override {
    ++gathers;
    if (given_up) return Error{ErrorCode::kInternal, "there are no others"};
    return stream_.copy(all, own, part_bytes);
  }
  Status conclude(const Status& own) override { return own; }
  void start_over() override { given_up = false; }
  Status wait(const CudaEvent& event) override {
    STEMMA_RETURN_IF_ERROR(event.wait());
    if (!leave) return {};
    return Error{ErrorCode::kInternal, "a GPU did not do its part"};
  }
  void give_up() override {
    given_up = true;
    ++times_given_up;
  }

  static inline int times_given_up = 0;
  std::int64_t gathers = 0;  // that were queued or recorded
  bool leave = false;
  bool given_up = false;

 protected:
  Status meet_alike() override { return {}; }

 private:
  CudaStream& stream_;
};

// A runner and its pool, and a request that goes on step by step.
struct Decoding {
  OneRequest request{kPageSize};
  std::unique_ptr<CudaPool> pool;
  std::unique_ptr<CudaRunner> runner;

  // What the next step of one row says: nothing if it was computed.
  std::string next() {
    const auto logits = runner->forward(request.next({5}), {*pool});
    return logits.ok() ? "" : logits.error().detail;
  }
};

class CudaLostRanks : public CudaRunnerFixture {
 protected:
  // Of `group`, whose ranks are LeftRanks. REQUIRES: the model was written.
  Decoding decoding(RankGroup& group) {
    Decoding made;
    auto runner = try_load({.rows_max = 16, .outputs_max = 16, .requests_max = 4, .ranks = &group},
                           {.deterministic = true, .ranks_maker = LeftRanks::make});
    STEMMA_CHECK(runner.ok(), "the model loads");
    made.runner = std::move(runner).value();
    KvShape shape = made.runner->pool_shape();
    shape.page_size = kPageSize;
    shape.pages = 2;
    shape.dtype = DType::kBF16;
    auto pool = CudaPool::create(device(), shape, KvLayout::kLayerFirst);
    STEMMA_CHECK(pool.ok(), "the pool fits");
    made.pool = std::move(pool).value();
    return made;
  }
};

TEST_F(CudaLostRanks, NoGraphKeepsAGatherOfRanksThatAreGivenUp) {
  write_model("llama2");
  ThreadRanks(1).run([&](RankGroup& group) {
    Decoding steps = decoding(group);
    LeftRanks& ranks = *LeftRanks::last;
    for (int step = 0; step < 3; ++step) EXPECT_EQ(steps.next(), "");
    const std::int64_t recorded = ranks.gathers;
    EXPECT_EQ(steps.next(), "");
    EXPECT_EQ(ranks.gathers, recorded) << "a recorded step gathers by itself";

    ranks.leave = true;
    EXPECT_EQ(steps.next(), "a GPU did not do its part");
    EXPECT_TRUE(ranks.given_up);
    ranks.leave = false;
    EXPECT_EQ(steps.next(), "there are no others");
    EXPECT_EQ(steps.next(), "") << "they have met again";
  });
}

TEST_F(CudaLostRanks, ARunnerThatEndsWithAStepOnItsWayGivesUpThoseThatAreLost) {
  write_model("llama2");
  ThreadRanks(1).run([&](RankGroup& group) {
    Decoding steps = decoding(group);
    const KvBatch batch = steps.request.next({5});
    ASSERT_TRUE(steps.runner->queue(batch, {*steps.pool}, {}).ok());
    LeftRanks::last->leave = true;
    const int before = LeftRanks::times_given_up;
    steps.runner.reset();
    EXPECT_EQ(LeftRanks::times_given_up, before + 1);
  });
}

}  // namespace
}  // namespace stemma
