#include "cli/bench_output.h"

#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

namespace stemma {

void print_json(const BenchLine& line) {
  nlohmann::ordered_json object;
  object["bench"] = line.bench;
  object["params"] = nlohmann::ordered_json::object();
  for (const auto& [name, value] : line.params) object["params"][name] = value;
  object["value"] = line.value;
  object["unit"] = line.unit;
  object["bound"] = line.bound;
  object["bound_name"] = line.bound_name;
  object["ratio"] = line.ratio;
  object["repeats"] = line.repeats;
  object["spread"] = line.spread;
  std::cout << object.dump() << std::endl;
}

void print_text(const BenchLine& line) {
  std::string params;
  for (const auto& [name, value] : line.params) params += fmt::format(" {}={}", name, value);
  std::cout << fmt::format(
                   "{:<10}{:>12.4g} {:<9} {:>6.1f}% of {} {:.4g} (spread {:.0f}%, {} runs){}",
                   line.bench, line.value, line.unit, 100 * line.ratio, line.bound_name, line.bound,
                   100 * line.spread, line.repeats, params)
            << std::endl;
}

}  // namespace stemma
