// tests_sim runs its tests as any test program does; with --seed S [--steps N] [--pools NAME] it
// runs that one simulation instead and says what was drawn and what happened; with --seeds N beside
// it those from S on, up to the first that breaks.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "sim/simulation.h"

namespace {

using Pools = std::optional<stemma::SimulatedPools>;

// What stands after `flag`; nullopt where the flag is not given.
std::optional<std::string_view> text_after(int argc, char** argv, std::string_view flag) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (argv[i] == flag) return argv[i + 1];
  }
  return std::nullopt;
}

std::optional<std::int64_t> number_after(int argc, char** argv, std::string_view flag) {
  const auto text = text_after(argc, argv, flag);
  if (!text.has_value()) return std::nullopt;
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error == std::errc() && end == text->data() + text->size() && number >= 0) return number;
  fmt::print(stderr, "tests_sim: {} takes a whole number (got {})\n", flag, *text);
  std::exit(2);
}

Pools pools_after(int argc, char** argv) {
  const auto text = text_after(argc, argv, "--pools");
  if (!text.has_value()) return std::nullopt;
  const Pools pools = stemma::try_parse_pools(*text);
  if (pools.has_value()) return pools;
  fmt::print(stderr,
             "tests_sim: --pools takes plain, windowed, all_windowed, latent or sparse (got {})\n",
             *text);
  std::exit(2);
}

int run_one(std::int64_t seed, std::int64_t steps, Pools pools) {
  stemma::Simulation simulation(static_cast<std::uint64_t>(seed), steps, pools);
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
  if (seed.has_value()) {
    const std::int64_t steps = number_after(argc, argv, "--steps").value_or(2000);
    const std::int64_t seeds = number_after(argc, argv, "--seeds").value_or(1);
    int broken = 0;
    for (std::int64_t i = 0; i < seeds && broken == 0; ++i) {
      broken = run_one(*seed + i, steps, pools_after(argc, argv));
    }
    return broken;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
