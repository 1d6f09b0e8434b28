// SharedBegins: which rows of a batch read the same pages at the begin of their contexts, and how
// far: a tree of runs of partitions, found from the page table alone.
//
// Of requests that compute one row, those whose tables begin with the same pages form a run, from
// the first partition to the last that all of them have in whole; behind it those of them that go
// on together form runs of the next level, to any depth. A run has at least two rows and ends
// before the last key of each. How rows are grouped decides who computes what, never the result.
//
// Thread:     the thread that plans.
// Memory:     arrays sized at construction; find does not allocate.
// Cost:       a sort of the requests by their first pages, for each level; comparisons of page ids
//             at memcmp speed where they are shared.
// Not here:   how runs are cut into units of work (attention_plan).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/attention.h"

namespace stemma {

// Rows `first_row` … of SharedBegins::rows, all of which see all keys of the partitions.
struct SharedRun {
  std::int32_t first_row = 0;
  std::int32_t rows = 0;
  std::int32_t first_partition = 0;
  std::int32_t partitions = 0;
  std::int32_t level = 0;  // runs of its rows that come before it
};

class SharedBegins {
 public:
  // The most requests that find will be given, and the most rows that all runs together may have:
  // beyond that, rows are left to themselves. `partition_keys`: of those who compute the runs.
  SharedBegins(std::int64_t requests_max, std::int64_t run_rows_max, std::int64_t partition_keys);

  // Looks at requests of one row that sees at most `keys_max` keys.
  // REQUIRES: the batch's page table names pages for all their positions.
  void find(const KvBatch& batch, std::int64_t keys_max);

  // By level.
  std::span<const SharedRun> runs() const noexcept { return runs_; }
  // Rows of the batch, so that those of a run follow each other.
  std::span<const std::int32_t> rows() const noexcept { return rows_; }
  // The request that has rows()[place].
  std::int32_t request_of(std::int64_t place) const {
    return requests_[static_cast<std::size_t>(place)];
  }

  // Where a request's row stands in rows(), and the partitions that runs have of it.
  struct Share {
    std::int32_t place = -1;  // −1: in no run
    std::int32_t partitions = 0;
  };
  const Share& share_of(std::int64_t request) const {
    return shares_[static_cast<std::size_t>(request)];
  }

 private:
  // Requests that have the first partitions in common: requests_[begin, end).
  struct Group {
    std::int32_t begin = 0;
    std::int32_t end = 0;
    std::int32_t partitions = 0;
    std::int32_t level = 0;
  };

  void add_group(const Group& group);
  void split(const Group& group, const PageTableView& table);
  void add_run(std::int32_t begin, std::int32_t end, const Group& group,
               const PageTableView& table);
  std::int32_t common_partitions(const PageTableView& table, std::int32_t a, std::int32_t b,
                                 std::int32_t from) const;
  std::int32_t whole_partitions(const PageTableView& table, std::int32_t request) const;

  std::int64_t run_rows_max_;
  std::int64_t partition_keys_;
  std::int64_t run_rows_ = 0;
  std::vector<std::int32_t> requests_;
  std::vector<std::int32_t> rows_;
  std::vector<Share> shares_;
  std::vector<Group> groups_;  // still to be split; disjoint, of at least two requests each
  std::vector<SharedRun> runs_;
};

}  // namespace stemma
