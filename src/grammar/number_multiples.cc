#include "grammar/number_multiples.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"

namespace stemma {
namespace {

using Part = ByteGrammar::Part;

constexpr std::int64_t kTen = 10;

std::int64_t rounded_up(std::int64_t value, std::int64_t step) {
  return value / step + (value % step > 0 ? 1 : 0);
}
std::int64_t rounded_down(std::int64_t value, std::int64_t step) {
  return value / step - (value % step < 0 ? 1 : 0);
}

// Whole numbers without a sign, digit by digit: what may follow depends on how many digits are
// left, on what remains of those before divided by the step, and on the bounds that these are
// equal to.
class Magnitudes {
 public:
  Magnitudes(ByteGrammar& grammar, std::int64_t step, int places)
      : grammar_(grammar), step_(step), places_(static_cast<std::size_t>(places)) {}

  // REQUIRES: 0 <= least <= most.
  void add(std::int64_t least, std::int64_t most, std::vector<Part>& ways) {
    for (std::size_t digits = places_ + 1;; ++digits) {
      const std::string first =
          std::string(1, digits > places_ + 1 ? '1' : '0') + std::string(digits - 1, '0');
      const std::string last(digits, '9');
      low_ = std::max(first, padded(least, digits));
      high_ = std::min(last, padded(most, digits));
      const bool all = std::to_string(most).size() <= digits;
      if (std::to_string(least).size() <= digits && low_ <= high_) {
        bounded_.clear();
        const auto way = rest(digits, 0, true, true);
        if (way.has_value()) ways.push_back(*way);
      }
      if (all) return;
    }
  }

 private:
  // Of numbers with more digits, what no number of so few goes beyond.
  static std::string padded(std::int64_t value, std::size_t digits) {
    const std::string text = std::to_string(value);
    return text.size() > digits ? std::string(digits, '9')
                                : std::string(digits - text.size(), '0') + text;
  }

  // What may follow where `left` digits are missing; nullopt: nothing makes a multiple of it.
  std::optional<Part> rest(std::size_t left, std::int64_t remainder, bool on_low, bool on_high) {
    if (left == 0) {
      return remainder == 0 ? std::optional(grammar_.sequence({})) : std::nullopt;
    }
    auto& known = on_low || on_high ? bounded_ : free_;
    const auto [found, added] = known.try_emplace({left, remainder, on_low, on_high});
    if (added) found->second = new_rest(left, remainder, on_low, on_high);
    return found->second;
  }

  std::optional<Part> new_rest(std::size_t left, std::int64_t remainder, bool on_low,
                               bool on_high) {
    const std::size_t at = low_.size() - left;
    const char first = on_low ? low_[at] : '0';
    const char last = on_high ? high_[at] : '9';
    std::vector<Part> ways;
    for (char digit = first; digit <= last; ++digit) {
      const auto behind = rest(left - 1, (kTen * remainder + (digit - '0')) % step_,
                               on_low && digit == first, on_high && digit == last);
      if (!behind.has_value()) continue;
      const char text[] = {'.', digit};
      const bool pointed = left == places_;
      ways.push_back(grammar_.sequence(
          {grammar_.text({text + (pointed ? 0 : 1), std::size_t{pointed ? 2U : 1U}}), *behind}));
    }
    if (ways.empty()) return std::nullopt;
    return grammar_.rule(grammar_.either(std::move(ways)));
  }

  using Known = std::map<std::tuple<std::size_t, std::int64_t, bool, bool>, std::optional<Part>>;

  ByteGrammar& grammar_;
  std::int64_t step_;
  std::size_t places_;
  std::string low_;  // of numbers of as many digits
  std::string high_;
  Known bounded_;  // by these
  Known free_;
};

}  // namespace

std::int64_t DecimalStep::with_places(int behind) const {
  std::int64_t power = 1;
  for (int i = behind; i < places; ++i) power *= kTen;
  return whole / std::gcd(whole, power);
}

std::optional<DecimalStep> decimal_step(double value) {
  constexpr double kWholeMax = 1e15;
  double power = 1;
  for (int places = 0; places <= DecimalStep::kPlacesMax; ++places, power *= kTen) {
    const double whole = std::round(value * power);
    if (whole > kWholeMax) return std::nullopt;
    if (whole / power != value) continue;
    const auto step = static_cast<std::int64_t>(whole);
    if (bare_step(step) > kMultipleStepMax) return std::nullopt;
    return DecimalStep{step, places};
  }
  return std::nullopt;
}

std::int64_t bare_step(std::int64_t step) {
  while (step % kTen == 0) step /= kTen;
  return step;
}

std::optional<Part> multiples(ByteGrammar& grammar, const Multiples& numbers) {
  STEMMA_CHECK(numbers.step >= 1 && bare_step(numbers.step) <= kMultipleStepMax, "few rules");
  STEMMA_CHECK(numbers.places == 0 || numbers.step % kTen != 0, "zeros end whole numbers");
  const std::int64_t step = bare_step(numbers.step);
  const std::int64_t power = numbers.step / step;
  const std::int64_t least = rounded_up(numbers.least, power);
  const std::int64_t most = rounded_down(numbers.most, power);
  const Part zeros = grammar.text(std::to_string(power).substr(1));
  std::vector<Part> ways;
  Magnitudes magnitudes(grammar, step, numbers.places);  // most rules are those of both signs
  const auto add = [&](std::int64_t from, std::int64_t to, std::string_view sign) {
    std::vector<Part> digits;
    if (from <= to) magnitudes.add(from, to, digits);
    if (digits.empty()) return;
    ways.push_back(
        grammar.sequence({grammar.text(sign), grammar.either(std::move(digits)), zeros}));
  };
  const bool zero_apart = power > 1;  // no zeros follow it
  if (zero_apart && least <= 0 && most >= 0) ways.push_back(grammar.text("0"));
  add(std::max<std::int64_t>(least, zero_apart ? 1 : 0), most, "");
  add(std::max<std::int64_t>(-most, 1), -least, "-");
  if (ways.empty()) return std::nullopt;
  return grammar.either(std::move(ways));
}

}  // namespace stemma
