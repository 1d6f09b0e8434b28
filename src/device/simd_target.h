// SIMD target: which vector instruction set this process computes with.
//
// Thread:     reading from any; selecting only while no kernel runs.
// Memory:     none.
// Cost:       the processor is asked once.
// Not here:   the list of compiled targets (simd_targets.h), kernels (*_cpu.cc).
#pragma once

#include <string_view>
#include <vector>

namespace stemma {

// The chosen target, as "AVX3", "AVX2", "SCALAR": part of a namespace, because bits may differ
// between targets.
std::string_view simd_target_name();

// The targets that are compiled in and that this processor has, best first.
std::vector<std::string_view> simd_target_names();

// Makes `name` the chosen target, for tests and benchmarks. False if it is not one of
// simd_target_names(). REQUIRES: no kernel is running, and nothing computed before is compared bit
// for bit with what comes after.
bool try_select_simd_target(std::string_view name);

// Goes back to the best target.
void select_best_simd_target();

}  // namespace stemma
