// ProductSamples: how long products took on a GPU, beside what bounds them: reading their weights
// at the rate that a pass over memory has, or the vendor's dense products of the same size.
//
// Thread:     values and a pure function.
// Memory:     the samples.
// Cost:       a sort.
// Not here:   what is measured (cuda_experts_bench, cuda_rounded_bench).
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/bench_line.h"

namespace stemma {

// All taken in turns.
struct ProductSamples {
  std::vector<double> us;
  std::vector<double> read_us;
  std::vector<double> library_us;
};

// Their line, beside the slower of both bounds. REQUIRES: there are samples of each.
inline BenchLine line_of(std::string bench, std::vector<std::pair<std::string, std::string>> params,
                         const ProductSamples& samples) {
  const double read_us = median(samples.read_us);
  const double library_us = median(samples.library_us);
  BenchLine line;
  line.bench = std::move(bench);
  line.params = std::move(params);
  line.value = median(samples.us);
  line.unit = "us";
  line.bound = std::max(read_us, library_us);
  line.bound_name = read_us >= library_us ? "read_bandwidth" : "library_products";
  line.ratio = line.value > 0 ? line.bound / line.value : 0;
  line.repeats = static_cast<int>(samples.us.size());
  line.spread = line.value > 0 ? spread(samples.us) : 0;
  return line;
}

}  // namespace stemma
