#include "grammar/number_range.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "base/check.h"

namespace stemma {
namespace {

// A bound, to which numbers of units are compared: -1, 0 or 1, below it, at it or above it.
class Bound {
 public:
  Bound(const TemplateJson& value, int places)
      : read_(value.get<double>()), whole_(whole_of(value)), places_(places) {
    for (int i = 0; i < places; ++i) unit_ *= 10;
  }

  // Of the two ways to see the number, the one further down, or up.
  int least_order(std::int64_t number) const {
    return std::min(order_as_read(number), order_as_written(number));
  }
  int most_order(std::int64_t number) const {
    return std::max(order_as_read(number), order_as_written(number));
  }

 private:
  static std::optional<std::int64_t> whole_of(const TemplateJson& value) {
    if (!value.is_number_integer()) return std::nullopt;
    const bool fits = !value.is_number_unsigned() ||
                      value.get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max();
    return fits ? std::optional(value.get<std::int64_t>()) : std::nullopt;
  }
  template <typename Number>
  static int order(Number number, Number bound) {
    return number < bound ? -1 : (number > bound ? 1 : 0);
  }

  // Its text, as the nearest double.
  int order_as_read(std::int64_t number) const {
    const auto places = static_cast<std::size_t>(places_);
    std::string text = std::to_string(number < 0 ? -number : number);
    if (text.size() <= places) text.insert(0, places + 1 - text.size(), '0');
    if (places > 0) text.insert(text.size() - places, 1, '.');
    double value = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
    STEMMA_CHECK(read.ec == std::errc(), "digits are a number");
    return order(number < 0 ? -value : value, read_);
  }

  int order_as_written(std::int64_t number) const {
    if (!whole_.has_value()) return order_as_read(number);
    const std::int64_t rest = (number % unit_ + unit_) % unit_;
    const int by_wholes = order((number - rest) / unit_, *whole_);
    return by_wholes == 0 && rest > 0 ? 1 : by_wholes;
  }

  double read_;
  std::optional<std::int64_t> whole_;  // where it is, exactly
  int places_;
  std::int64_t unit_ = 1;
};

// The first number from -limit to limit that is so, as all above it are; limit + 1: none.
template <typename IsSo>
std::int64_t first_that(std::int64_t limit, IsSo&& is_so) {
  std::int64_t first = -limit;
  std::int64_t last = limit + 1;
  while (first < last) {
    const std::int64_t middle = first + (last - first) / 2;
    if (is_so(middle)) {
      last = middle;
    } else {
      first = middle + 1;
    }
  }
  return first;
}

// As draft 4 and OpenAPI 3.0 say it: "minimum": 0, "exclusiveMinimum": true.
bool is_flagged(const TemplateJson& schema, std::string_view word) {
  const auto flag = schema.find(word == "minimum" ? "exclusiveMinimum" : "exclusiveMaximum");
  return flag != schema.end() && flag->is_boolean() && flag->get<bool>();
}

}  // namespace

Result<NumberRange> read_number_range(const TemplateJson& schema, int places, std::int64_t limit) {
  NumberRange range = {.least = -limit, .most = limit};
  for (const char* const name : {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
    const auto found = schema.find(name);
    const std::string_view word = name;
    if (found == schema.end() || (found->is_boolean() && word.starts_with("exclusive"))) continue;
    if (!found->is_number()) {
      return Error{ErrorCode::kInvalidArgument, std::string(name) + " must be a number"};
    }
    const Bound bound(*found, places);
    const bool exclusive = word.starts_with("exclusive") || is_flagged(schema, word);
    range.is_free = false;
    if (word.ends_with("inimum")) {
      const auto is_within = [&](std::int64_t number) {
        return bound.least_order(number) >= (exclusive ? 1 : 0);
      };
      range.least = std::max(range.least, first_that(limit, is_within));
    } else {
      const auto is_beyond = [&](std::int64_t number) {
        return bound.most_order(number) >= (exclusive ? 0 : 1);
      };
      range.most = std::min(range.most, first_that(limit, is_beyond) - 1);
    }
  }
  return range;
}

}  // namespace stemma
