// The batch's cost is cut into about kUnitsPerThread units a thread: enough for the threads to end
// together, few enough for a unit to walk several KV heads of the same tokens. A walk is split only
// if one head of it alone costs more than kSplitShare of a thread's part; since all walks together
// cost what the batch costs, there are at most threads / kSplitShare of them, and their scratch is
// bounded. With as many KV heads as that, no head alone costs so much.
#include "attention/attention_plan.h"

#include <algorithm>
#include <bit>

#include "attention/attention_kernel.h"
#include "base/check.h"

namespace stemma {

namespace {

constexpr std::int64_t kUnitsPerThread = 4;
constexpr std::int64_t kWalksPerThread = 2;  // 1 / kSplitShare
// Rows that runs may have, for each request: as many levels, if all requests share all of them.
constexpr std::int64_t kRunRowsPerRequest = 8;
// Packing a row of K and V costs about as much as multiplying it with this many queries.
constexpr std::int64_t kPackingQueries = 16;

std::int32_t narrow(std::int64_t value) {
  return static_cast<std::int32_t>(value);
}

}  // namespace

// Latent rows are bound by multiplications already, so nothing is gained by reading them once; what
// a window of a few thousand tokens leaves in common is seldom worth it.
AttentionPlan::AttentionPlan(const AttentionShape& shape, const AttentionLimits& limits,
                             int threads)
    : shape_(shape),
      limits_(limits),
      threads_(threads),
      group_(shape.query_heads / shape.kv_heads),
      tile_rows_(std::max<std::int64_t>(1, kTileQueries / group_)),
      walks_max_(shape.kv_heads < kWalksPerThread * threads ? kWalksPerThread * threads : 0),
      section_(section_partitions(shape)),
      sections_max_(ceil_div(limits.context_tokens_max, section_ * kPartitionKeys)),
      shares_(shape.latent_dim == 0 && shape.window_tokens == 0),
      shared_(limits.requests_max, shares_ ? kRunRowsPerRequest * limits.requests_max : 0,
              kPartitionKeys) {
  const std::int64_t run_tiles_max = shares_ ? kRunRowsPerRequest * limits.requests_max : 0;
  const std::int64_t tiles_max = limits.rows_max / tile_rows_ + limits.requests_max + run_tiles_max;
  // A split walk has at most one unit more than its cost in units.
  const std::int64_t parts_max = kUnitsPerThread * threads_ + walks_max_;
  tiles_.reserve(static_cast<std::size_t>(tiles_max));
  units_.reserve(static_cast<std::size_t>(tiles_max * shape.kv_heads + parts_max));
  walks_.reserve(static_cast<std::size_t>(walks_max_));
  level_ends_.reserve(static_cast<std::size_t>(kRunRowsPerRequest * limits.requests_max + 1));
}

std::int64_t AttentionPlan::tile_queries_max() const noexcept {
  return tile_rows_ * group_;
}

std::int64_t AttentionPlan::unit_queries_max() const noexcept {
  return std::max(tile_queries_max(), shape_.query_heads);
}

std::span<const AttentionUnit> AttentionPlan::units(std::int64_t level) const {
  const auto i = static_cast<std::size_t>(level);
  const std::int32_t begin = level == 0 ? 0 : level_ends_[i - 1];
  return std::span(units_).subspan(static_cast<std::size_t>(begin),
                                   static_cast<std::size_t>(level_ends_[i] - begin));
}

void AttentionPlan::cut(const KvBatch& batch, std::int64_t keys_max) {
  STEMMA_CHECK_LE(batch.rows(), limits_.rows_max);
  STEMMA_CHECK_LE(shape_.table(batch).requests(), limits_.requests_max);
  units_.clear();
  walks_.clear();
  level_ends_.clear();
  if (shares_) {
    shared_.find(batch, keys_max);
    cut_runs();
  }
  add_rows(batch, keys_max);
  end_level();
}

void AttentionPlan::cut_runs() {
  std::int32_t level = 0;
  for (const SharedRun& run : shared_.runs()) {
    if (run.level != level) end_level();
    level = run.level;
    add_run(run);
  }
  if (!shared_.runs().empty()) end_level();
}

// Rows of a run are cut where they fill a tile, and where there are fewer KV heads than threads.
void AttentionPlan::add_run(const SharedRun& run) {
  const std::int64_t parts = ceil_div(threads_, shape_.kv_heads);
  const std::int64_t rows_max = std::min(tile_rows_, ceil_div<std::int64_t>(run.rows, parts));
  for (std::int64_t row = 0; row < run.rows; row += rows_max) {
    Tile tile;
    tile.first_row = narrow(run.first_row + row);
    tile.request = shared_.request_of(tile.first_row);
    tile.rows = narrow(std::min(rows_max, run.rows - row));
    tile.first_partition = run.first_partition;
    tile.keys = run.partitions * kPartitionKeys;
    tile.cost = tile.keys * (queries_of(tile) + kPackingQueries);
    tile.run = true;
    tiles_.push_back(tile);
  }
}

// Tiles become units.
void AttentionPlan::end_level() {
  const auto begin = static_cast<std::ptrdiff_t>(units_.size());
  std::int64_t level_cost = 0;
  for (const Tile& tile : tiles_) level_cost += tile.cost * shape_.kv_heads;
  for (const Tile& tile : tiles_) cut_tile(tile, level_cost);
  tiles_.clear();
  std::sort(units_.begin() + begin, units_.end(),
            [](const AttentionUnit& a, const AttentionUnit& b) {
              return a.cost != b.cost ? a.cost > b.cost : a.first_row < b.first_row;
            });
  level_ends_.push_back(narrow(static_cast<std::int64_t>(units_.size())));
}

void AttentionPlan::add_rows(const KvBatch& batch, std::int64_t keys_max) {
  const PageTableView& table = shape_.table(batch);
  for (std::int64_t request = 0; request < table.requests(); ++request) {
    const std::int64_t begin = batch.row_indptr[static_cast<std::size_t>(request)];
    const std::int64_t end = batch.row_indptr[static_cast<std::size_t>(request + 1)];
    const std::int64_t tokens = table.tokens_of(request);
    STEMMA_CHECK_LE(tokens, limits_.context_tokens_max);
    STEMMA_CHECK_LE(end - begin, tokens);
    const std::int64_t rows_beyond =
        std::min(std::max<std::int64_t>(0, tokens - keys_max), end - begin);
    const std::int64_t cut_end = end - rows_beyond;
    for (std::int64_t row = begin; row < cut_end; row += tile_rows_) {
      Tile tile;
      tile.request = narrow(request);
      tile.first_row = narrow(row);
      tile.rows = narrow(std::min(tile_rows_, cut_end - row));
      const std::int64_t position = tokens - (end - row);
      tile.first_partition = shape_.first_seen(position) / kPartitionKeys;
      if (shares_) {
        const SharedBegins::Share& share = shared_.share_of(request);
        tile.first_partition = std::max<std::int64_t>(tile.first_partition, share.partitions);
        tile.place = share.place;
      }
      tile.keys = position + tile.rows - tile.first_partition * kPartitionKeys;
      tile.cost = tile.keys * (queries_of(tile) + kPackingQueries);
      tiles_.push_back(tile);
    }
  }
}

// KV heads of one unit: as many as it is meant to cost, and as its scratch has room for. Few
// queries meet two or four heads at once, so that fewer than all are a power of two.
std::int64_t AttentionPlan::heads_together(std::int64_t queries, std::int64_t wanted) const {
  const std::int64_t fit = std::min(wanted, unit_queries_max() / queries);
  if (fit >= shape_.kv_heads) return shape_.kv_heads;
  return static_cast<std::int64_t>(
      std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(fit, 1))));
}

void AttentionPlan::cut_tile(const Tile& tile, std::int64_t level_cost) {
  const std::int64_t units_wanted = threads_ == 1 ? 1 : kUnitsPerThread * threads_;
  const std::int64_t unit_cost = std::max<std::int64_t>(1, level_cost / units_wanted);
  const bool long_walk = tile.cost * kWalksPerThread * threads_ > level_cost;
  if (tile.rows == 1 && !tile.run && threads_ > 1 && long_walk &&
      tile.keys > section_ * kPartitionKeys) {
    split_walks(tile, unit_cost);
    return;
  }
  const std::int64_t heads_max = heads_together(queries_of(tile), unit_cost / tile.cost);
  for (std::int64_t head = 0; head < shape_.kv_heads; head += heads_max) {
    const std::int64_t heads = std::min(heads_max, shape_.kv_heads - head);
    AttentionUnit unit;
    unit.cost = tile.cost * heads;
    unit.request = tile.request;
    unit.first_row = tile.first_row;
    unit.rows = tile.rows;
    unit.first_kv_head = narrow(head);
    unit.kv_heads = narrow(heads);
    unit.first_partition = narrow(tile.first_partition);
    unit.partitions = narrow(ceil_div(tile.keys, kPartitionKeys));
    unit.run = tile.run;
    unit.place = tile.place;
    units_.push_back(unit);
  }
}

void AttentionPlan::split_walks(const Tile& tile, std::int64_t unit_cost) {
  const std::int64_t partitions = ceil_div(tile.keys, kPartitionKeys);
  const std::int64_t sections = ceil_div(partitions, section_);
  const std::int64_t parts = std::min(sections, ceil_div(tile.cost, unit_cost));
  for (std::int64_t head = 0; head < shape_.kv_heads; ++head) {
    const std::int64_t walk = static_cast<std::int64_t>(walks_.size());
    STEMMA_CHECK_LT(walk, walks_max_);
    const std::int64_t first_section = tile.first_partition / section_;
    walks_.push_back(
        {tile.first_row, narrow(head), narrow(first_section), narrow(sections), tile.place});
    for (std::int64_t part = 0; part < parts; ++part) {
      AttentionUnit unit;
      unit.cost = tile.cost / parts;
      unit.request = tile.request;
      unit.first_row = tile.first_row;
      unit.rows = 1;
      unit.first_kv_head = narrow(head);
      unit.kv_heads = 1;
      const std::int64_t begin = sections * part / parts * section_;
      const std::int64_t end = std::min(partitions, sections * (part + 1) / parts * section_);
      unit.first_partition = narrow(tile.first_partition + begin);
      unit.partitions = narrow(end - begin);
      unit.walk = narrow(walk);
      units_.push_back(unit);
    }
  }
}

}  // namespace stemma
