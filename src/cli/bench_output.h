// Bench output: lines of benchmarks, for people or for programs.
//
// Thread:     main.
// Memory:     none kept.
// Cost:       a line.
// Not here:   what is measured (x_bench of each room).
#pragma once

#include "base/bench_line.h"

namespace stemma {

// One JSON object, or a line of text with the params at its end.
void print_json(const BenchLine& line);
void print_text(const BenchLine& line);

}  // namespace stemma
