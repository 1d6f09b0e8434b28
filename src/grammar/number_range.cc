#include "grammar/number_range.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

namespace stemma {
namespace {

// The first whole number that divided by `unit`, as who reads the text does, is not below `bound`,
// or is above it.
double first_above(double bound, double unit, bool exclusive) {
  const auto is_within = [&](double number) {
    return exclusive ? number / unit > bound : number / unit >= bound;
  };
  double number = std::ceil(bound * unit) - 1;
  for (int left = 3; left > 0 && !is_within(number); --left) ++number;
  return number;
}

}  // namespace

Result<NumberRange> read_number_range(const TemplateJson& schema, double unit, double limit) {
  NumberRange range = {.least = -limit, .most = limit};
  for (const char* const name : {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
    const auto found = schema.find(name);
    if (found == schema.end()) continue;
    if (!found->is_number()) {
      return Error{ErrorCode::kInvalidArgument, std::string(name) + " must be a number"};
    }
    const std::string_view word = name;
    const auto value = found->get<double>();
    const bool exclusive = word.starts_with("exclusive");
    range.is_free = false;
    if (word.ends_with("inimum")) {
      range.least = std::max(range.least, first_above(value, unit, exclusive));
    } else {
      range.most = std::min(range.most, -first_above(-value, unit, exclusive));
    }
  }
  return range;
}

}  // namespace stemma
