// LruDuel: whether to trust what was learned, or to drop the least recently used page for a while.
//
// Lru takes over on either of two signs. It would have found clearly more of late: a cache that
// always drops the least recently used page holds those used most recently, so what it would have
// found is known without running it. Or less than a sixth of what is usual is found at all: what
// was learned is of another traffic, and lru forgets that soonest. After a while the other has a
// new chance, later each time it loses to lru.
//
// Thread:     engine thread only.
// Memory:     a few numbers.
// Cost:       O(1).
// Not here:   which pages lru would hold (age_slots).
#pragma once

#include <algorithm>
#include <cstdint>

namespace stemma {

class LruDuel {
 public:
  static constexpr std::int64_t kRequestsPerRound = 64;

  // A request asked for so many pages.
  void ask(std::int64_t pages) noexcept { round_.asked_pages += pages; }
  // One of them was known: whether it was found, and whether lru would have found it.
  void count(bool found, bool by_lru) noexcept {
    round_.found_pages += found ? 1 : 0;
    round_.by_lru_pages += by_lru ? 1 : 0;
  }

  // A round of requests is over.
  void end_round() noexcept {
    const bool collapsed =
        rounds_ >= kMemoryRounds &&
        kCollapse * round_.found_pages * late_.asked_pages < late_.found_pages * round_.asked_pages;
    late_.fade_and_add(round_);
    round_ = {};
    if (lru_rounds_left_ > 0) {
      if (--lru_rounds_left_ == 0) restart();
      return;
    }
    ++rounds_;
    const std::int64_t enough = late_.found_pages + late_.found_pages / kMarginShare + kMarginPages;
    if (late_.by_lru_pages > enough) {
      lru_rounds_left_ = penalty_rounds_;
      penalty_rounds_ = std::min(penalty_rounds_ * 2, kPenaltyMax);
    } else if (collapsed) {
      lru_rounds_left_ = kPenaltyMin;
    } else if (rounds_ % kPenaltyMin == 0) {
      penalty_rounds_ = std::max(penalty_rounds_ / 2, kPenaltyMin);
    }
  }

  bool lru_leads() const noexcept { return lru_rounds_left_ > 0; }

 private:
  static constexpr std::int64_t kMemoryRounds = 8;
  static constexpr std::int64_t kMarginShare = 50;   // lru must be ahead by a fiftieth,
  static constexpr std::int64_t kMarginPages = 256;  // and by this many pages
  static constexpr std::int64_t kCollapse = 6;
  static constexpr std::int64_t kPenaltyMin = 16;  // rounds
  static constexpr std::int64_t kPenaltyMax = 256;

  struct Pages {
    std::int64_t asked_pages = 0;
    std::int64_t found_pages = 0;
    std::int64_t by_lru_pages = 0;
    void fade_and_add(const Pages& round) noexcept {
      asked_pages += round.asked_pages - asked_pages / kMemoryRounds;
      found_pages += round.found_pages - found_pages / kMemoryRounds;
      by_lru_pages += round.by_lru_pages - by_lru_pages / kMemoryRounds;
    }
  };

  void restart() noexcept {
    late_ = {};
    rounds_ = 0;
  }

  Pages round_;              // of the present round
  Pages late_;               // of rounds of late, fading
  std::int64_t rounds_ = 0;  // since lru led last
  std::int64_t lru_rounds_left_ = 0;
  std::int64_t penalty_rounds_ = kPenaltyMin;
};

}  // namespace stemma
