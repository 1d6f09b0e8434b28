// A group is split by its first request: those that share a partition with it form a run as long as
// the shortest of what they share, and are split again behind it; the others are a group of their
// own. Each split moves requests within their group only, so that in the end the rows of every run
// lie together.
#include "attention/shared_prefixes.h"

#include <algorithm>
#include <cstring>

#include "attention/attention_kernel.h"
#include "base/check.h"

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

}  // namespace

SharedPrefixes::SharedPrefixes(std::int64_t requests_max, std::int64_t run_rows_max)
    : run_rows_max_(run_rows_max) {
  const auto count = static_cast<std::size_t>(requests_max);
  requests_.reserve(count);
  rows_.reserve(count);
  shares_.reserve(count);
  groups_.reserve(count);
  runs_.reserve(static_cast<std::size_t>(run_rows_max / 2));
}

void SharedPrefixes::find(const KvBatch& batch, std::int64_t keys_max) {
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

void SharedPrefixes::add_group(const Group& group) {
  if (group.end - group.begin >= 2) groups_.push_back(group);
}

void SharedPrefixes::split(const Group& group, const PageTableView& table) {
  const auto begin = requests_.begin() + group.begin;
  const auto end = requests_.begin() + group.end;
  const std::int32_t leader = *begin;
  std::int32_t shortest = whole_partitions(table, leader) - group.partitions;
  const auto middle = std::partition(begin + 1, end, [&](std::int32_t request) {
    const std::int32_t common = common_partitions(table, leader, request, group.partitions);
    if (common > 0) shortest = std::min(shortest, common);
    return common > 0;
  });
  const auto place = static_cast<std::int32_t>(middle - requests_.begin());
  add_group({place, group.end, group.partitions, group.level});
  const std::int32_t rows = place - group.begin;
  if (rows < 2 || run_rows_ + rows > run_rows_max_) return;
  run_rows_ += rows;
  runs_.push_back({group.begin, rows, group.partitions, shortest, group.level});
  const std::int32_t partitions = group.partitions + shortest;
  for (auto request = begin; request != middle; ++request) {
    shares_[static_cast<std::size_t>(*request)].partitions = partitions;
  }
  add_group({group.begin, place, partitions, group.level + 1});
}

// Partitions behind `from` that both have in whole, on the same pages.
std::int32_t SharedPrefixes::common_partitions(const PageTableView& table, std::int32_t a,
                                               std::int32_t b, std::int32_t from) const {
  const std::int64_t first_page = from * kPartitionKeys / table.page_size;
  const std::size_t same =
      same_pages(table.pages_of(a), table.pages_of(b), static_cast<std::size_t>(first_page));
  const auto keys = static_cast<std::int64_t>(same) * table.page_size;
  const std::int64_t whole = std::min<std::int64_t>(
      {keys / kPartitionKeys, whole_partitions(table, a), whole_partitions(table, b)});
  return static_cast<std::int32_t>(std::max<std::int64_t>(whole - from, 0));
}

// All that lie before its last key, which is always the row's own to compute.
std::int32_t SharedPrefixes::whole_partitions(const PageTableView& table,
                                              std::int32_t request) const {
  return static_cast<std::int32_t>((table.tokens_of(request) - 1) / kPartitionKeys);
}

}  // namespace stemma
