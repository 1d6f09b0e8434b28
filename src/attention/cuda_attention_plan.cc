#include "attention/cuda_attention_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "base/math.h"

namespace stemma {

namespace {

constexpr std::int64_t kPartitionKeys = kCudaTileKeys * kCudaPartitionTiles;
constexpr std::int64_t kImageUnit = 16;  // of offsets in an image

Error invalid(std::string detail) {
  return Error{ErrorCode::kInvalidArgument, std::move(detail), 0};
}

template <typename T>
std::int64_t array_bytes(std::int64_t count) {
  return round_up(count * static_cast<std::int64_t>(sizeof(T)), kImageUnit);
}

// Lays arrays behind one another, behind the header.
class ImageWriter {
 public:
  explicit ImageWriter(std::byte* image)
      : image_(image), size_bytes_(array_bytes<AttentionHeader>(1)) {}

  // Where it begins, in the units of a header.
  template <typename T>
  std::int32_t append(std::span<const T> values) {
    const std::int64_t at = size_bytes_;
    size_bytes_ += array_bytes<T>(static_cast<std::int64_t>(values.size()));
    if (!values.empty()) std::memcpy(image_ + at, values.data(), values.size_bytes());
    return static_cast<std::int32_t>(at / kImageUnit);
  }
  std::int64_t size_bytes() const { return size_bytes_; }

 private:
  std::byte* image_;
  std::int64_t size_bytes_;
};

// Teams take items in turn: the long ones first. What reads the same keys stays together.
void sort_items(std::span<AttentionItem> items) {
  std::sort(items.begin(), items.end(), [](const AttentionItem& a, const AttentionItem& b) {
    const std::int32_t tiles_a = a.end_tile - a.first_tile;
    const std::int32_t tiles_b = b.end_tile - b.first_tile;
    if (tiles_a != tiles_b) return tiles_a > tiles_b;
    if (a.table_begin != b.table_begin) return a.table_begin < b.table_begin;
    if (a.first_tile != b.first_tile) return a.first_tile < b.first_tile;
    return std::pair(a.first_row, a.first_pair) < std::pair(b.first_row, b.first_pair);
  });
}

}  // namespace

std::int32_t CudaAttentionPlan::Part::end_tile() const {
  return ceil_div(keys, kCudaTileKeys);
}

std::int32_t CudaAttentionPlan::Part::partitions() const {
  return ceil_div(end_tile(), kCudaPartitionTiles) - first_partition();
}

std::int64_t CudaAttentionPlan::sums_wanted(const AttentionLimits& limits) {
  return limits.rows_max * ceil_div(limits.context_tokens_max, kPartitionKeys);
}

std::int64_t CudaAttentionPlan::table_pages(const AttentionLimits& limits, std::int64_t page_size) {
  return limits.requests_max * ceil_div(limits.context_tokens_max, page_size);
}

CudaAttentionPlan::CudaAttentionPlan(const AttentionShape& shape, const CudaPlanLimits& limits)
    : shape_(shape),
      group_(static_cast<std::int32_t>(shape.query_heads / shape.kv_heads)),
      limits_(limits),
      shared_(limits.batch.requests_max, limits.sums_max, kPartitionKeys) {
  const auto rows = static_cast<std::size_t>(limits.batch.rows_max);
  parts_.reserve(rows);
  rows_.reserve(rows);
  merged_rows_.reserve(rows);
  for (int list = 0; list < kAttentionLists; ++list) {
    items_[list].reserve(static_cast<std::size_t>(items_max(static_cast<AttentionList>(list))));
  }
  wave_items_.reserve(rows + 1);
  if (may_choose()) choices_.reserve(rows);
}

bool CudaAttentionPlan::may_choose() const {
  return limits_.dial.dense_up_to() < limits_.batch.context_tokens_max;
}

std::int64_t CudaAttentionPlan::items_max(AttentionList list) const {
  if (list == kChosenPairs && !may_choose()) return 0;
  const AttentionList pairs_of = list == kChosenPairs ? kChosenPairs : list_of_runs();
  const std::int64_t pieces = ceil_div(group_, kListPairs[pairs_of]);  // of a row, at most
  return (limits_.batch.rows_max + limits_.sums_max) * pieces;
}

Status CudaAttentionPlan::check(const KvBatch& batch) const {
  const AttentionLimits& most = limits_.batch;
  const PageTableView& table = shape_.table(batch);
  const auto pages = static_cast<std::int64_t>(table.pages.size());
  if (batch.rows() > most.rows_max || table.requests() > most.requests_max) {
    return invalid(fmt::format("attention: {} rows of {} requests (at most {} of {})", batch.rows(),
                               table.requests(), most.rows_max, most.requests_max));
  }
  if (table.page_size != limits_.page_size || pages > limits_.table_pages_max) {
    return invalid(fmt::format("attention: {} pages of {} tokens (at most {} of {})", pages,
                               table.page_size, limits_.table_pages_max, limits_.page_size));
  }
  for (std::int64_t request = 0; request < table.requests(); ++request) {
    if (table.tokens_of(request) > most.context_tokens_max) {
      return invalid(fmt::format("attention: a context of {} tokens (at most {})",
                                 table.tokens_of(request), most.context_tokens_max));
    }
  }
  return {};
}

Status CudaAttentionPlan::cut(const KvBatch& batch) {
  STEMMA_RETURN_IF_ERROR(check(batch));
  const PageTableView& table = shape_.table(batch);
  for (auto& items : items_) items.clear();
  rows_.clear();
  merged_rows_.clear();
  choices_.clear();
  wave_items_.clear();
  shares_ = limits_.share_prefixes;
  if (shares_) {
    shared_.find(batch, std::min(limits_.batch.context_tokens_max, limits_.dial.dense_up_to()));
  }
  gather_parts(batch);
  split_parts();
  std::int32_t sums = 0;
  for (const Part& part : parts_) {
    add_items(part, table.indptr[static_cast<std::size_t>(part.request)]);
    add_rows(part, batch, sums);
  }
  if (shares_) add_runs(batch);
  for (const AttentionList list : {kSinglePairs, kSharedPairs, kChunkPairs}) {
    sort_items(items_[list]);
  }
  sort_waves();
  return {};
}

void CudaAttentionPlan::sort_waves() {
  const std::span<AttentionItem> items = items_[kChosenPairs];
  wave_items_.push_back(static_cast<std::int32_t>(items.size()));
  for (std::size_t wave = 1; wave < wave_items_.size(); ++wave) {
    const auto begin = static_cast<std::size_t>(wave_items_[wave - 1]);
    sort_items(items.subspan(begin, static_cast<std::size_t>(wave_items_[wave]) - begin));
  }
}

void CudaAttentionPlan::gather_parts(const KvBatch& batch) {
  parts_.clear();
  const auto requests = static_cast<std::int32_t>(shape_.table(batch).requests());
  for (std::int32_t request = 0; request < requests; ++request) add_parts(batch, request);
}

// As many rows as have the pairs of one item; a row with more query heads than that by itself.
void CudaAttentionPlan::add_parts(const KvBatch& batch, std::int32_t request) {
  const auto i = static_cast<std::size_t>(request);
  const auto position = [&](std::int32_t row) {
    return batch.positions[static_cast<std::size_t>(row)];
  };
  std::int32_t end = batch.row_indptr[i + 1];
  const std::int32_t rows_max = std::max(pairs_max() / group_, 1);
  const std::int64_t dense_up_to = limits_.dial.dense_up_to();
  const std::int32_t begin = batch.row_indptr[i];
  while (end > begin && position(end - 1) >= dense_up_to) --end;
  for (std::int32_t row = begin; row < end; row += rows_max) {
    const std::int32_t rows = std::min(rows_max, end - row);
    const std::int64_t first_seen = shape_.first_seen(position(row));
    parts_.push_back({.request = request,
                      .first_row = row,
                      .rows = rows,
                      .keys = position(row + rows - 1) + 1,
                      .first_tile = static_cast<std::int32_t>(first_seen / kCudaTileKeys),
                      .shared = shares_ ? shared_.share_of(request).partitions : 0});
  }
  add_choices(batch, request, end);
}

// The rows of the request from `first_row` on.
void CudaAttentionPlan::add_choices(const KvBatch& batch, std::int32_t request,
                                    std::int32_t first_row) {
  const auto i = static_cast<std::size_t>(request);
  for (std::int32_t row = first_row; row < batch.row_indptr[i + 1]; ++row) {
    const std::int32_t tokens = batch.positions[static_cast<std::size_t>(row)] + 1;
    const auto kept = static_cast<std::int32_t>(limits_.dial.tokens_kept(tokens));
    parts_.push_back({.request = request,
                      .first_row = row,
                      .rows = 1,
                      .keys = kept,
                      .choice = static_cast<std::int32_t>(choices_.size())});
    choices_.push_back({.row = row,
                        .table_begin = batch.page_table.indptr[i],
                        .tokens = tokens,
                        .kept_tokens = kept});
  }
}

AttentionList CudaAttentionPlan::list_of_rows(std::int32_t rows) const {
  for (const AttentionList list : {kSinglePairs, kSharedPairs}) {
    if (rows * group_ <= kListPairs[list] || list == limits_.last_list) return list;
  }
  return kChunkPairs;
}

// Partitions of the first item of a walk of many pairs, whose sums are longer than a tile's rows:
// each item more writes them, and has them merged. Such items are at most half of a team's work;
// those of one partition behind them fill up what that leaves uneven.
std::int32_t CudaAttentionPlan::first_walk(std::int64_t walks, std::int64_t partitions) const {
  const std::int64_t of_a_team = ceil_div(walks, limits_.busy_items);
  const std::int64_t first = partitions / (2 * limits_.busy_items * of_a_team);
  return static_cast<std::int32_t>(std::max<std::int64_t>(first, 1));
}

void CudaAttentionPlan::split_parts() {
  std::int64_t walks[kAttentionLists] = {};
  std::int64_t partitions[kAttentionLists] = {};
  for (const Part& part : parts_) {
    const AttentionList list = list_of(part);
    const std::int64_t own = shape_.kv_heads * ceil_div(part.rows * group_, kListPairs[list]);
    walks[list] += own;
    partitions[list] += own * part.partitions();
  }
  // Decode rows are of different lengths: only many of them keep all teams busy to the end.
  constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  const std::int64_t enough[kAttentionLists] = {kNever, 4 * limits_.busy_items, limits_.busy_items,
                                                kNever};
  for (Part& part : parts_) {
    const AttentionList list = list_of(part);
    part.splits = part.partitions();
    if (part.shared > 0) continue;
    if (walks[list] >= enough[list]) {
      part.splits = 1;
    } else if (list == kSharedPairs) {
      const std::int32_t first = first_walk(walks[list], partitions[list]);
      part.splits = std::max(part.splits - first + 1, 1);
    }
  }
  const std::int32_t most = most_splits();
  if (std::any_of(parts_.begin(), parts_.end(),
                  [&](const Part& part) { return part.shared > 0 && part.splits > most; })) {
    leave_shared_partitions();
  }
  for (Part& part : parts_) part.splits = std::min(part.splits, most);
}

// There is no room for the sums of all their partitions.
void CudaAttentionPlan::leave_shared_partitions() {
  shares_ = false;
  for (Part& part : parts_) part.shared = 0;
}

// The most items of one walk, so that there is room for the sums of all.
std::int32_t CudaAttentionPlan::most_splits() const {
  const auto sums = [&](std::int32_t most) {
    return std::accumulate(parts_.begin(), parts_.end(), std::int64_t{0},
                           [&](std::int64_t total, const Part& part) {
                             return total + part.rows * std::min<std::int64_t>(part.sums(), most);
                           });
  };
  std::int32_t fits = 1;
  std::int32_t too_many = 2;
  for (const Part& part : parts_) too_many = std::max(too_many, part.splits + 1);
  while (too_many - fits > 1) {
    const std::int32_t middle = fits + (too_many - fits) / 2;
    (sums(middle) <= limits_.sums_max ? fits : too_many) = middle;
  }
  return fits;
}

void CudaAttentionPlan::add_items(const Part& part, std::int32_t table_begin) {
  const std::int32_t pairs = part.rows * group_;
  const AttentionList list = list_of(part);
  AttentionItem item = {.table_begin = table_begin,
                        .keys = part.keys,
                        .first_row = part.first_row,
                        .first_tile = part.first_tile,
                        .choice = std::max(part.choice, 0)};
  if (part.choice >= 0 && part.choice % limits_.wave_choices == 0) {
    wave_items_.push_back(static_cast<std::int32_t>(items_[list].size()));
  }
  std::int32_t partitions = part.partitions() - part.splits + 1;  // of the first one
  std::int32_t partition = part.first_partition();
  if (part.shared > 0) {
    partition = part.shared;
    item.first_tile = partition * kCudaPartitionTiles;
  }
  for (; item.first_tile < part.end_tile(); item.first_tile = item.end_tile) {
    partition += partitions;
    partitions = 1;
    item.end_tile = std::min(partition * kCudaPartitionTiles, part.end_tile());
    for (item.first_pair = 0; item.first_pair < pairs; item.first_pair += kListPairs[list]) {
      item.pairs = std::min(pairs - item.first_pair, std::int32_t{kListPairs[list]});
      items_[list].push_back(item);
    }
  }
}

// Each partition of a run is an item, of as many of its rows as there are pairs in one.
void CudaAttentionPlan::add_runs(const KvBatch& batch) {
  const std::span<const std::int32_t> indptr = shape_.table(batch).indptr;
  for (const SharedRun& run : shared_.runs()) {
    const std::int32_t pairs = run.rows * group_;
    const AttentionList list = pairs <= kListPairs[kSinglePairs] ? kSinglePairs : list_of_runs();
    const auto leader = static_cast<std::size_t>(shared_.request_of(run.first_row));
    for (std::int32_t partition = run.first_partition;
         partition < run.first_partition + run.partitions; ++partition) {
      AttentionItem item = {.table_begin = indptr[leader],
                            .keys = static_cast<std::int32_t>((partition + 1) * kPartitionKeys),
                            .first_row = run.first_row,
                            .first_tile = partition * kCudaPartitionTiles,
                            .end_tile = (partition + 1) * kCudaPartitionTiles,
                            .run = 1};
      for (; item.first_pair < pairs; item.first_pair += kListPairs[list]) {
        item.pairs = std::min(pairs - item.first_pair, std::int32_t{kListPairs[list]});
        items_[list].push_back(item);
      }
    }
  }
}

// `sums`: how many the rows before have.
void CudaAttentionPlan::add_rows(const Part& part, const KvBatch& batch, std::int32_t& sums) {
  for (std::int32_t row = part.first_row; row < part.first_row + part.rows; ++row) {
    if (part.splits > 1) merged_rows_.push_back(row);
    rows_.push_back({.position = part.choice < 0 ? batch.positions[static_cast<std::size_t>(row)]
                                                 : part.keys - 1,
                     .first_sum = sums,
                     .sums = part.splits,
                     .split_at = part.first_partition() + part.partitions() - part.splits});
    sums += part.sums();
  }
}

std::int64_t CudaAttentionPlan::image_bytes_max() const {
  const std::int64_t rows = limits_.batch.rows_max;
  std::int64_t bytes = array_bytes<AttentionHeader>(1) + array_bytes<AttentionRow>(rows) +
                       2 * array_bytes<std::int32_t>(rows) +
                       array_bytes<std::int32_t>(limits_.table_pages_max);
  for (int list = 0; list < kAttentionLists; ++list) {
    bytes += array_bytes<AttentionItem>(items_max(static_cast<AttentionList>(list)));
  }
  const std::int64_t choices = may_choose() ? rows : 0;
  return bytes + array_bytes<ChoosingRow>(choices) + array_bytes<std::int32_t>(choices + 1);
}

std::int64_t CudaAttentionPlan::write(const KvBatch& batch, std::byte* image) const {
  ImageWriter writer(image);
  AttentionHeader header;
  for (int list = 0; list < kAttentionLists; ++list) {
    header.items[list] = static_cast<std::int32_t>(items_[list].size());
    header.items_at[list] = writer.append(std::span<const AttentionItem>(items_[list]));
  }
  header.merged_rows = static_cast<std::int32_t>(merged_rows_.size());
  header.rows_at = writer.append(std::span<const AttentionRow>(rows_));
  header.shared_rows_at = writer.append(shared_rows());
  header.merged_rows_at = writer.append(std::span<const std::int32_t>(merged_rows_));
  header.table_at = writer.append(raw(shape_.table(batch).pages));
  header.choices = static_cast<std::int32_t>(choices_.size());
  header.choices_at = writer.append(std::span<const ChoosingRow>(choices_));
  header.waves_at = writer.append(std::span<const std::int32_t>(wave_items_));
  std::memcpy(image, &header, sizeof(header));
  return writer.size_bytes();
}

}  // namespace stemma
