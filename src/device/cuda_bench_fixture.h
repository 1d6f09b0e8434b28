// What tests make of a benchmark's lines.
//
// Thread:     a test's.
// Memory:     the lines.
// Cost:       the benchmark's.
// Not here:   the GPU (cuda_fixture).
#pragma once

#include <vector>

#include "base/bench_line.h"
#include "base/function_ref.h"
#include "stemma/result.h"

namespace stemma {

// Of a benchmark that came to its end.
inline Result<std::vector<BenchLine>> lines_of(FunctionRef<Status(BenchSink)> bench) {
  std::vector<BenchLine> lines;
  STEMMA_RETURN_IF_ERROR(bench([&](const BenchLine& line) { lines.push_back(line); }));
  return lines;
}

}  // namespace stemma
