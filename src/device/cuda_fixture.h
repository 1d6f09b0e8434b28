// CudaFixture: a GPU for tests: the emulated one in ROOM_simt_test, a real one in ROOM_cuda_test,
// which skips where there is none.
//
// Thread:     a test's.
// Memory:     the emulated GPU's.
// Cost:       opening a real device once a test.
// Not here:   what the emulation checks (simt.h).
#pragma once

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/long_tests_fixture.h"
#include "device/cuda_device.h"
#include "device/emulated_gpu.h"

namespace stemma {

class CudaFixture : public testing::Test {
 protected:
  void SetUp() override {
    simt::Machine::Options options = machine_options();
    if (long_tests() && options.watch == simt::Watch::kSome) options.watch = simt::Watch::kAlways;
    emulated_ = EmulatedGpu::start(options);
    if (emulated_ == nullptr && CudaDevice::count() == 0) GTEST_SKIP() << "there is no GPU here";
    auto device = CudaDevice::open(0);
    ASSERT_TRUE(device.ok()) << device.error().detail;
    device_ = std::move(device).value();
    auto stream = device_->make_stream();
    ASSERT_TRUE(stream.ok()) << stream.error().detail;
    stream_ = std::move(stream).value();
  }

  void TearDown() override {
    stream_ = {};
    device_.reset();
    emulated_.reset();
  }

  // At the end of a SetUp.
  void skip_without_warpgroups() {
    if (!IsSkipped() && device().traits().capability != 90) {
      GTEST_SKIP() << "products of warpgroups are of compute capability 9.0";
    }
  }

  // Of the emulated one. A test may draw orders of its own with other options.
  virtual simt::Machine::Options machine_options() const {
    return {.seed =
                static_cast<std::uint64_t>(testing::UnitTest::GetInstance()->random_seed()) + 7};
  }

  // Values on the device, there when the stream has come so far.
  template <typename T>
  CudaMemory upload(std::span<const T> values) {
    CudaMemory memory = allocate<T>(values.size());
    PinnedMemory pinned = pinned_bytes(values.size_bytes());
    if (!values.empty()) std::memcpy(pinned.bytes(), values.data(), values.size_bytes());
    EXPECT_TRUE(stream_.copy_in(memory.bytes(), pinned.bytes(), values.size_bytes()).ok());
    EXPECT_TRUE(stream_.synchronize().ok());
    return memory;
  }
  template <typename T>
  CudaMemory upload(const std::vector<T>& values) {
    return upload(std::span<const T>(values));
  }

  // Room for so many values, every byte 0xFF: not a number in any floating type.
  template <typename T>
  CudaMemory allocate(std::size_t count) {
    auto memory = device_->allocate(count * sizeof(T), stream_);
    EXPECT_TRUE(memory.ok());
    if (count > 0) {
      EXPECT_TRUE(stream_.fill(memory.value().bytes(), 0xFF, count * sizeof(T)).ok());
    }
    return std::move(memory).value();
  }

  // What lies there when all that is queued is done.
  template <typename T>
  std::vector<T> download(const void* device, std::size_t count) {
    PinnedMemory pinned = pinned_bytes(count * sizeof(T));
    EXPECT_TRUE(stream_.copy_out(pinned.bytes(), device, count * sizeof(T)).ok());
    const Status done = stream_.synchronize();
    EXPECT_TRUE(done.ok()) << done.error().detail;
    std::vector<T> values(count);
    if (count > 0) std::memcpy(values.data(), pinned.bytes(), count * sizeof(T));
    return values;
  }

  PinnedMemory pinned_bytes(std::size_t size_bytes) {
    auto pinned = device_->allocate_pinned(size_bytes);
    EXPECT_TRUE(pinned.ok());
    return std::move(pinned).value();
  }

  // REQUIRES: the GPU is emulated.
  simt::Machine& machine() { return emulated_->machine(); }
  CudaDevice& device() { return *device_; }
  CudaStream& stream() { return stream_; }

 private:
  std::unique_ptr<EmulatedGpu> emulated_;
  std::unique_ptr<CudaDevice> device_;
  CudaStream stream_;
};

// A GPU of which a team can have as little shared memory as of most that are not of data centres:
// less than the best tiles take.
template <typename Fixture>
class OfSmallTeams : public Fixture {
 protected:
  static constexpr std::int64_t kTeamBytes = 99 * 1024;

  simt::Machine::Options machine_options() const override {
    simt::Machine::Options options = Fixture::machine_options();
    options.team_shared_bytes = kTeamBytes;
    return options;
  }
};

}  // namespace stemma
