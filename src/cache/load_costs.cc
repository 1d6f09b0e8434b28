#include "cache/load_costs.h"

#include <algorithm>

namespace stemma {

void FadingLine::add(double x, double y) noexcept {
  weight_ = kFading * weight_ + 1;
  x_ = kFading * x_ + x;
  y_ = kFading * y_ + y;
  xx_ = kFading * xx_ + x * x;
  xy_ = kFading * xy_ + x * y;
}

// All sums by one factor: the line stays where it is.
void FadingLine::doubt() noexcept {
  if (weight_ <= kDoubtedWeight) return;
  const double factor = kDoubtedWeight / weight_;
  for (double* const sum : {&weight_, &x_, &y_, &xx_, &xy_}) *sum *= factor;
}

// The line neither falls nor begins below zero: one that costs nothing far out, or less than
// nothing near zero, would be believed at its worst.
double FadingLine::at(double x) const noexcept {
  const double spread = weight_ * xx_ - x_ * x_;
  const double mean_x = x_ / weight_;
  const double mean_y = y_ / weight_;
  const double steepest = mean_x > 0 ? mean_y / mean_x : 0;
  double slope = alone_ == Alone::kFlat ? 0 : steepest;
  if (spread > 1e-9 * weight_ * xx_) {
    slope = std::clamp((weight_ * xy_ - x_ * y_) / spread, 0.0, steepest);
  }
  return std::max(mean_y + slope * (x - mean_x), 0.0);
}

void LoadCosts::computed(std::int64_t first_token, std::int64_t tokens, std::int64_t us) noexcept {
  if (tokens <= 0 || us <= 0) return;
  const double middle = static_cast<double>(first_token) + static_cast<double>(tokens) / 2;
  prefill_us_per_token_.add(middle, static_cast<double>(us) / static_cast<double>(tokens));
}

void LoadCosts::loaded(Tier tier, std::int64_t pages, std::int64_t us) noexcept {
  if (pages <= 0 || us < 0) return;
  loads_[static_cast<std::size_t>(tier)].add(static_cast<double>(pages), static_cast<double>(us));
}

std::optional<std::int64_t> LoadCosts::compute_us(std::int64_t first_token,
                                                  std::int64_t tokens) const {
  if (!prefill_us_per_token_.known()) return std::nullopt;
  const double middle = static_cast<double>(first_token) + static_cast<double>(tokens) / 2;
  return static_cast<std::int64_t>(prefill_us_per_token_.at(middle) * static_cast<double>(tokens));
}

std::optional<std::int64_t> LoadCosts::load_us(Tier tier, std::int64_t pages) const {
  const FadingLine& line = loads_[static_cast<std::size_t>(tier)];
  if (!line.known()) return std::nullopt;
  return static_cast<std::int64_t>(line.at(static_cast<double>(pages)));
}

bool LoadCosts::may_doubt(Tier tier, std::int64_t now_us) const noexcept {
  return now_us >= asked_us_[static_cast<std::size_t>(tier)] + kDoubtAfterUs;
}

}  // namespace stemma
