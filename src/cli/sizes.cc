#include "cli/sizes.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace stemma {

namespace {

constexpr std::array<std::pair<std::string_view, double>, 6> kUnits = {
    {{"", 1}, {"B", 1}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}}};

}  // namespace

Result<std::int64_t> parse_bytes(std::string_view text, std::string_view flag) {
  double number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  for (const auto& [name, factor] : kUnits) {
    const double bytes = number * factor;
    if (error == std::errc() && unit == name && bytes >= 0 && bytes < 0x1p62) {
      return static_cast<std::int64_t>(std::floor(bytes));
    }
  }
  return Error{ErrorCode::kInvalidArgument, std::string(flag) +
                                                " wants a size such as 4096, 64KiB or 2GiB (got '" +
                                                std::string(text.substr(0, 40)) + "')"};
}

std::string format_bytes(std::int64_t bytes) {
  std::size_t unit = 1;
  auto value = static_cast<double>(bytes);
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.4g} {}", value, kUnits[unit].first);
}

}  // namespace stemma
