// GrowthRate: how fast a counter grows, for those who want a number and not the counter.
//
// Thread:     one thread at a time.
// Memory:     three numbers.
// Cost:       a division.
// Not here:   what is counted.
#pragma once

#include <cstdint>

namespace stemma {

class GrowthRate {
 public:
  // A counter's growth a second, over the time since this was asked a second ago or longer; 0 the
  // first time. REQUIRES: neither is less than it was before.
  double per_second(std::int64_t count, std::int64_t now_us) {
    if (from_us_ < 0) {
      from_ = count;
      from_us_ = now_us;
    }
    if (now_us - from_us_ < kLeastUs) return rate_;
    rate_ = static_cast<double>(count - from_) * 1e6 / static_cast<double>(now_us - from_us_);
    from_ = count;
    from_us_ = now_us;
    return rate_;
  }

 private:
  static constexpr std::int64_t kLeastUs = 1'000'000;  // what is shorter says little

  std::int64_t from_ = 0;
  std::int64_t from_us_ = -1;
  double rate_ = 0;
};

}  // namespace stemma
