// What an emulated GPU finds that no order of things shows (simt_races.h); on a real one the
// kernels that are as they should be.
#include "device/races_cuda_test.h"

#include <array>
#include <numeric>

#include "device/cuda_fixture.h"

namespace stemma {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::ElementsAreArray;

constexpr int kThreads = 128;

class Races : public CudaFixture {
 protected:
  void SetUp() override {
    CudaFixture::SetUp();
    if (IsSkipped()) return;
    out_ = allocate<std::int32_t>(kThreads);
  }
  void TearDown() override {
    out_.release();
    CudaFixture::TearDown();
  }

  std::int32_t* out() { return out_.as<std::int32_t>(); }
  std::vector<std::int32_t> outputs() { return download<std::int32_t>(out(), kThreads); }
  // [threads] i ^ apart.
  static std::vector<std::int32_t> partners(int apart) {
    std::vector<std::int32_t> all(kThreads);
    for (int i = 0; i < kThreads; ++i) all[static_cast<std::size_t>(i)] = i ^ apart;
    return all;
  }

 private:
  CudaMemory out_;
};

TEST_F(Races, ABarrierOfTheTeamOrdersAll) {
  ASSERT_TRUE(launch_exchange(stream(), Between::kTeamBarrier, kThreads, 64, out()).ok());
  EXPECT_THAT(outputs(), ElementsAreArray(partners(64)));
}

TEST_F(Races, ABarrierOfAWarpOrdersItsLanes) {
  ASSERT_TRUE(launch_exchange(stream(), Between::kWarpBarrier, kThreads, 1, out()).ok());
  EXPECT_THAT(outputs(), ElementsAreArray(partners(1)));
}

TEST_F(Races, ACopyThatWasWaitedForBeforeTheBarrierIsThereBehindIt) {
  std::vector<std::int32_t> words(kThreads);
  std::iota(words.begin(), words.end(), 0);
  const CudaMemory from = upload(words);
  ASSERT_TRUE(launch_copies(stream(), true, kThreads, 64, from.as<std::int32_t>(), out()).ok());
  EXPECT_THAT(outputs(), ElementsAreArray(partners(64)));
}

TEST_F(Races, WhatManyThreadsAddToAtOnceNeedsNoOrder) {
  const CudaMemory counts = allocate<std::uint32_t>(kThreads / 32);
  ASSERT_TRUE(launch_count(stream(), true, kThreads, counts.as<std::uint32_t>()).ok());
  EXPECT_THAT(download<std::uint32_t>(counts.bytes(), kThreads / 32), Each(kThreads));
}

TEST_F(Races, TeamsWriteToPlacesOfTheirOwn) {
  ASSERT_TRUE(launch_teams(stream(), true, out()).ok());
  EXPECT_THAT(download<std::int32_t>(out(), 2), ElementsAre(1, 1));
}

// What lies before a turn may be that of copies, and of all kernels but the last one.
TEST_F(Races, BeforeItsTurnAKernelReadsWhatNoKernelBeforeItWrites) {
  std::vector<std::int32_t> numbers(kThreads);
  std::iota(numbers.begin(), numbers.end(), 0);
  const CudaMemory from = upload(numbers);
  const CudaMemory first = allocate<std::int32_t>(kThreads);
  const CudaMemory second = allocate<std::int32_t>(kThreads);
  auto* const to = first.as<std::int32_t>();
  ASSERT_TRUE(launch_pass_on(stream(), false, kThreads, from.as<std::int32_t>(), to).ok());
  ASSERT_TRUE(launch_pass_on(stream(), true, kThreads, to, second.as<std::int32_t>()).ok());
  ASSERT_TRUE(launch_pass_on(stream(), false, kThreads, to, out()).ok());
  EXPECT_THAT(outputs(), ElementsAreArray(numbers));
}

#ifdef STEMMA_SIMT

class RacesDeath : public Races {
 protected:
  void SetUp() override {
    if (!simt::can_watch_accesses()) GTEST_SKIP() << "this build cannot watch accesses";
    Races::SetUp();
  }
  simt::Machine::Options machine_options() const override {
    return {.watch = simt::Watch::kAlways};
  }

  // The program ends when what `queue` queued is done. Who reads too early may be the first to
  // come.
  template <typename Queue>
  void expect_race(const Queue& queue,
                   const char* said = "nothing orders the two|before it is read") {
    EXPECT_DEATH(
        {
          queue();
          ignore_error(stream().synchronize(), "it does not come back");
        },
        said);
  }
  CudaStream another_stream() {
    auto made = device().make_stream();
    EXPECT_TRUE(made.ok());
    return std::move(made).value();
  }
};

TEST_F(RacesDeath, WhatTheKernelBeforeWritesIsNotReadBeforeATurn) {
  const CudaMemory from = upload(std::vector<std::int32_t>(kThreads, 1));
  const CudaMemory first = allocate<std::int32_t>(kThreads);
  auto* const to = first.as<std::int32_t>();
  expect_race([&] {
    ignore_error(launch_pass_on(stream(), true, kThreads, from.as<std::int32_t>(), to), "queued");
    ignore_error(launch_pass_on(stream(), false, kThreads, to, out()), "queued");
  });
}

TEST_F(RacesDeath, WithNoBarrierNothingIsOrdered) {
  expect_race([&] {
    ignore_error(launch_exchange(stream(), Between::kNothing, kThreads, 1, out()), "queued");
  });
}

TEST_F(RacesDeath, ABarrierOfAWarpOrdersNoOthers) {
  expect_race([&] {
    ignore_error(launch_exchange(stream(), Between::kWarpBarrier, kThreads, 32, out()), "queued");
  });
}

TEST_F(RacesDeath, AShuffleOrdersNothing) {
  expect_race([&] {
    ignore_error(launch_exchange(stream(), Between::kShuffle, kThreads, 1, out()), "queued");
  });
}

TEST_F(RacesDeath, WhatOthersReadIsNotOverwrittenBeforeABarrier) {
  expect_race([&] { ignore_error(launch_overwriting(stream(), kThreads, 64, out()), "queued"); });
}

TEST_F(RacesDeath, ACopyThatIsWaitedForBehindTheBarrierIsNotThereForOthers) {
  const CudaMemory from = upload(std::vector<std::int32_t>(kThreads));
  expect_race([&] {
    ignore_error(launch_copies(stream(), false, kThreads, 64, from.as<std::int32_t>(), out()),
                 "queued");
  });
}

TEST_F(RacesDeath, ACounterIsReadBehindABarrier) {
  const CudaMemory counts = allocate<std::uint32_t>(kThreads / 32);
  expect_race([&] {
    ignore_error(launch_count(stream(), false, kThreads, counts.as<std::uint32_t>()), "queued");
  });
}

TEST_F(RacesDeath, SharedMemoryIsReadOnceItIsWritten) {
  expect_race([&] { ignore_error(launch_unwritten(stream(), kThreads, out()), "queued"); },
              "before it is read");
}

TEST_F(RacesDeath, TeamsOfAKernelAreNotOrdered) {
  expect_race([&] { ignore_error(launch_teams(stream(), false, out()), "queued"); });
}

TEST_F(RacesDeath, AStreamThatDoesNotWaitIsNotOrdered) {
  CudaStream other = another_stream();
  ASSERT_TRUE(stream().synchronize().ok());
  expect_race([&] {
    ignore_error(stream().fill(out(), 0, 4), "queued");
    ignore_error(other.fill(out(), 1, 4), "queued");
    ignore_error(other.synchronize(), "done, or the program ends here");
  });
}

TEST_F(RacesDeath, MemoryIsAnotherStreamsWhenItWaitedForTheAllocation) {
  CudaStream other = another_stream();
  expect_race([&] {
    const CudaMemory memory = allocate<std::int32_t>(1);
    ignore_error(other.fill(memory.bytes(), 0, 4), "queued");
    ignore_error(other.synchronize(), "done, or the program ends here");
  });
}

TEST_F(RacesDeath, MemoryGoesBackBehindItsLastUse) {
  CudaStream other = another_stream();
  CudaMemory memory = allocate<std::int32_t>(1);
  ASSERT_TRUE(stream().synchronize().ok());
  expect_race([&] {
    ignore_error(other.fill(memory.bytes(), 0, 4), "queued");
    memory.release();
    ignore_error(other.synchronize(), "done, or the program ends here");
  });
}

TEST_F(RacesDeath, BehindTheLossOfTheGpuNothingIsUsedAnyMore) {
  CudaStream owner = another_stream();
  CudaStream other = another_stream();
  auto memory = device().allocate(4, owner);
  auto filled = device().make_event();
  ASSERT_TRUE(memory.ok() && filled.ok() && owner.synchronize().ok());
  ASSERT_TRUE(other.fill(memory->bytes(), 0, 4).ok());
  ASSERT_TRUE(other.record(*filled).ok());
  ASSERT_TRUE(stream().wait_for(*filled).ok());
  machine().fail_after_kernels(0);
  ASSERT_TRUE(launch_teams(stream(), true, out()).ok());
  EXPECT_FALSE(stream().synchronize().ok());
  memory->release();
  EXPECT_FALSE(owner.synchronize().ok());
}

TEST_F(RacesDeath, AnEventOrdersStreams) {
  CudaStream other = another_stream();
  auto event = device().make_event();
  ASSERT_TRUE(event.ok());
  ASSERT_TRUE(stream().fill(out(), 0, 4).ok());
  ASSERT_TRUE(stream().record(event.value()).ok());
  ASSERT_TRUE(other.wait_for(event.value()).ok());
  ASSERT_TRUE(other.fill(out(), 1, 4).ok());
  ASSERT_TRUE(other.synchronize().ok());
  EXPECT_EQ(download<std::uint8_t>(out(), 1)[0], 1);
}

TEST_F(RacesDeath, WhatTheHostHasSeenIsBeforeWhatItQueues) {
  CudaStream other = another_stream();
  ASSERT_TRUE(stream().fill(out(), 0, 4).ok());
  ASSERT_TRUE(stream().synchronize().ok());
  ASSERT_TRUE(other.fill(out(), 1, 4).ok());
  ASSERT_TRUE(other.synchronize().ok());
  EXPECT_EQ(download<std::uint8_t>(out(), 1)[0], 1);
}

#endif  // STEMMA_SIMT

}  // namespace
}  // namespace stemma
