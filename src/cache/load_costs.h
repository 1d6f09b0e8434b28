// LoadCosts: what computing and what loading cost here, learned while running, so that neither is
// done where the other is cheaper.
//
// Both are straight lines fitted to what was seen, older sightings fading: the time of a prefill
// token over the tokens before it, and the time of a load over its pages.
//
// Thread:     engine thread only.
// Memory:     a few numbers a tier.
// Cost:       a few multiplications.
// Not here:   the decision (promotions), clocks (whoever measures).
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "stemma/page_store.h"

namespace stemma {

// y = at_zero + slope × x by least squares, a sighting's weight falling by kFading with each later
// one. Never below zero.
class FadingLine {
 public:
  // What is believed as long as all sightings have one x.
  enum class Alone : std::uint8_t { kFlat, kThroughZero };
  explicit FadingLine(Alone alone) : alone_(alone) {}

  void add(double x, double y) noexcept;
  bool known() const noexcept { return weight_ > 0; }
  // REQUIRES: known().
  double at(double x) const noexcept;
  // What it was given so far tells little from now on: the next sighting outweighs all of it.
  void doubt() noexcept;

 private:
  static constexpr double kFading = 0.95;
  static constexpr double kDoubtedWeight = 0.25;
  Alone alone_;
  double weight_ = 0;
  double x_ = 0;
  double y_ = 0;
  double xx_ = 0;
  double xy_ = 0;
};

class LoadCosts {
 public:
  // A step computed prompt tokens, `first_token` … of their texts on average, in `us`.
  void computed(std::int64_t first_token, std::int64_t tokens, std::int64_t us) noexcept;
  // Pages came up from `tier` in `us`.
  void loaded(Tier tier, std::int64_t pages, std::int64_t us) noexcept;

  // nullopt as long as nothing of the kind was seen.
  std::optional<std::int64_t> compute_us(std::int64_t first_token, std::int64_t tokens) const;
  std::optional<std::int64_t> load_us(Tier tier, std::int64_t pages) const;

  // Pages of the tier are loaded. Times are of one clock.
  void asked(Tier tier, std::int64_t now_us) noexcept {
    asked_us_[static_cast<std::size_t>(tier)] = now_us;
  }
  // Whether to load all the same what would take too long by what was seen: where none of the
  // tier's pages were loaded for kDoubtAfterUs. Only what is loaded teaches what loading costs, and
  // a tier that was slow once may be fast by now. Who does so says asked and doubt.
  bool may_doubt(Tier tier, std::int64_t now_us) const noexcept;
  // What is loaded now tells more of the tier than all that was seen so far.
  void doubt(Tier tier) noexcept { loads_[static_cast<std::size_t>(tier)].doubt(); }

 private:
  static constexpr std::int64_t kDoubtAfterUs = 10'000'000;
  static constexpr auto kLoadAlone = FadingLine::Alone::kThroughZero;
  // Over the tokens before.
  FadingLine prefill_us_per_token_{FadingLine::Alone::kFlat};
  // By tier: us over pages.
  std::array<FadingLine, 4> loads_ = {FadingLine(kLoadAlone), FadingLine(kLoadAlone),
                                      FadingLine(kLoadAlone), FadingLine(kLoadAlone)};
  std::array<std::int64_t, 4> asked_us_ = {};  // by tier
};

}  // namespace stemma
