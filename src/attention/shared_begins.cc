// A group is sorted by the pages of its first partition: those that have the same ones form a run,
// as long as the shortest of what they share, and are split again behind it. Each split moves
// requests within their group only, so that in the end the rows of every run lie together.
#include "attention/shared_begins.h"

#include <algorithm>
#include <cstring>

#include "base/math.h"

namespace stemma {

namespace {

// Pages that are compared at once.
constexpr std::size_t kPagesTogether = 64;

// How many pages from `from` on are the same.
std::size_t same_pages(std::span<const PageId> a, std::span<const PageId> b, std::size_t from) {
  const std::size_t end = std::min(a.size(), b.size());
  std::size_t page = std::min(from, end);
  while (page + kPagesTogether <= end &&
         std::memcmp(&a[page], &b[page], kPagesTogether * sizeof(PageId)) == 0) {
    page += kPagesTogether;
  }
  while (page < end && a[page] == b[page]) ++page;
  return page;
}

// The pages of one partition, as an order of requests that have it in whole.
class PartitionPages {
 public:
  PartitionPages(const PageTableView& table, std::int64_t partition_keys, std::int32_t partition)
      : table_(table),
        first_(static_cast<std::size_t>(partition * partition_keys / table.page_size)),
        end_(
            static_cast<std::size_t>(ceil_div((partition + 1) * partition_keys, table.page_size))) {
  }

  // Below 0, 0 or above 0, as memcmp.
  int compare(std::int32_t a, std::int32_t b) const {
    const std::span<const PageId> pages_a = table_.pages_of(a);
    const std::span<const PageId> pages_b = table_.pages_of(b);
    for (std::size_t page = first_; page < end_; ++page) {
      if (pages_a[page] != pages_b[page]) return pages_a[page] < pages_b[page] ? -1 : 1;
    }
    return 0;
  }

 private:
  const PageTableView& table_;
  std::size_t first_;
  std::size_t end_;
};

}  // namespace

SharedBegins::SharedBegins(std::int64_t requests_max, std::int64_t run_rows_max,
                           std::int64_t partition_keys)
    : run_rows_max_(run_rows_max), partition_keys_(partition_keys) {
  const auto count = static_cast<std::size_t>(requests_max);
  requests_.reserve(count);
  rows_.reserve(count);
  shares_.reserve(count);
  groups_.reserve(count);
  runs_.reserve(static_cast<std::size_t>(run_rows_max / 2));
}

void SharedBegins::find(const KvBatch& batch, std::int64_t keys_max) {
  const PageTableView& table = batch.page_table;
  requests_.clear();
  rows_.clear();
  runs_.clear();
  run_rows_ = 0;
  shares_.assign(static_cast<std::size_t>(table.requests()), {});
  for (std::int32_t request = 0; request < table.requests(); ++request) {
    const auto i = static_cast<std::size_t>(request);
    const bool one_row = batch.row_indptr[i + 1] - batch.row_indptr[i] == 1;
    if (one_row && table.tokens_of(request) <= keys_max && whole_partitions(table, request) > 0) {
      requests_.push_back(request);
    }
  }
  groups_.clear();
  add_group({0, static_cast<std::int32_t>(requests_.size()), 0, 0});
  while (!groups_.empty()) {
    const Group group = groups_.back();
    groups_.pop_back();
    split(group, table);
  }
  std::sort(runs_.begin(), runs_.end(), [](const SharedRun& a, const SharedRun& b) {
    return a.level != b.level ? a.level < b.level : a.first_row < b.first_row;
  });
  for (const std::int32_t request : requests_) {
    const auto i = static_cast<std::size_t>(request);
    if (shares_[i].partitions > 0) {
      shares_[i].place = static_cast<std::int32_t>(rows_.size());
    }
    rows_.push_back(batch.row_indptr[i]);
  }
}

void SharedBegins::add_group(const Group& group) {
  if (group.end - group.begin >= 2) groups_.push_back(group);
}

void SharedBegins::split(const Group& group, const PageTableView& table) {
  const auto begin = requests_.begin() + group.begin;
  const auto whole_end = std::partition(
      begin, requests_.begin() + group.end,
      [&](std::int32_t request) { return whole_partitions(table, request) > group.partitions; });
  const PartitionPages pages(table, partition_keys_, group.partitions);
  std::sort(begin, whole_end,
            [&](std::int32_t a, std::int32_t b) { return pages.compare(a, b) < 0; });
  for (auto run = begin; run != whole_end;) {
    const std::int32_t leader = *run;
    const auto end = std::find_if(
        run, whole_end, [&](std::int32_t request) { return pages.compare(leader, request) != 0; });
    add_run(static_cast<std::int32_t>(run - requests_.begin()),
            static_cast<std::int32_t>(end - requests_.begin()), group, table);
    run = end;
  }
}

// Those of requests_[begin, end), which share a partition behind what the group has in common.
void SharedBegins::add_run(std::int32_t begin, std::int32_t end, const Group& group,
                           const PageTableView& table) {
  const std::int32_t rows = end - begin;
  if (rows < 2 || run_rows_ + rows > run_rows_max_) return;
  run_rows_ += rows;
  const std::int32_t leader = requests_[static_cast<std::size_t>(begin)];
  std::int32_t shortest = whole_partitions(table, leader) - group.partitions;
  for (std::int32_t i = begin + 1; i < end; ++i) {
    const std::int32_t request = requests_[static_cast<std::size_t>(i)];
    shortest = std::min(shortest, common_partitions(table, leader, request, group.partitions));
  }
  runs_.push_back({begin, rows, group.partitions, shortest, group.level});
  const std::int32_t partitions = group.partitions + shortest;
  for (std::int32_t i = begin; i < end; ++i) {
    shares_[static_cast<std::size_t>(requests_[static_cast<std::size_t>(i)])].partitions =
        partitions;
  }
  add_group({begin, end, partitions, group.level + 1});
}

// Partitions behind `from` that both have in whole, on the same pages.
std::int32_t SharedBegins::common_partitions(const PageTableView& table, std::int32_t a,
                                             std::int32_t b, std::int32_t from) const {
  const std::int64_t first_page = from * partition_keys_ / table.page_size;
  const std::size_t same =
      same_pages(table.pages_of(a), table.pages_of(b), static_cast<std::size_t>(first_page));
  const auto keys = static_cast<std::int64_t>(same) * table.page_size;
  const std::int64_t whole = std::min<std::int64_t>(
      {keys / partition_keys_, whole_partitions(table, a), whole_partitions(table, b)});
  return static_cast<std::int32_t>(std::max<std::int64_t>(whole - from, 0));
}

// All that lie before its last key, which is always the row's own to compute.
std::int32_t SharedBegins::whole_partitions(const PageTableView& table,
                                            std::int32_t request) const {
  return static_cast<std::int32_t>((table.tokens_of(request) - 1) / partition_keys_);
}

}  // namespace stemma
