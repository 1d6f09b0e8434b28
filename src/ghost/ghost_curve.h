// GhostCurve: the hit rate that an lru cache of any capacity would have had, from watching one page
// in some twenty.
//
// In a prefix tree a page is used with all pages before it, so leaves-only lru is plain lru on
// pages if the pages of one request are stacked with its last page lowest; and a page hits in every
// cache that holds more pages than lie above it (Mattson et al., 1970). As in SHARDS (Waldspurger
// et al., FAST'15) only a sample is stacked, and a sampled page stands for pages_per_sample pages.
// Unlike there, what is sampled are uses and not pages: of each pages_per_sample pages that
// requests use one after another, one, drawn at random, is watched until it is used again. Each
// next use is seen with the same probability, so the estimate has no bias; but a page that all
// requests share is drawn anew each time instead of once and for all, and the pages of one request,
// which hit or miss together, are sampled in even numbers. On an hour of conversations and on
// agents' prompts at one in 20 that makes errors of at most 0.9 and 0.2 points where fixed pages
// make 3.6 and 9.7 (the largest of 60 seeds, at 0.5 to 30% of the different pages).
//
// Thread:     one thread a curve.
// Memory:     66 to 98 bytes a watch, all at construction; as many watches as samples fit into
//             capacity_pages_max pages and a quarter more. At one in 20: 4 to 6 bytes a page.
// Cost:       about 25 ns a page (ghost_bench), and 10 ns to hash one of 16 tokens: at 100,000
//             tokens a second of prefill, which is 160 us a page, 0.02% of the time.
// Not here:   other policies (ghost_cache), hashes of tokens (page_hashes).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/prng.h"
#include "ghost/ghost_request.h"
#include "ghost/watch_stack.h"
#include "stemma/result.h"

namespace stemma {

struct GhostCurveOptions {
  std::int64_t capacity_pages_max = 0;  // the curve's end; from 1 to kCapacityPagesMax
  std::int64_t pages_per_sample = 20;   // from 1 to kPagesPerSampleMax
  std::uint64_t seed = 0;
  // Pages of the longest request, if it is known: up to there nothing is allocated while watching.
  std::int64_t request_pages_max = 0;
};

class GhostCurve {
 public:
  static constexpr std::int64_t kCapacityPagesMax = (std::int64_t{1} << 29) - 1;
  static constexpr std::int64_t kPagesPerSampleMax = std::int64_t{1} << 20;

  // kInvalidArgument naming what is out of its range.
  static Status check(const GhostCurveOptions& options);

  // REQUIRES: check(options) is ok.
  explicit GhostCurve(const GhostCurveOptions& options);

  // A request looks up pages, given by the hashes of their prefixes in order, and leaves them
  // resident.
  void look_up(std::span<const std::int64_t> page_hashes) { use(page_hashes, /*counts=*/true); }

  // Pages become resident, or are used again, without having been looked up: a request's whole
  // chain when its output has filled more of them.
  void insert(std::span<const std::int64_t> page_hashes) { use(page_hashes, /*counts=*/false); }

  // One request after another, each ending before the next begins: look_up, and insert where it has
  // output.
  void feed(const GhostRequest& request);

  // Counts of the past weigh `share` of what they did: called in even intervals, the curve tells of
  // recent times. REQUIRES: 0 <= share <= 1.
  void fade(double share);

  // Hits over look-ups with room for `capacity_pages`, between 0 and 1; 0 before the first look-up.
  // Beyond capacity_pages_max as at it.
  double hit_rate(std::int64_t capacity_pages) const;

  // Looked up so far, as far as they still count.
  double lookup_pages() const noexcept { return lookup_pages_; }

  std::int64_t capacity_pages_max() const noexcept { return options_.capacity_pages_max; }
  std::size_t memory_bytes() const noexcept {
    return stack_.memory_bytes() + hits_by_rank_.size() * sizeof(double);
  }

 private:
  void use(std::span<const std::int64_t> page_hashes, bool counts);
  // Whether the next page used is the one of its stride.
  bool draws_next_page();

  GhostCurveOptions options_;
  WatchStack stack_;
  Prng random_;
  std::int64_t stride_left_pages_ = 0;
  std::int64_t until_sample_pages_ = 0;  // in this stride; negative once it was drawn
  std::vector<double> hits_by_rank_;     // of watched pages
  double lookup_pages_ = 0;
  std::vector<std::int64_t> seen_;   // of the present request: watched before it
  std::vector<std::int64_t> drawn_;  // of the present request: to be watched from it on
  std::vector<std::int64_t> text_;   // of the present request, with its output
};

}  // namespace stemma
