// BenchLine: one measured figure beside the bound it is measured against, and the statistics of its
// samples.
//
// Thread:     values and pure functions.
// Memory:     a few strings a line; median copies its samples.
// Cost:       a sort.
// Not here:   what is measured (x_bench in each room), how a line is printed (cli/).
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/function_ref.h"

namespace stemma {

// One line of `stemma bench --json`.
struct BenchLine {
  std::string bench;                                        // which benchmark: "gemm", "match", ...
  std::vector<std::pair<std::string, std::string>> params;  // what this case is, in printing order
  double value = 0;                                         // the median of the samples, in `unit`
  std::string unit;                                         // "gflop/s", "gb/s", "ns", ...
  double bound = 0;        // the limit that was measured in the same run, in the same unit
  std::string bound_name;  // what the limit is: "fma_peak", "read_bandwidth", "memcmp", ...
  double ratio = 0;   // value against bound, in the direction in which 1.0 is the bound reached
  int repeats = 0;    // how many samples
  double spread = 0;  // (largest sample - smallest) / median
};

// Takes a line as soon as it was measured: what comes behind may fail, or have no end.
using BenchSink = FunctionRef<void(const BenchLine&)>;

// The middle sample; the mean of the two middle ones if their number is even. REQUIRES: not empty.
inline double median(std::span<const double> samples) {
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  const std::size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

// How far the samples lie apart, as a share of their median. REQUIRES: not empty; median not 0.
inline double spread(std::span<const double> samples) {
  const auto [smallest, largest] = std::minmax_element(samples.begin(), samples.end());
  return (*largest - *smallest) / median(samples);
}

}  // namespace stemma
