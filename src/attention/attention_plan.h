// AttentionPlan: how one batch's attention is cut into units of work for the threads.
//
// A unit is some rows of one request, some KV heads and all partitions that they see. Only where a
// batch has fewer units than threads can use is a decode row's walk over its partitions cut too,
// between sections; its parts are then merged in order. Rows of several requests that read the same
// pages are computed together as far as they do (SharedBegins), so that these are read once; each
// row's own part goes on from the sums that they left. All merges are one left fold over a row's
// partitions: how a batch is cut changes who computes what, never the result (I13).
//
// Thread:     the thread that plans.
// Memory:     arrays sized at construction; cut does not allocate.
// Cost:       O(units log units) a step, for all layers, and what SharedBegins costs.
// Not here:   the arithmetic (attention_kernel), scratch memory (cpu_attention).
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "attention/attention.h"
#include "attention/shared_begins.h"

namespace stemma {

struct AttentionUnit {
  std::int64_t cost = 0;       // about the keys walked, times the queries that walk them
  std::int32_t request = 0;    // whose pages are read
  std::int32_t first_row = 0;  // in the batch; of a run, in shared_rows()
  std::int32_t rows = 0;
  std::int32_t first_kv_head = 0;
  std::int32_t kv_heads = 0;
  std::int32_t first_partition = 0;
  std::int32_t partitions = 0;
  std::int32_t walk = -1;  // the split walk that this is a part of; −1 if it has all partitions
  bool run = false;        // rows of several requests
  // Of one row that runs have the begin of: where it stands in shared_rows(); else −1.
  std::int32_t place = -1;
};

// A decode row and KV head whose partitions several units share.
struct SplitWalk {
  std::int32_t row = 0;  // in the batch
  std::int32_t kv_head = 0;
  std::int32_t first_section = 0;
  std::int32_t sections = 0;
  std::int32_t place = -1;  // as of its units
};

class AttentionPlan {
 public:
  AttentionPlan(const AttentionShape& shape, const AttentionLimits& limits, int threads);

  // Only rows that see at most `keys_max` keys are cut; the others are no part of the plan.
  // REQUIRES: the batch is within the limits; every row has a page.
  void cut(const KvBatch& batch, std::int64_t keys_max = std::numeric_limits<std::int64_t>::max());

  // What is computed one after another: each level needs the sums of those before it. The last one
  // has all that rows have for themselves.
  std::int64_t levels() const noexcept { return static_cast<std::int64_t>(level_ends_.size()); }
  // The most costly first.
  std::span<const AttentionUnit> units(std::int64_t level) const;
  // Rows that runs compute together, by place.
  std::span<const std::int32_t> shared_rows() const noexcept { return shared_.rows(); }
  std::span<const SplitWalk> walks() const noexcept { return walks_; }

  // The most of each that any batch within the limits gives.
  std::int64_t walks_max() const noexcept { return walks_max_; }
  std::int64_t sections_max() const noexcept { return sections_max_; }
  std::int64_t shared_rows_max() const noexcept { return shares_ ? limits_.requests_max : 0; }
  // Queries (rows × query heads) of one unit, and of one of its KV heads.
  std::int64_t unit_queries_max() const noexcept;
  std::int64_t tile_queries_max() const noexcept;

 private:
  // Rows of one request that are computed together.
  struct Tile {
    std::int32_t request = 0;
    std::int32_t first_row = 0;
    std::int32_t rows = 0;
    std::int64_t first_partition = 0;
    std::int64_t keys = 0;  // from there up to the last row's position
    std::int64_t cost = 0;  // of one KV head
    bool run = false;
    std::int32_t place = -1;
  };

  std::int64_t queries_of(const Tile& tile) const { return tile.rows * group_; }
  void cut_runs();
  void add_run(const SharedRun& run);
  void add_rows(const KvBatch& batch, std::int64_t keys_max);
  void end_level();
  std::int64_t heads_together(std::int64_t queries, std::int64_t wanted) const;
  void cut_tile(const Tile& tile, std::int64_t level_cost);
  void split_walks(const Tile& tile, std::int64_t unit_cost);

  AttentionShape shape_;
  AttentionLimits limits_;
  std::int64_t threads_;
  std::int64_t group_;      // query heads of one KV head
  std::int64_t tile_rows_;  // the most rows of a tile
  std::int64_t walks_max_;
  std::int64_t section_;  // partitions of one
  std::int64_t sections_max_;
  bool shares_;  // whether runs are looked for
  SharedBegins shared_;
  std::vector<Tile> tiles_;               // of the level that is being cut
  std::vector<std::int32_t> level_ends_;  // in units_
  std::vector<AttentionUnit> units_;
  std::vector<SplitWalk> walks_;
};

}  // namespace stemma
