// tests_sim runs its tests as any test program does; with --seed S [--steps N] it runs that one
// simulation instead and says what was drawn and what happened.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "sim/simulation.h"

namespace {

// The whole number after `flag`; nullopt where the flag is not given.
std::optional<std::int64_t> number_after(int argc, char** argv, std::string_view flag) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (argv[i] != flag) continue;
    const std::string_view text = argv[i + 1];
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && end == text.data() + text.size() && number >= 0) return number;
    fmt::print(stderr, "tests_sim: {} takes a whole number (got {})\n", flag, text);
    std::exit(2);
  }
  return std::nullopt;
}

int run_one(std::int64_t seed, std::int64_t steps) {
  stemma::Simulation simulation(static_cast<std::uint64_t>(seed), steps);
  fmt::print("seed {} steps {}\n{}\n", seed, steps, to_string(simulation.plan()));
  const auto failure = simulation.run();
  for (const auto& [name, value] : simulation.tally()) fmt::print("{} {}\n", name, value);
  fmt::print("trace {:016x}\n", simulation.trace());
  if (failure.has_value()) fmt::print(stderr, "broken: {}\n", *failure);
  return failure.has_value() ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const auto seed = number_after(argc, argv, "--seed");
  if (seed.has_value()) return run_one(*seed, number_after(argc, argv, "--steps").value_or(2000));
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
