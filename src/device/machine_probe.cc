#include "device/machine_probe.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>

#include "base/bench_line.h"
#include "base/check.h"
#include "base/math.h"
#include "device/machine_probe_kernel.h"

namespace stemma {

namespace {

constexpr int kRepeats = 5;
constexpr double kPeakSeconds = 0.02;
constexpr double kPeakNowSeconds = 0.001;
constexpr double kTwoCoreSeconds = 0.1;
constexpr std::size_t kPieceBytes = std::size_t{4} << 20;
constexpr std::size_t kReadPieceBytes = std::size_t{1} << 20;

// What a loop's result is added to, so that the loop cannot be left out.
std::atomic<std::uint64_t> kept_result{0};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

constexpr std::int64_t kRounds = 100;

std::int64_t multiply_adds() {
  float sink = 0.5f;
  const std::int64_t operations = multiply_add_rounds(kRounds, sink);
  kept_result.fetch_add(sink > 0 ? 1 : 0, std::memory_order_relaxed);
  return operations;
}

std::int64_t multiply_add_pairs() {
  std::int32_t sink = 3;
  const std::int64_t operations = multiply_add_pairs_rounds(kRounds, sink);
  kept_result.fetch_add(sink > 0 ? 1 : 0, std::memory_order_relaxed);
  return operations;
}

using Operations = std::int64_t (*)();

// Operations a second of one thread, over at least `seconds`.
double operations_per_s(Operations operations, double seconds) {
  std::int64_t done = 0;
  const double start = seconds_now();
  double elapsed = 0;
  do {
    done += operations();
    elapsed = seconds_now() - start;
  } while (elapsed < seconds);
  return static_cast<double>(done) / elapsed;
}

// The same on every thread of the pool at once: the sum of their rates.
double pool_operations_per_s(ThreadPool& pool, Operations operations, double seconds) {
  std::atomic<double> total{0};
  std::atomic<int> arrived{0};
  pool.run_on_all([&](std::int64_t, int) {
    // Each waits until all have theirs.
    arrived.fetch_add(1);
    while (arrived.load() < pool.threads()) std::this_thread::yield();
    total.fetch_add(operations_per_s(operations, seconds));
  });
  return total.load();
}

double peak_gflop_per_s(ThreadPool& pool, Operations operations) {
  std::array<double, kRepeats> samples{};
  for (double& sample : samples) {
    sample = pool_operations_per_s(pool, operations, kPeakSeconds) * 1e-9;
  }
  return median(samples);
}

// Median of GB/s over repetitions of `piece(offset, size_bytes)` for all pieces of the working set.
template <typename Piece>
double measure_gb_per_s(ThreadPool& pool, std::size_t size_bytes, Piece piece) {
  const auto pieces = static_cast<std::int64_t>(ceil_div(size_bytes, kPieceBytes));
  std::array<double, kRepeats> samples{};
  for (double& sample : samples) {
    const double start = seconds_now();
    pool.run(pieces, [&](std::int64_t index, int) {
      const std::size_t offset = static_cast<std::size_t>(index) * kPieceBytes;
      piece(offset, std::min(kPieceBytes, size_bytes - offset));
    });
    sample = static_cast<double>(size_bytes) / (seconds_now() - start) * 1e-9;
  }
  return median(samples);
}

}  // namespace

std::size_t llc_bytes() {
  constexpr std::size_t kUnknown = std::size_t{32} << 20;
#if defined(_SC_LEVEL3_CACHE_SIZE)
  const long reported = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return reported > 0 ? static_cast<std::size_t>(reported) : kUnknown;
#else
  return kUnknown;
#endif
}

double fma_peak_gflop_per_s(ThreadPool& pool) {
  return peak_gflop_per_s(pool, multiply_adds);
}

double fma_peak_now_gflop_per_s(ThreadPool& pool) {
  return pool_operations_per_s(pool, multiply_adds, kPeakNowSeconds) * 1e-9;
}

double pair_peak_gflop_per_s(ThreadPool& pool) {
  return peak_gflop_per_s(pool, multiply_add_pairs);
}

double pair_peak_now_gflop_per_s(ThreadPool& pool) {
  return pool_operations_per_s(pool, multiply_add_pairs, kPeakNowSeconds) * 1e-9;
}

double two_core_ratio(ThreadPool& pair) {
  STEMMA_CHECK_EQ(pair.threads(), 2);
  const double one = operations_per_s(multiply_adds, kTwoCoreSeconds);
  return pool_operations_per_s(pair, multiply_adds, kTwoCoreSeconds) / one;
}

double read_pass_gb_per_s(std::span<const std::span<const std::byte>> areas, ThreadPool& pool) {
  double seconds = 0;
  std::size_t all_bytes = 0;
  for (const std::span<const std::byte> area : areas) {
    const auto pieces = static_cast<std::int64_t>(ceil_div(area.size(), kReadPieceBytes));
    const double start = seconds_now();
    pool.run(pieces, [&](std::int64_t index, int) {
      const std::size_t offset = static_cast<std::size_t>(index) * kReadPieceBytes;
      const std::size_t piece_bytes = std::min(kReadPieceBytes, area.size() - offset);
      kept_result.fetch_add(read_lines(area.data() + offset, piece_bytes),
                            std::memory_order_relaxed);
    });
    seconds += seconds_now() - start;
    all_bytes += area.size();
  }
  return static_cast<double>(all_bytes) / seconds * 1e-9;
}

MachineProbe::MachineProbe(Buffer first, Buffer second) noexcept
    : first_(std::move(first)), second_(std::move(second)) {}

Result<MachineProbe> MachineProbe::create(ThreadPool& pool, std::size_t size_bytes_max) {
  const std::size_t size_bytes = round_up(std::min(2 * llc_bytes(), size_bytes_max), kPieceBytes);
  STEMMA_ASSIGN_OR_RETURN(Buffer first, Buffer::allocate(size_bytes));
  STEMMA_ASSIGN_OR_RETURN(Buffer second, Buffer::allocate(size_bytes));
  first.prefault(pool);
  second.prefault(pool);
  return MachineProbe(std::move(first), std::move(second));
}

double MachineProbe::read_gb_per_s(ThreadPool& pool) {
  const std::span<const std::byte> area(first_.bytes(), first_.size_bytes());
  std::array<double, kRepeats> samples{};
  for (double& sample : samples) sample = read_pass_gb_per_s(std::span(&area, 1), pool);
  return median(samples);
}

double MachineProbe::copy_gb_per_s(ThreadPool& pool) {
  return measure_gb_per_s(pool, size_bytes(), [this](std::size_t offset, std::size_t bytes) {
    std::memcpy(second_.bytes() + offset, first_.bytes() + offset, bytes);
  });
}

double MachineProbe::compare_gb_per_s(ThreadPool& pool) {
  std::memcpy(second_.bytes(), first_.bytes(), size_bytes());
  return measure_gb_per_s(pool, size_bytes(), [this](std::size_t offset, std::size_t bytes) {
    const int order = std::memcmp(first_.bytes() + offset, second_.bytes() + offset, bytes);
    kept_result.fetch_add(order == 0 ? 1 : 0, std::memory_order_relaxed);
  });
}

}  // namespace stemma
