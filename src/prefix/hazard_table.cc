// Exposure is counted in two parts. Pages that left add to the departures of the bucket they left
// in; pages that are still known lie in the slots. A page that is or was in bucket b passed all
// buckets before it whole, and b by half: so exposure is a sum from the oldest bucket down, done
// once a rebuild.
#include "prefix/hazard_table.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace stemma {

namespace {

// Observations, in requests, that an estimate is worth before anything was seen.
constexpr double kPriorOfAll = 5;    // a bucket of all classes together, against 1/age
constexpr double kPriorLevel = 2;    // a class's level, against the class above
constexpr double kPriorBucket = 1;   // a bucket of a class, against the class above at that level
constexpr double kPriorFirst = 1.2;  // uses a second below the first edge
constexpr int kFadeShift = 8;

}  // namespace

HazardTable::HazardTable()
    : uses_(std::make_unique<std::array<Counts, PageClass::kClasses>>()),
      departures_(std::make_unique<std::array<Counts, PageClass::kClasses>>()),
      present_(std::make_unique<std::array<PerClass, AgeBuckets::kBuckets>>()),
      seen_(std::make_unique<std::array<Seen, PageClass::kClasses>>()),
      index_(std::make_unique<Classes>()) {
  for (int bucket = 0; bucket < AgeBuckets::kBuckets; ++bucket) {
    width_s_[static_cast<std::size_t>(bucket)] = AgeBuckets::width_s(bucket);
  }
  rebuild(0);
}

void HazardTable::depart(const Departure& departure) {
  slots_.remove(departure.page_class, departure.weight, departure.pages, departure.used_us);
  const std::int64_t age_us = std::max<std::int64_t>(departure.left_us - departure.used_us, 0);
  const auto bucket = static_cast<std::size_t>(AgeBuckets::of(age_us));
  const auto page_class = static_cast<std::size_t>(departure.page_class);
  const std::int64_t weight = departure.weight * departure.pages;
  (*departures_)[page_class][bucket] += weight;
  if (departure.used_again) (*uses_)[page_class][bucket] += weight;
}

bool HazardTable::count_request(std::int64_t now_us) {
  if (++requests_ % kRequestsPerRebuild != 0) return false;
  fade();
  slots_.merge(now_us);
  rebuild(now_us);
  return true;
}

double HazardTable::interpolate(const Classes& curves, int page_class,
                                std::int64_t age_us) noexcept {
  const Curve& curve = curves[static_cast<std::size_t>(page_class)];
  const int bucket = AgeBuckets::of(age_us);
  const auto at = static_cast<std::size_t>(bucket);
  if (bucket + 1 >= AgeBuckets::kBuckets) return curve[at];
  const double begin_s = AgeBuckets::begin_s(bucket);
  const double share = (static_cast<double>(age_us) / 1e6 - begin_s) / AgeBuckets::width_s(bucket);
  return curve[at] + (curve[at + 1] - curve[at]) * std::clamp(share, 0.0, 1.0);
}

void HazardTable::fade() noexcept {
  for (auto* counts : {uses_.get(), departures_.get()}) {
    for (Counts& of_class : *counts) {
      for (std::int64_t& count : of_class) count -= count >> kFadeShift;
    }
  }
}

void HazardTable::rebuild(std::int64_t now_us) {
  gather(now_us);
  const Curve all = prior_shrunk(sum(0, PageClass::kClasses));
  set_index(PageClass::kClasses, all);
  set_index(PageClass::kLast, shrunk((*seen_)[PageClass::kLast], all));
  rebuild_shared(all);
  rebuild_chat(all);
}

// Uses and exposure of each class.
void HazardTable::gather(std::int64_t now_us) {
  *present_ = {};
  for (int slot = 0; slot < slots_.slots(); ++slot) {
    const std::int64_t age_us = now_us - slots_.middle_us(slot, now_us);
    auto& of_age = (*present_)[static_cast<std::size_t>(AgeBuckets::of(age_us))];
    const auto weights = slots_.weights(slot);
    for (std::size_t at = 0; at < of_age.size(); ++at) of_age[at] += weights[at];
  }
  for (std::size_t at = 0; at < seen_->size(); ++at) {
    Seen& seen = (*seen_)[at];
    std::int64_t passed = 0;
    for (std::size_t bucket = AgeBuckets::kBuckets; bucket-- > 0;) {
      const std::int64_t here = (*departures_)[at][bucket] + (*present_)[bucket][at];
      const double pages = static_cast<double>(passed) + static_cast<double>(here) / 2;
      seen.exposure_s[bucket] = pages / kWeightOne * width_s_[bucket];
      seen.uses[bucket] = static_cast<double>((*uses_)[at][bucket]) / kWeightOne;
      passed += here;
    }
    seen.anything = passed > 0;
  }
}

void HazardTable::rebuild_shared(const Curve& above) {
  const Curve shared = shrunk(sum(PageClass::kShared, PageClass::kSharedGrades), above);
  for (int grade = 0; grade < PageClass::kSharedGrades; ++grade) {
    const int page_class = PageClass::kShared + grade;
    set_index(page_class, shrunk((*seen_)[static_cast<std::size_t>(page_class)], shared));
  }
}

// Down the levels of PageClass::chat: each a run of classes cut into as many equal runs.
void HazardTable::rebuild_chat(const Curve& above) {
  constexpr std::array<int, 4> kParts = {PageClass::kTurnGrades, PageClass::kAges,
                                         PageClass::kNewTextGrades, PageClass::kOutputGrades};
  const int classes = PageClass::kClasses - PageClass::kChat;
  std::array<Curve, kParts.size() + 1> curves;
  int unseen = -1;  // a class of the present run of outputs of which nothing was seen
  curves[0] = shrunk(sum(PageClass::kChat, classes), above);
  for (int chat = 0; chat < classes; ++chat) {
    int run = classes;
    for (std::size_t level = 0; level < kParts.size(); ++level) {
      run /= kParts[level];
      if (chat % run != 0) continue;
      curves[level + 1] = shrunk(sum(PageClass::kChat + chat, run), curves[level]);
      if (run > 1) unseen = -1;
    }
    const int page_class = PageClass::kChat + chat;
    const bool seen = (*seen_)[static_cast<std::size_t>(page_class)].anything;
    if (!seen && unseen >= 0) {
      (*index_)[static_cast<std::size_t>(page_class)] = (*index_)[static_cast<std::size_t>(unseen)];
    } else {
      set_index(page_class, curves.back());
    }
    if (!seen) unseen = page_class;
  }
}

void HazardTable::Seen::add(const Seen& other) noexcept {
  if (!other.anything) return;
  anything = true;
  for (std::size_t bucket = 0; bucket < uses.size(); ++bucket) {
    uses[bucket] += other.uses[bucket];
    exposure_s[bucket] += other.exposure_s[bucket];
  }
}

HazardTable::Seen HazardTable::sum(int first, int classes) const noexcept {
  Seen total;
  for (int page_class = first; page_class < first + classes; ++page_class) {
    total.add((*seen_)[static_cast<std::size_t>(page_class)]);
  }
  return total;
}

// Where nothing was seen, a hazard falls as one over the age.
HazardTable::Curve HazardTable::prior_shrunk(const Seen& seen) const noexcept {
  Curve hazard;
  double prior = kPriorFirst;
  for (std::size_t bucket = 0; bucket < hazard.size(); ++bucket) {
    if (bucket > 1) prior = hazard[bucket - 1] * width_s_[bucket - 1] / width_s_[bucket];
    hazard[bucket] =
        (seen.uses[bucket] + kPriorOfAll) / (seen.exposure_s[bucket] + kPriorOfAll / prior);
  }
  return hazard;
}

// Of a class of which nothing was seen: the class above.
HazardTable::Curve HazardTable::shrunk(const Seen& seen, const Curve& above) const noexcept {
  if (!seen.anything) return above;
  double uses = kPriorLevel;
  double expected = kPriorLevel;
  for (std::size_t bucket = 0; bucket < above.size(); ++bucket) {
    uses += seen.uses[bucket];
    expected += seen.exposure_s[bucket] * above[bucket];
  }
  const double level = uses / expected;
  Curve hazard;
  for (std::size_t bucket = 0; bucket < above.size(); ++bucket) {
    hazard[bucket] = (seen.uses[bucket] + kPriorBucket) /
                     (seen.exposure_s[bucket] + kPriorBucket / (above[bucket] * level));
  }
  return hazard;
}

// From the oldest bucket down, stretches of ages are joined as long as going on pays better than
// stopping: what is left at the front is the best stretch to keep a page for, from each bucket on.
void HazardTable::set_index(int page_class, const Curve& hazard) noexcept {
  struct Stretch {
    double uses = 0;      // expected in it
    double held_s = 0;    // expected in it
    double survival = 1;  // still unused at its end
    double ratio() const noexcept { return uses / held_s; }
  };
  std::array<Stretch, AgeBuckets::kBuckets> ahead;  // the nearest last
  std::size_t stretches = 0;
  Curve& index = (*index_)[static_cast<std::size_t>(page_class)];
  for (std::size_t bucket = hazard.size(); bucket-- > 0;) {
    Stretch here;
    here.survival = std::exp(-hazard[bucket] * width_s_[bucket]);
    here.uses = 1 - here.survival;
    here.held_s = here.uses / hazard[bucket];
    while (stretches > 0 && ahead[stretches - 1].ratio() > here.ratio()) {
      const Stretch& next = ahead[--stretches];
      here.uses += here.survival * next.uses;
      here.held_s += here.survival * next.held_s;
      here.survival *= next.survival;
    }
    ahead[stretches++] = here;
    index[bucket] = here.ratio();
  }
}

}  // namespace stemma
