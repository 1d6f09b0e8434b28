// Streams, events, memory and graphs: what holds of a GPU, and what the emulated one adds to it.
#include <numeric>
#include <thread>

#include "device/buffer.h"
#include "device/cuda_device.h"
#include "device/cuda_fixture.h"
#include "device/dialect_cuda_test.h"

namespace stemma {
namespace {

using testing::Each;
using testing::ElementsAreArray;

class CudaDeviceTest : public CudaFixture {
 protected:
  CudaStream another_stream() {
    auto made = device().make_stream();
    EXPECT_TRUE(made.ok());
    return std::move(made).value();
  }
  CudaEvent event() {
    auto made = device().make_event();
    EXPECT_TRUE(made.ok());
    return std::move(made).value();
  }
};

std::vector<std::int32_t> counted(std::size_t count) {
  std::vector<std::int32_t> values(count);
  std::iota(values.begin(), values.end(), 1);
  return values;
}

TEST_F(CudaDeviceTest, WhatGoesInComesOut) {
  const std::vector<std::int32_t> values = counted(1000);
  const CudaMemory memory = upload(values);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.bytes()) % 256, 0u);
  EXPECT_THAT(download<std::int32_t>(memory.bytes(), 1000), ElementsAreArray(values));
}

TEST_F(CudaDeviceTest, RowsThatLieApartAreCopiedAsOne) {
  const std::vector<std::int32_t> values = counted(12);  // [3, 4]
  PinnedMemory pinned = pinned_bytes(48);
  std::memcpy(pinned.bytes(), values.data(), 48);
  const CudaMemory memory = allocate<std::int32_t>(3 * 6);
  // Two of each row's four, to rows of six.
  ASSERT_TRUE(stream().copy_rows_in(memory.bytes(), pinned.bytes(), {8, 3, 24, 16}).ok());
  EXPECT_THAT(download<std::int32_t>(memory.bytes(), 18),
              ElementsAreArray({1, 2, -1, -1, -1, -1,  //
                                5, 6, -1, -1, -1, -1,  //
                                9, 10, -1, -1, -1, -1}));
  PinnedMemory back = pinned_bytes(24);
  ASSERT_TRUE(stream().copy_rows_out(back.bytes(), memory.bytes(), {8, 3, 8, 24}).ok());
  ASSERT_TRUE(stream().synchronize().ok());
  EXPECT_THAT(std::span(back.as<std::int32_t>(), 6), ElementsAreArray({1, 2, 5, 6, 9, 10}));
}

TEST_F(CudaDeviceTest, RowsThatOverlapAreRefused) {
  const CudaMemory memory = allocate<std::int32_t>(10);
  PinnedMemory pinned = pinned_bytes(40);
  EXPECT_FALSE(stream().copy_rows_in(memory.bytes(), pinned.bytes(), {8, 3, 8, 4}).ok());
  EXPECT_FALSE(stream().copy_rows_out(pinned.bytes(), memory.bytes(), {8, 3, 4, 8}).ok());
  EXPECT_TRUE(stream().copy_rows_in(memory.bytes(), nullptr, {}).ok()) << "there are none";
}

TEST_F(CudaDeviceTest, HostMemoryIsPinnedOnceAtATime) {
  auto buffer = Buffer::allocate(8192);
  ASSERT_TRUE(buffer.ok());
  const CudaMemory memory = allocate<std::int32_t>(1);
  ASSERT_TRUE(device().pin(buffer->bytes(), 8192).ok());
  EXPECT_TRUE(stream().copy_in(memory.bytes(), buffer->bytes() + 4096, 4).ok());
  EXPECT_FALSE(device().pin(buffer->bytes() + 4096, 4096).ok());
  ASSERT_TRUE(stream().synchronize().ok());
  device().unpin(buffer->bytes());
  EXPECT_FALSE(stream().copy_in(memory.bytes(), buffer->bytes(), 4).ok());
  ASSERT_TRUE(device().pin(buffer->bytes() + 4096, 4096).ok());
  device().unpin(buffer->bytes() + 4096);
}

TEST_F(CudaDeviceTest, ACopyOfMemoryThatIsNotPinnedIsRefused) {
  const CudaMemory memory = allocate<std::int32_t>(10);
  std::vector<std::int32_t> pageable(10);
  const Status in = stream().copy_in(memory.bytes(), pageable.data(), 40);
  ASSERT_FALSE(in.ok());
  EXPECT_EQ(in.error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(stream().copy_out(pageable.data(), memory.bytes(), 40).ok());
}

TEST_F(CudaDeviceTest, AStreamThatWaitsForAnEventSeesWhatCameBeforeIt) {
  CudaStream other = another_stream();
  CudaEvent copied = event();
  const std::vector<std::int32_t> values = counted(256);
  const CudaMemory memory = upload(values);
  const CudaMemory copy = allocate<std::int32_t>(256);
  ASSERT_TRUE(stream().fill(memory.bytes(), 7, 1024).ok());
  ASSERT_TRUE(stream().record(copied).ok());
  ASSERT_TRUE(other.wait_for(copied).ok());
  ASSERT_TRUE(other.copy(copy.bytes(), memory.bytes(), 1024).ok());
  ASSERT_TRUE(other.synchronize().ok());
  EXPECT_THAT(download<std::int32_t>(copy.bytes(), 256), Each(0x07070707));
}

TEST_F(CudaDeviceTest, AnEnginesStreamThatIsNullptrIsTheDefaultOne) {
  BorrowedStream borrowed(nullptr);
  CudaStream& engine = borrowed.get();
  CudaEvent filled = event();
  const CudaMemory memory = allocate<std::int32_t>(64);
  ASSERT_TRUE(stream().synchronize().ok());  // the memory is there for others
  ASSERT_TRUE(engine.fill(memory.bytes(), 3, 256).ok());
  ASSERT_TRUE(engine.record(filled).ok());
  ASSERT_TRUE(stream().wait_for(filled).ok());
  EXPECT_THAT(download<std::int32_t>(memory.bytes(), 64), testing::Each(0x03030303));
}

TEST_F(CudaDeviceTest, AnEventIsDoneWhenWhatCameBeforeItIs) {
  CudaEvent filled = event();
  EXPECT_TRUE(filled.done().value()) << "it was never recorded";
  const CudaMemory memory = allocate<std::int32_t>(256);
  PinnedMemory pinned = pinned_bytes(1024);
  ASSERT_TRUE(stream().fill(memory.bytes(), 3, 1024).ok());
  ASSERT_TRUE(stream().copy_out(pinned.bytes(), memory.bytes(), 1024).ok());
  ASSERT_TRUE(stream().record(filled).ok());
  ASSERT_TRUE(filled.wait().ok());
  EXPECT_TRUE(filled.done().value());
  EXPECT_THAT(std::span(pinned.as<std::int32_t>(), 256), Each(0x03030303));
}

TEST_F(CudaDeviceTest, AskingAnEventAgainAndAgainComesToAnEnd) {
  CudaEvent filled = event();
  const CudaMemory memory = allocate<std::int32_t>(256);
  ASSERT_TRUE(stream().fill(memory.bytes(), 3, 1024).ok());
  ASSERT_TRUE(stream().record(filled).ok());
  while (!filled.done().value()) {
  }
  SUCCEED();
}

TEST_F(CudaDeviceTest, AGraphDoesWhatWasRecordedEachTimeItIsReplayed) {
  const CudaMemory out = allocate<std::int32_t>(2 * 64);
  PinnedMemory counter = pinned_bytes(4);
  ASSERT_TRUE(stream().begin_recording().ok());
  ASSERT_TRUE(launch_places(stream(), 2, 64, out.as<std::int32_t>()).ok());
  ASSERT_TRUE(stream().copy_in(out.bytes(), counter.bytes(), 4).ok());
  auto graph = stream().end_recording();
  ASSERT_TRUE(graph.ok()) << graph.error().detail;
  EXPECT_EQ(download<std::int32_t>(out.bytes(), 1)[0], -1) << "recording does nothing";
  for (int round = 1; round <= 3; ++round) {
    *counter.as<std::int32_t>() = 40 + round;  // read when the copy is done
    ASSERT_TRUE(stream().fill(out.bytes(), 0xFF, 512).ok());
    ASSERT_TRUE(stream().replay(graph.value()).ok());
    const auto values = download<std::int32_t>(out.bytes(), 128);
    EXPECT_EQ(values[0], 40 + round);
    EXPECT_EQ(values[65], 1001);
  }
}

TEST_F(CudaDeviceTest, MemoryThatIsTooMuchIsRefusedWithItsSize) {
  const auto memory = device().allocate(std::size_t{1} << 45, stream());
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.error().code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(memory.error().detail, testing::HasSubstr("35184372088832"));
}

TEST_F(CudaDeviceTest, NoBytesAreNoMemory) {
  const auto memory = device().allocate(0, stream());
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(memory.value().bytes(), nullptr);
  EXPECT_TRUE(stream().copy(nullptr, nullptr, 0).ok());
}

TEST_F(CudaDeviceTest, ADeviceThatIsNotThereIsNotFound) {
  const auto device = CudaDevice::open(1000);
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.error().code, ErrorCode::kNotFound);
}

#ifndef STEMMA_SIMT
// Without a driver, or with one that is too old for this build.
TEST(CudaDeviceTestWithoutGpu, WhereTheRuntimeFindsNoneItIsSaidWhy) {
  if (CudaDevice::count() > 0) GTEST_SKIP() << "there is a GPU here";
  const auto opened = CudaDevice::open(0);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(opened.error().detail, testing::StartsWith("no GPU 0: cudaGetDeviceCount: "));
}
#endif

#ifdef STEMMA_SIMT
class Unwatched : public CudaDeviceTest {
 protected:
  simt::Machine::Options machine_options() const override { return {.watch = simt::Watch::kNever}; }
};

TEST_F(Unwatched, AMissingWaitShowsOnTheEmulatedGpu) {
  // A stream that should have waited reads what was there before, in some drawn order.
  CudaStream other = another_stream();
  const CudaMemory memory = allocate<std::int32_t>(1);
  const CudaMemory copy = allocate<std::int32_t>(1);
  ASSERT_TRUE(stream().synchronize().ok());
  bool early = false;
  for (int round = 0; round < 64 && !early; ++round) {
    ASSERT_TRUE(stream().fill(memory.bytes(), 0xFF, 4).ok());
    ASSERT_TRUE(stream().synchronize().ok());
    ASSERT_TRUE(stream().fill(memory.bytes(), 0, 4).ok());
    ASSERT_TRUE(other.copy(copy.bytes(), memory.bytes(), 4).ok());
    ASSERT_TRUE(other.synchronize().ok());
    early = download<std::int32_t>(copy.bytes(), 1)[0] == -1;
  }
  EXPECT_TRUE(early);
}

TEST_F(CudaDeviceTest, AHostBufferThatIsUsedAgainTooSoonShows) {
  const CudaMemory memory = allocate<std::int32_t>(1);
  PinnedMemory pinned = pinned_bytes(4);
  *pinned.as<std::int32_t>() = 1;
  ASSERT_TRUE(stream().synchronize().ok());
  ASSERT_TRUE(stream().copy_in(memory.bytes(), pinned.bytes(), 4).ok());
  *pinned.as<std::int32_t>() = 2;  // the copy has not been done yet
  EXPECT_EQ(download<std::int32_t>(memory.bytes(), 1)[0], 2);
}

class VastMemory : public CudaDeviceTest {
 protected:
  simt::Machine::Options machine_options() const override {
    return {.memory_bytes = std::size_t{64} << 30};
  }
};

// More than this machine has.
TEST_F(VastMemory, OfManyGiBIsThereWhereItIsTouched) {
  constexpr std::size_t kBytes = (std::size_t{40} << 30) + 12;
  auto memory = device().allocate(kBytes, stream());
  ASSERT_TRUE(memory.ok());
  std::byte* const last = memory.value().bytes() + kBytes - 4;
  std::byte* const middle = memory.value().bytes() + kBytes / 2 / 4 * 4;
  EXPECT_EQ(download<std::int32_t>(last, 1)[0], -1);
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(stream().fill(memory.value().bytes(), 0, kBytes).ok());
    for (std::byte* const at : {memory.value().bytes(), middle, last}) {
      EXPECT_EQ(download<std::int32_t>(at, 1)[0], 0);
      ASSERT_TRUE(stream().fill(at, 7, 4).ok());
      EXPECT_EQ(download<std::int32_t>(at, 1)[0], 0x07070707);
    }
  }
}

// Of a machine with several the thread's would be the first.
TEST_F(CudaDeviceTest, AThreadThatHasNotSaidOnWhichGpuEndsTheProgram) {
  const CudaMemory memory = allocate<std::int32_t>(1);
  const auto filled_elsewhere = [&](bool says) {
    Status filled;
    std::thread([&] {
      if (says) filled = device().use_in_thread();
      if (filled.ok()) filled = stream().fill(memory.bytes(), 7, 4);
    }).join();
    return filled;
  };
  EXPECT_DEATH(static_cast<void>(filled_elsewhere(false)), "has not said on which GPU");
  EXPECT_TRUE(filled_elsewhere(true).ok());
  EXPECT_EQ(download<std::int32_t>(memory.bytes(), 1)[0], 0x07070707);
  CudaEvent event = device().make_event().value();
  ASSERT_TRUE(stream().record(event).ok());
  const auto awaited_elsewhere = [&] {
    std::thread([&] { ignore_error(stream().wait_for(event), "it ends the program"); }).join();
  };
  EXPECT_DEATH(awaited_elsewhere(), "has not said on which GPU");
}

TEST_F(CudaDeviceTest, AKernelThatIsLoadedWhileAnotherThreadRecordsEndsTheProgram) {
  CudaStream other = another_stream();
  const CudaMemory out = allocate<std::int32_t>(64);
  const auto launched_elsewhere = [&] {
    Status launched;
    std::thread([&] {
      launched = device().use_in_thread();
      if (launched.ok()) launched = launch_places(other, 1, 64, out.as<std::int32_t>());
    }).join();
    return launched;
  };
  ASSERT_TRUE(stream().begin_recording().ok());
  EXPECT_DEATH(static_cast<void>(launched_elsewhere()), "a kernel is loaded");
  ASSERT_TRUE(stream().end_recording().ok());
  ASSERT_TRUE(launch_places(stream(), 1, 64, out.as<std::int32_t>()).ok());
  ASSERT_TRUE(stream().synchronize().ok());
  ASSERT_TRUE(stream().begin_recording().ok());
  EXPECT_TRUE(launched_elsewhere().ok()) << "it is there";
  ASSERT_TRUE(stream().end_recording().ok());
  ASSERT_TRUE(other.synchronize().ok());
}

// What launches of kernels that may begin early want to know of a GPU was asked when it was opened:
// the question loads a kernel, too.
TEST_F(CudaDeviceTest, AKernelMayBeginEarlyForTheFirstTimeWhileAnotherThreadRecords) {
  CudaStream other = another_stream();
  const CudaMemory in = upload(std::vector<std::uint32_t>(32, 1));
  const CudaMemory out = allocate<std::uint32_t>(32);
  ASSERT_TRUE(load_steps().ok());
  ASSERT_TRUE(stream().synchronize().ok());
  ASSERT_TRUE(stream().begin_recording().ok());
  Status launched;
  std::thread([&] {
    launched = device().use_in_thread();
    if (!launched.ok()) return;
    launched = launch_steps(other, 0, 1, in.as<std::uint32_t>(), out.as<std::uint32_t>());
  }).join();
  EXPECT_TRUE(launched.ok());
  EXPECT_TRUE(stream().end_recording().ok());
  ASSERT_TRUE(other.synchronize().ok());
  EXPECT_EQ(download<std::uint32_t>(out.bytes(), 1)[0], 2u);
}

TEST_F(CudaDeviceTest, MemoryWhileAStreamRecordsEndsTheProgram) {
  ASSERT_TRUE(stream().begin_recording().ok());
  EXPECT_DEATH(static_cast<void>(device().allocate(16, stream())), "while a stream records");
  EXPECT_DEATH(static_cast<void>(device().allocate_pinned(16)), "by a thread that records");
  ASSERT_TRUE(stream().end_recording().ok());
}
#endif

}  // namespace
}  // namespace stemma
