// What kernels are written in, on both kinds of GPU.
#include "device/dialect_cuda_test.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/float8.h"
#include "base/prng.h"
#include "base/sanitizers.h"
#include "device/cuda_fixture.h"

namespace stemma {
namespace {

using testing::Each;
using testing::ElementsAreArray;

class Dialect : public CudaFixture {};

std::vector<float> drawn(std::size_t count, float spread, std::uint64_t seed) {
  Prng prng(seed);
  std::vector<float> values(count);
  for (float& value : values) value = spread * static_cast<float>(2 * prng.unit() - 1);
  return values;
}

TEST_F(Dialect, EveryThreadOfEveryTeamRunsOnceAndKnowsItsPlace) {
  const CudaMemory out = allocate<std::int32_t>(5 * 96);
  ASSERT_TRUE(launch_places(stream(), 5, 96, out.as<std::int32_t>()).ok());
  const auto places = download<std::int32_t>(out.bytes(), 5 * 96);
  for (int i = 0; i < 5 * 96; ++i) {
    EXPECT_EQ(places[static_cast<std::size_t>(i)], 1000 * (i / 96) + i % 96);
  }
}

TEST_F(Dialect, NoTeamsAreNoWork) {
  EXPECT_TRUE(launch_places(stream(), 0, 32, nullptr).ok());
  EXPECT_TRUE(stream().synchronize().ok());
}

TEST_F(Dialect, ATeamOfTooManyThreadsIsRefusedByName) {
  const Status status = launch_places(stream(), 1, 2048, nullptr);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kInternal);
  EXPECT_THAT(status.error().detail, testing::HasSubstr("places"));
}

TEST_F(Dialect, ATeamsSumAndLargestReachAllItsThreads) {
  for (const int threads : {32, 64, 256, 1024}) {
    const auto count = static_cast<std::size_t>(threads);
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), 1.0f);  // whole numbers: any order gives their sum
    const CudaMemory in = upload(values);
    const CudaMemory out = allocate<float>(2 * count);
    ASSERT_TRUE(launch_team_sums(stream(), threads, in.as<float>(), out.as<float>()).ok());
    const auto sums = download<float>(out.bytes(), 2 * count);
    const float total = static_cast<float>(threads) * static_cast<float>(threads + 1) / 2;
    EXPECT_THAT(std::span(sums).first(count), Each(total)) << threads;
    EXPECT_THAT(std::span(sums).subspan(count), Each(static_cast<float>(threads))) << threads;
  }
}

TEST_F(Dialect, WhatWasWrittenBeforeABarrierIsReadBehindIt) {
  const std::vector<float> values = drawn(512, 1, 1);
  const CudaMemory in = upload(values);
  const CudaMemory out = allocate<float>(512);
  ASSERT_TRUE(launch_reversal(stream(), 512, in.as<float>(), out.as<float>()).ok());
  const std::vector<float> reversed(values.rbegin(), values.rend());
  EXPECT_THAT(download<float>(out.bytes(), 512), ElementsAreArray(reversed));
}

// Products of 16-bit values are exact in f32; sixteen of them and c are added in some order.
template <typename T>
void expect_product(const std::vector<float>& got, const std::vector<T>& a, const std::vector<T>& b,
                    const std::vector<float>& c) {
  for (std::size_t row = 0; row < 16; ++row) {
    for (std::size_t column = 0; column < 8; ++column) {
      double sum = c[row * 8 + column];
      for (std::size_t k = 0; k < 16; ++k) {
        sum += double{to_float(a[row * 16 + k])} * to_float(b[k * 8 + column]);
      }
      EXPECT_NEAR(got[row * 8 + column], sum, 17 * 0x1p-23 * 17) << row << ", " << column;
    }
  }
}

template <typename T, typename Narrow>
std::vector<T> narrowed(const std::vector<float>& values, Narrow narrow) {
  std::vector<T> out;
  for (const float value : values) out.push_back(narrow(value));
  return out;
}

TEST_F(Dialect, AWarpMultipliesSmallMatrices) {
  const auto check = [&]<typename T>(T, auto narrow) {
    const std::vector<T> a = narrowed<T>(drawn(16 * 16, 1, 2), narrow);
    const std::vector<T> b = narrowed<T>(drawn(16 * 8, 1, 3), narrow);
    const std::vector<float> c = drawn(16 * 8, 1, 4);
    const CudaMemory on_a = upload(a);
    const CudaMemory on_b = upload(b);
    const CudaMemory on_c = upload(c);
    const CudaMemory d = allocate<float>(16 * 8);
    ASSERT_TRUE(
        launch_product<T>(stream(), on_a.as<T>(), on_b.as<T>(), on_c.as<float>(), d.as<float>())
            .ok());
    expect_product<T>(download<float>(d.bytes(), 16 * 8), a, b, c);
  };
  check(BFloat16{}, to_bfloat16);
  check(Float16{}, to_float16);
}

std::vector<float> awkward_values() {
  std::vector<float> values = drawn(400, 3, 5);
  for (int exponent = -30; exponent < 18; ++exponent) {
    values.push_back(std::ldexp(1.0f, exponent));
    values.push_back(std::ldexp(-1.4375f, exponent));
    values.push_back(std::ldexp(1.0625f, exponent));  // between two values of 8 bits
  }
  values.insert(values.end(), {0.0f, -0.0f, 448, 449, 463, 465, 57344, 61439, 61441, 65504, 1e30f});
  return values;
}

TEST_F(Dialect, NarrowingRoundsAsTheHostDoes) {
  const std::vector<float> values = awkward_values();
  const CudaMemory in = upload(values);
  const auto check = [&]<typename T>(T, auto narrow) {
    const CudaMemory out = allocate<T>(values.size());
    const CudaMemory back = allocate<float>(values.size());
    ASSERT_TRUE(launch_narrowing<T>(stream(), static_cast<std::int64_t>(values.size()),
                                    in.as<float>(), out.as<T>(), back.as<float>())
                    .ok());
    const auto got = download<T>(out.bytes(), values.size());
    const auto widened = download<float>(back.bytes(), values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const T expected = narrow(values[i]);
      EXPECT_EQ(got[i].bits, expected.bits) << values[i];
      EXPECT_EQ(widened[i], to_float(expected)) << values[i];
    }
  };
  check(BFloat16{}, to_bfloat16);
  check(Float16{}, to_float16);
  check(Float8E4M3{}, to_float8<Float8E4M3>);
  check(Float8E5M2{}, to_float8<Float8E5M2>);
}

TEST_F(Dialect, WholeNumbersOfEightBitsAreNearestAndEven) {
  const std::vector<float> values = {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 126.5f, 127.4f, 300, -300};
  const CudaMemory in = upload(values);
  const CudaMemory out = allocate<std::int8_t>(values.size());
  const CudaMemory back = allocate<float>(values.size());
  ASSERT_TRUE(launch_narrowing<std::int8_t>(stream(), static_cast<std::int64_t>(values.size()),
                                            in.as<float>(), out.as<std::int8_t>(), back.as<float>())
                  .ok());
  EXPECT_THAT(download<std::int8_t>(out.bytes(), values.size()),
              ElementsAreArray({0, 2, 2, 0, -2, 126, 127, 127, -127}));
}

TEST_F(Dialect, FourCodesAtOnceAreThoseOneByOne) {
  std::vector<float> values = awkward_values();
  for (int code = -128; code < 128; ++code) values.push_back(static_cast<float>(code) + 0.5f);
  values.resize(values.size() / 4 * 4);
  const auto words = static_cast<std::int64_t>(values.size() / 4);
  const CudaMemory in = upload(values);
  const auto check = [&]<typename Code>(Code) {
    const CudaMemory out = allocate<Code>(values.size());
    const CudaMemory fours = allocate<std::uint32_t>(values.size() / 4);
    const CudaMemory back = allocate<float>(values.size());
    const CudaMemory fours_back = allocate<float>(values.size());
    const auto count = static_cast<std::int64_t>(values.size());
    ASSERT_TRUE(
        launch_narrowing<Code>(stream(), count, in.as<float>(), out.as<Code>(), back.as<float>())
            .ok());
    ASSERT_TRUE(launch_narrowing_fours<Code>(stream(), words, in.as<float>(),
                                             fours.as<std::uint32_t>(), fours_back.as<float>())
                    .ok());
    EXPECT_EQ(download<std::byte>(fours.bytes(), values.size()),
              download<std::byte>(out.bytes(), values.size()));
    EXPECT_EQ(download<float>(fours_back.bytes(), values.size()),
              download<float>(back.bytes(), values.size()));
  };
  check(Float8E4M3{});
  check(Float8E5M2{});
  check(std::int8_t{});
}

float number(std::int8_t code) {
  return code;
}
template <typename Code>
float number(Code code) {
  return to_float(code);
}

TEST_F(Dialect, EveryCodeIsThatNumberOf16Bits) {
  std::vector<std::uint32_t> words(64);
  for (std::uint32_t i = 0; i < 64; ++i) words[i] = 0x03020100u + 0x04040404u * i;
  const CudaMemory in = upload(words);
  const auto check = [&]<typename Code>(Code) {
    const CudaMemory halves = allocate<Float16>(256);
    const CudaMemory swapped = allocate<std::uint8_t>(256);
    ASSERT_TRUE(launch_halves<Code>(stream(), 64, in.as<std::uint32_t>(),
                                    halves.as<std::uint32_t>(), swapped.as<std::uint32_t>())
                    .ok());
    const auto wide = download<Float16>(halves.bytes(), 256);
    const auto order = download<std::uint8_t>(swapped.bytes(), 256);
    for (std::size_t i = 0; i < 256; ++i) {
      const float code = number(std::bit_cast<Code>(static_cast<std::uint8_t>(i)));
      if (std::isnan(code)) continue;
      EXPECT_EQ(to_float(wide[i]), code) << i;
      EXPECT_EQ(order[i], i % 4 == 1 ? i + 1 : (i % 4 == 2 ? i - 1 : i));
    }
  };
  check(Float8E4M3{});
  check(Float8E5M2{});
  check(std::int8_t{});
}

TEST_F(Dialect, LogarithmsAreThoseOfTheHost) {
  std::vector<float> values;
  for (int exponent = -100; exponent < 127; ++exponent) {
    values.push_back(std::ldexp(1.0f, exponent));
    values.push_back(std::ldexp(1.7f, exponent));
  }
  const CudaMemory in = upload(values);
  const CudaMemory out = allocate<float>(values.size());
  const auto count = static_cast<std::int64_t>(values.size());
  ASSERT_TRUE(launch_logarithms(stream(), count, in.as<float>(), out.as<float>()).ok());
  const auto logarithms = download<float>(out.bytes(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double exact = std::log2(double{values[i]});
    EXPECT_NEAR(logarithms[i], exact, 0x1p-21 * std::max(1.0, std::abs(exact))) << values[i];
  }
}

// Sorted by what the counter was, each thread begins where the one before it ended.
TEST_F(Dialect, ThreadsThatAddToOneNumberAddOneAfterTheOther) {
  constexpr std::uint32_t kThreads = 256;
  const CudaMemory out = allocate<std::uint32_t>(kThreads + 1);
  ASSERT_TRUE(launch_tickets(stream(), kThreads, out.as<std::uint32_t>()).ok());
  const auto tickets = download<std::uint32_t>(out.bytes(), kThreads + 1);
  std::vector<std::uint32_t> order(kThreads);
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [&](std::uint32_t a, std::uint32_t b) { return tickets[a] < tickets[b]; });
  std::uint32_t reached = 0;
  for (const std::uint32_t thread : order) {
    EXPECT_EQ(tickets[thread], reached);
    reached += thread + 1;
  }
  EXPECT_EQ(tickets[kThreads], reached);
}

TEST_F(Dialect, ALaneCountsThoseBeforeItThatAreTrue) {
  constexpr std::size_t kThreads = 96;
  Prng prng(static_cast<std::uint64_t>(testing::UnitTest::GetInstance()->random_seed()));
  std::vector<float> values(kThreads);
  for (float& value : values) value = static_cast<float>(prng.unit() * 4 - 2);
  std::fill_n(values.begin() + 32, 32, 1.0f);
  const CudaMemory in = upload(values);
  const CudaMemory out = allocate<std::int32_t>(kThreads);
  ASSERT_TRUE(launch_ranks(stream(), kThreads, in.as<float>(), out.as<std::int32_t>()).ok());
  const auto places = download<std::int32_t>(out.bytes(), kThreads);
  std::int32_t before = 0;
  for (std::size_t i = 0; i < kThreads; ++i) {
    if (i % 32 == 0) before = 0;
    EXPECT_EQ(places[i], values[i] > 0 ? before++ : -1) << i;
  }
}

TEST_F(Dialect, AnExponentialOfDoubleIsThatOfTheHostButForItsLastPlace) {
  std::vector<double> values = {0, -1, 1, -745, 700, -0x1p-60};
  for (int i = 0; i < 200; ++i) values.push_back(-0.173 * i);
  const CudaMemory in = upload(values);
  const CudaMemory out = allocate<double>(values.size());
  ASSERT_TRUE(launch_exponentials(stream(), static_cast<std::int64_t>(values.size()),
                                  in.as<double>(), out.as<double>())
                  .ok());
  const auto got = download<double>(out.bytes(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_DOUBLE_EQ(got[i], std::exp(values[i])) << values[i];  // four units
  }
}

// Each step takes its numbers from another team's of the one before.
TEST_F(Dialect, KernelsThatBeginEarlyReadWhatTheOneBeforeWrote) {
  constexpr std::int64_t kSteps = 100;
  constexpr std::int64_t kTeams = 300;
  constexpr std::size_t kNumbers{kTeams * 32};
  const CudaMemory numbers = upload(std::vector<std::uint32_t>(kNumbers, 7));
  const CudaMemory others = allocate<std::uint32_t>(kNumbers);
  for (std::int64_t i = 0; i < kSteps; ++i) {
    const CudaMemory& from = i % 2 == 0 ? numbers : others;
    const CudaMemory& to = i % 2 == 0 ? others : numbers;
    ASSERT_TRUE(
        launch_steps(stream(), i, kTeams, from.as<std::uint32_t>(), to.as<std::uint32_t>()).ok());
  }
  const auto got = download<std::uint32_t>(numbers.bytes(), kNumbers);
  EXPECT_EQ(std::count(got.begin(), got.end(), std::uint32_t{7 + kSteps}), std::ssize(got));
}

#ifdef STEMMA_SIMT
using EmulatedGpuDeath = Dialect;

TEST_F(EmulatedGpuDeath, AThreadThatBeginsEarlyAndNeverAwaitsItsTurnEndsTheProgram) {
  EXPECT_DEATH(
      {
        ignore_error(launch_hasty_thread(stream()), "it is queued");
        ignore_error(stream().synchronize(), "it does not come back");
      },
      "awaits its turn");
}

TEST_F(EmulatedGpuDeath, ABarrierThatAThreadMissesEndsTheProgram) {
  EXPECT_DEATH(
      {
        ignore_error(launch_lost_thread(stream()), "it is queued");
        ignore_error(stream().synchronize(), "it does not come back");
      },
      "wait for each other");
}

TEST_F(EmulatedGpuDeath, LanesThatMeetAtDifferentPlacesEndTheProgram) {
  const CudaMemory out = allocate<float>(32);
  EXPECT_DEATH(
      {
        ignore_error(launch_parted_warp(stream(), out.as<float>()), "it is queued");
        ignore_error(stream().synchronize(), "it does not come back");
      },
      "at different places");
}

TEST_F(EmulatedGpuDeath, AWriteBehindAnAllocationIsFoundWhenItGoesBack) {
  EXPECT_DEATH(
      {
        CudaMemory out = allocate<float>(10);
        ignore_error(launch_overrun(stream(), 10, out.as<float>()), "it is queued");
        out.release();
        ignore_error(stream().synchronize(), "it does not come back");
      },
      "beside an allocation|use-after-poison");
}

TEST_F(EmulatedGpuDeath, AReadBehindAnAllocationIsFoundByTheAddressSanitizer) {
  if (!kAddressesWatched) GTEST_SKIP() << "needs the address sanitizer";
  const CudaMemory in = allocate<float>(10);
  const CudaMemory out = allocate<float>(1);
  EXPECT_DEATH(
      {
        ignore_error(launch_overread(stream(), 10, in.as<float>(), out.as<float>()),
                     "it is queued");
        ignore_error(stream().synchronize(), "it does not come back");
      },
      "use-after-poison");
}

TEST_F(EmulatedGpuDeath, MatricesThatAreNotInSharedMemoryEndTheProgram) {
  const CudaMemory rows = allocate<float>(128);
  const CudaMemory out = allocate<std::uint32_t>(32);
  EXPECT_DEATH(
      {
        ignore_error(launch_far_matrix(stream(), rows.as<float>(), out.as<std::uint32_t>()),
                     "it is queued");
        ignore_error(stream().synchronize(), "it does not come back");
      },
      "an address of the team's shared memory");
}

TEST_F(EmulatedGpuDeath, TheHostCannotFollowAnAddressOfTheDevice) {
  const CudaMemory out = allocate<float>(10);
  ASSERT_TRUE(stream().synchronize().ok());
  EXPECT_DEATH(
      {
        volatile float seen = *out.as<float>();
        static_cast<void>(seen);
      },
      "");
}
#endif

}  // namespace
}  // namespace stemma
