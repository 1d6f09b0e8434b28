// GhostPanel: what other capacities and other policies would have given: an lru curve, and ghosts
// of named policies at chosen capacities.
//
// lru is read from the curve. Another policy is the curve plus what the policy's ghost hits more,
// or less, than an lru ghost of the same capacity and the same sample: what is peculiar to the
// sample is in both ghosts alike. What is left is how the policy takes to a thinned tree. Largest
// errors against full replay of an hour of conversations and of agents' prompts, at one page in 20,
// of 20 seeds and 0.5 to 30% of the different pages, in points:
//
//   lru 0.9 and 0.2      slru 0.9 and 0.3      gdsf 1.1 and 1.2
//   hazard 1.6 and 0.2   tlru 1.1 and 2.1      s3fifo 1.7 and 1.4
//   fifo 2.6 and 0.2     lfu 3.1 and 6.4       mru 3.2 and 3.7
//   filo 1.6 and 5.4
//
// The last four go by nodes, of which a thinned tree has others (docs/EVICTION.md). Where pages are
// large, 2 MiB for 16 tokens of a model of 8 billion weights, there is room to watch every page: a
// ghost is then exact and speaks for itself, lru's too, for 70 bytes and some 60 ns a page (hazard:
// 600 bytes).
//
// Thread:     one thread a panel.
// Memory:     a curve, and for each capacity one ghost more than there are policies.
// Cost:       about 25 ns a page, and at one in 20 some 15 ns a page and ghost more (ghost_bench).
// Not here:   sentences (ghost_advice), tiers: a lower one of lru holds the pages from its upper
//             neighbours' capacity on, and its hits are the difference of two points of the curve.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ghost/ghost_cache.h"
#include "ghost/ghost_curve.h"

namespace stemma {

struct GhostPanelOptions {
  GhostCurveOptions curve = {};
  std::vector<std::string> policies = {};     // beside lru
  std::vector<std::int64_t> capacities = {};  // in pages, at which they are watched
};

class GhostPanel {
 public:
  // kNotFound for an unknown policy, listing the known ones; kInvalidArgument for what is out of
  // its range.
  static Result<std::unique_ptr<GhostPanel>> open(const GhostPanelOptions& options);

  // As of GhostCache, look_up and insert with what they require.
  void feed(const GhostRequest& request);
  void look_up(std::span<const std::int64_t> page_hashes);
  void insert(std::span<const std::int64_t> page_hashes);
  void fade(double share);

  // Of lru at any capacity, of the others at those that are watched; nullopt elsewhere.
  std::optional<double> try_hit_rate(std::string_view policy, std::int64_t capacity_pages) const;

  const GhostCurve& curve() const noexcept { return curve_; }

  explicit GhostPanel(const GhostCurveOptions& options)
      : watches_every_page_(options.pages_per_sample == 1), curve_(options) {}

 private:
  struct Lane {
    std::string policy;
    std::int64_t capacity_pages = 0;
    std::unique_ptr<GhostCache> ghost;
  };

  Status add_lane(const GhostPanelOptions& options, const std::string& policy,
                  std::int64_t capacity_pages);
  const GhostCache* find_or_null(std::string_view policy, std::int64_t capacity_pages) const;

  bool watches_every_page_;
  GhostCurve curve_;
  std::vector<Lane> lanes_;
};

}  // namespace stemma
