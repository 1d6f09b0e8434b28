// CudaRanks: every rank's GPU gets the parts of all in order; a rank that cannot go on is
// everybody's error, nobody waits for it, and the next step is computed.
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/cuda_fixture.h"
#include "device/cuda_ranks.h"
#include "device/thread_ranks_fixture.h"

namespace stemma {
namespace {

using Values = std::vector<std::uint32_t>;

// One rank's device, stream and memory for gathers of `values` values.
class RankDevice {
 public:
  RankDevice(int ordinal, std::size_t values, int ranks) : values_(values), ranks_(ranks) {
    device_ = std::move(CudaDevice::open(ordinal)).value();
    stream_ = std::move(device_->make_stream()).value();
    own_ = std::move(device_->allocate(part_bytes(), stream_)).value();
    all_ = std::move(device_->allocate(all_bytes(), stream_)).value();
    pinned_ = std::move(device_->allocate_pinned(all_bytes())).value();
  }

  CudaDevice& device() { return *device_; }
  CudaStream& stream() { return stream_; }
  std::size_t part_bytes() const { return values_ * sizeof(std::uint32_t); }
  const void* own() const { return own_.bytes(); }
  void* all() const { return all_.bytes(); }

  // What this rank gives from now on: first, first + 1 …
  void give(std::uint32_t first) {
    for (std::size_t i = 0; i < values_; ++i) {
      pinned_.as<std::uint32_t>()[i] = first + static_cast<std::uint32_t>(i);
    }
    EXPECT_TRUE(stream_.copy_in(own_.bytes(), pinned_.bytes(), part_bytes()).ok());
    EXPECT_TRUE(stream_.synchronize().ok());
  }
  Values got() {
    EXPECT_TRUE(stream_.copy_out(pinned_.bytes(), all_.bytes(), all_bytes()).ok());
    EXPECT_TRUE(stream_.synchronize().ok());
    const auto* const begin = pinned_.as<std::uint32_t>();
    return {begin, begin + values_ * static_cast<std::size_t>(ranks_)};
  }

 private:
  std::size_t all_bytes() const { return part_bytes() * static_cast<std::size_t>(ranks_); }

  std::size_t values_;
  int ranks_;
  std::unique_ptr<CudaDevice> device_;
  CudaStream stream_;
  CudaMemory own_;
  CudaMemory all_;
  PinnedMemory pinned_;
};

// What `ranks` ranks that give 1000 × step + 100 × rank and so on get.
Values expected(int ranks, std::size_t values, std::uint32_t step) {
  Values all;
  for (int rank = 0; rank < ranks; ++rank) {
    for (std::size_t i = 0; i < values; ++i) {
      all.push_back(1000 * step + 100 * static_cast<std::uint32_t>(rank) +
                    static_cast<std::uint32_t>(i));
    }
  }
  return all;
}

constexpr std::size_t kValues = 77;

class CudaRanksTest : public CudaFixture {
 protected:
  using Work = std::function<void(RankDevice& own, CudaRanks& ranks)>;

  // Ranks that share the GPU of the tests.
  static void run_staged(int ranks, const Work& work) {
    ThreadRanks(ranks).run([&](RankGroup& group) {
      RankDevice own(0, kValues, ranks);
      auto staged = make_staged_ranks(own.device(), own.stream(), group, own.part_bytes());
      ASSERT_TRUE(staged.ok());
      ASSERT_TRUE((*staged)->meet().ok());
      work(own, **staged);
    });
  }
};

void expect_gathered(RankDevice& own, CudaRanks& ranks, std::uint32_t step) {
  own.give(1000 * step + 100 * static_cast<std::uint32_t>(ranks.rank()));
  const Status gathered = ranks.all_gather(own.own(), own.all(), own.part_bytes());
  EXPECT_TRUE(gathered.ok()) << to_string(gathered.error());
  EXPECT_TRUE(ranks.conclude(gathered).ok());
  EXPECT_EQ(own.got(), expected(ranks.ranks(), kValues, step));
}

TEST_F(CudaRanksTest, EveryGpuHasThePartsOfAllInOrder) {
  for (const int count : {2, 3}) {
    run_staged(count, [](RankDevice& own, CudaRanks& ranks) {
      for (std::uint32_t step = 1; step <= 3; ++step) expect_gathered(own, ranks, step);
    });
  }
}

TEST_F(CudaRanksTest, ARankThatFailsBeforeAGatherIsTheErrorOfAll) {
  run_staged(2, [](RankDevice& own, CudaRanks& ranks) {
    const Error broken = {ErrorCode::kInternal, "broken"};
    own.give(0);
    Status step;
    if (ranks.rank() == 0) {
      step = ranks.all_gather(own.own(), own.all(), own.part_bytes());
      EXPECT_EQ(step.error().detail, "rank 1: broken");
    } else {
      step = broken;
    }
    const Status concluded = ranks.conclude(step);
    ASSERT_FALSE(concluded.ok());
    EXPECT_EQ(concluded.error().detail, "rank 1: broken");
    ranks.start_over();
    expect_gathered(own, ranks, 5);
  });
}

TEST_F(CudaRanksTest, ARankThatFailsAfterTheLastGatherIsTheErrorOfAll) {
  run_staged(2, [](RankDevice& own, CudaRanks& ranks) {
    own.give(0);
    ASSERT_TRUE(ranks.all_gather(own.own(), own.all(), own.part_bytes()).ok());
    const Error broken = {ErrorCode::kInternal, "broken"};
    const Status concluded = ranks.conclude(ranks.rank() == 0 ? Status(broken) : Status());
    ASSERT_FALSE(concluded.ok());
    EXPECT_EQ(concluded.error().detail, "broken");
    ranks.start_over();
    expect_gathered(own, ranks, 6);
  });
}

#ifndef STEMMA_SIMT

// A rank that nobody else computes with: what a machine of one GPU can look at.
class OnlyRank final : public RankGroup {
 public:
  int rank() const override { return 0; }
  int ranks() const override { return 1; }
  Status all_gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    std::memcpy(all.data(), own.data(), own.size());
    return {};
  }
  Status gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    return all_gather(own, all);
  }
  Status broadcast(std::span<std::byte>) override { return {}; }
};

void expect_replayed(RankDevice& own, CudaRanks& ranks) {
  ASSERT_TRUE(own.stream().begin_recording().ok());
  const Status gathered = ranks.all_gather(own.own(), own.all(), own.part_bytes());
  const auto graph = own.stream().end_recording();
  ASSERT_TRUE(gathered.ok()) << to_string(gathered.error());
  ASSERT_TRUE(graph.ok()) << to_string(graph.error());
  for (std::uint32_t step = 7; step <= 9; ++step) {
    own.give(1000 * step + 100 * static_cast<std::uint32_t>(ranks.rank()));
    ASSERT_TRUE(own.stream().replay(*graph).ok());
    EXPECT_TRUE(ranks.conclude({}).ok());
    EXPECT_EQ(own.got(), expected(ranks.ranks(), kValues, step));
  }
}

// Of another implementation than staged ranks, as a rank has it that finds NCCL.
class OtherRanks final : public CudaRanks {
 public:
  explicit OtherRanks(RankGroup& group) : CudaRanks(group) {}
  bool records() const override { return true; }
  Status all_gather(const void*, void*, std::size_t) override { return {}; }
  Status conclude(const Status& own) override { return own; }
  void start_over() override {}
  Status wait(const CudaEvent& event) override { return event.wait(); }
  void give_up() override {}

 protected:
  Status meet_alike() override {
    ADD_FAILURE() << "nobody is met who does not answer";
    return {};
  }
};

TEST_F(CudaRanksTest, RanksOfWhichSomeHaveNcclRefuseToMeet) {
  for (const int other : {0, 1}) {
    ThreadRanks(2).run([&](RankGroup& group) {
      RankDevice own(0, kValues, group.ranks());
      auto ranks = make_staged_ranks(own.device(), own.stream(), group, own.part_bytes());
      ASSERT_TRUE(ranks.ok());
      if (group.rank() == other) *ranks = std::make_unique<OtherRanks>(group);
      const Status met = (*ranks)->meet();
      ASSERT_FALSE(met.ok());
      EXPECT_EQ(met.error().code, ErrorCode::kUnsupported);
      EXPECT_NE(met.error().detail.find("NCCL is found"), std::string::npos);
    });
  }
}

class NcclRanksTest : public CudaFixture {
 protected:
  // Ranks with a GPU each; skipped where there are fewer.
  void run_nccl(int count, const std::function<void(RankDevice& own, CudaRanks& ranks)>& work) {
    if (make_nccl_ranks(stream(), only_) == nullptr) GTEST_SKIP() << "not run: no NCCL here";
    if (CudaDevice::count() < count) {
      GTEST_SKIP() << "not run: " << count << " GPUs are needed, there are " << CudaDevice::count();
    }
    const auto one = [&](RankGroup& group) {
      RankDevice own(group.rank(), kValues, group.ranks());
      const auto ranks = make_nccl_ranks(own.stream(), group);
      const Status met = ranks->meet();
      ASSERT_TRUE(met.ok()) << to_string(met.error());
      work(own, *ranks);
    };
    if (count == 1) return one(only_);
    ThreadRanks(count).run(one);
  }

 private:
  OnlyRank only_;
};

TEST_F(NcclRanksTest, OneRankGathersItsOwnRecordedToo) {
  run_nccl(1, [](RankDevice& own, CudaRanks& ranks) {
    EXPECT_TRUE(ranks.records());
    expect_gathered(own, ranks, 1);
    expect_replayed(own, ranks);
  });
}

TEST_F(NcclRanksTest, TwoGpusHaveThePartsOfBothRecordedToo) {
  run_nccl(2, [](RankDevice& own, CudaRanks& ranks) {
    for (std::uint32_t step = 1; step <= 3; ++step) expect_gathered(own, ranks, step);
    expect_replayed(own, ranks);
  });
}

// The other GPU has queued a gather that waits for this one's.
TEST_F(NcclRanksTest, ARankThatFailsBeforeAGatherIsTheErrorOfAll) {
  run_nccl(2, [](RankDevice& own, CudaRanks& ranks) {
    own.give(0);
    Status step = Error{ErrorCode::kInternal, "broken"};
    if (ranks.rank() == 0) step = ranks.all_gather(own.own(), own.all(), own.part_bytes());
    const Status concluded = ranks.conclude(step);
    ASSERT_FALSE(concluded.ok());
    EXPECT_EQ(concluded.error().detail, "rank 1: broken");
    ranks.start_over();
    expect_gathered(own, ranks, 5);
  });
}

TEST_F(NcclRanksTest, AStepIsWaitedForUntilItIsDone) {
  run_nccl(2, [](RankDevice& own, CudaRanks& ranks) {
    own.give(100 * static_cast<std::uint32_t>(ranks.rank()));
    ASSERT_TRUE(ranks.all_gather(own.own(), own.all(), own.part_bytes()).ok());
    auto done = own.device().make_event();
    ASSERT_TRUE(done.ok());
    ASSERT_TRUE(own.stream().record(*done).ok());
    ASSERT_TRUE(ranks.conclude({}).ok());
    EXPECT_TRUE(ranks.wait(*done).ok());
    EXPECT_EQ(own.got(), expected(2, kValues, 0));
  });
}

#endif

}  // namespace
}  // namespace stemma
