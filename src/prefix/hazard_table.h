// HazardTable: what keeping a page is worth, by its class and its age, learned from what is used
// again and what is not.
//
// For each class and bucket of ages: a hazard, uses a second of pages of that age. It is counted
// in integers (the pages of a class that one request used weigh one together, so that long
// requests do not outvote short ones) and shrunk towards the hazard of the class above it (answer
// length within new text within page age within turn within chat; shared; all), first in level,
// then bucket by bucket. What was counted fades: a 256th with each rebuild.
//
// From the hazards comes the index: the best ratio, over all ages at which one might stop keeping
// the page, of expected uses to expected seconds held (a Gittins index). It answers for the whole
// future: a page whose use is due in a minute may be worth more than one that was used just now.
//
// Thread:     engine thread only.
// Memory:     0.7 MB, and that of AgeSlots.
// Cost:       arrive, depart and index O(1) to O(log slots); a rebuild, every 128 requests, about
//             0.2 ms.
// Not here:   which page is of which class (hazard_policy).
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "prefix/age_buckets.h"
#include "prefix/age_slots.h"
#include "prefix/page_class.h"

namespace stemma {

class HazardTable {
 public:
  // What a request's pages of one class weigh together.
  static constexpr std::int64_t kWeightOne = 1 << 16;
  static constexpr std::int64_t kRequestsPerRebuild = 128;

  HazardTable();

  // What each of `pages` pages of a class that one request used weighs.
  static std::int64_t weight_of_each(std::int64_t pages) noexcept {
    return pages >= kWeightOne ? 1 : kWeightOne / pages;
  }

  // Pages of a class were used at now_us, and are known from now on.
  void arrive(int page_class, std::int64_t weight, std::int64_t pages, std::int64_t now_us) {
    slots_.add(page_class, weight, pages, now_us);
  }

  struct Departure {
    int page_class = 0;
    std::int64_t weight = 0;
    std::int64_t used_us = 0;  // when it arrived
    std::int64_t left_us = 0;  // when it was used again, or forgotten
    bool used_again = false;
    std::int64_t pages = 0;  // so many alike
    bool alike(const Departure& other) const noexcept {
      return page_class == other.page_class && weight == other.weight && used_us == other.used_us &&
             left_us == other.left_us && used_again == other.used_again;
    }
  };
  // Pages left their class. REQUIRES: they arrived so.
  void depart(const Departure& departure);

  // One more request ended. Rebuilds the index when it is time, and says whether it did.
  bool count_request(std::int64_t now_us);

  // The worth of a page of this class that was used age_us ago: uses a second.
  double index(int page_class, std::int64_t age_us) const noexcept {
    return interpolate(*index_, page_class, age_us);
  }
  // Of a page of which nothing is known yet.
  double index_of_unknown(std::int64_t age_us) const noexcept {
    return index(PageClass::kClasses, age_us);
  }

  // See AgeSlots::used_since_us.
  std::int64_t used_since_us(std::int64_t pages) const noexcept {
    return slots_.used_since_us(pages);
  }

 private:
  using Counts = std::array<std::int64_t, AgeBuckets::kBuckets>;
  using PerClass = std::array<std::int64_t, PageClass::kClasses>;
  using Curve = std::array<double, AgeBuckets::kBuckets>;
  struct Seen {
    Curve uses = {};        // in weights of one request
    Curve exposure_s = {};  // the same, times seconds at risk
    bool anything = false;
    void add(const Seen& other) noexcept;
  };
  using Classes = std::array<Curve, std::size_t{PageClass::kClasses} + 1>;

  static double interpolate(const Classes& curves, int page_class, std::int64_t age_us) noexcept;
  void fade() noexcept;
  void rebuild(std::int64_t now_us);
  void gather(std::int64_t now_us);
  void rebuild_shared(const Curve& above);
  void rebuild_chat(const Curve& above);
  Seen sum(int first, int classes) const noexcept;
  Curve prior_shrunk(const Seen& seen) const noexcept;
  Curve shrunk(const Seen& seen, const Curve& above) const noexcept;
  void set_index(int page_class, const Curve& hazard) noexcept;

  AgeSlots slots_;
  std::int64_t requests_ = 0;
  Curve width_s_ = {};
  // The last of each is of all classes together.
  std::unique_ptr<std::array<Counts, PageClass::kClasses>> uses_;
  std::unique_ptr<std::array<Counts, PageClass::kClasses>> departures_;
  std::unique_ptr<std::array<PerClass, AgeBuckets::kBuckets>> present_;  // scratch of gather
  std::unique_ptr<std::array<Seen, PageClass::kClasses>> seen_;          // scratch of rebuild
  std::unique_ptr<Classes> index_;
};

}  // namespace stemma
