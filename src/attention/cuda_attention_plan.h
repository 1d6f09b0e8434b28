// CudaAttentionPlan: how a batch's attention is cut into the work of a GPU, and the image of it
// that kernels read (attention_work_cuda.h).
//
// Rows of a request are cut into parts of as many rows as their query heads fill an item, and a
// part's walk over its keys into items at the bounds of partitions: of few pairs always; of many
// only where a batch has too few of their list to keep a GPU busy. Each item of a walk but the
// first has one partition, so that all merges are one left fold over a row's partitions: how a
// batch is cut changes who computes what, never the result (I13). Where sums would take more room
// than there is, the first items of walks get longer.
//
// A row that the dial makes sparse is cut by itself, into partitions of what is chosen for it, and
// has a choice; choices of a batch are counted in the order of its rows and belong to waves of so
// many.
//
// Thread:     the thread that plans.
// Memory:     arrays sized at construction; cut and write do not allocate.
// Cost:       O(items log items) a step, for all layers, and a copy of the page table.
// Not here:   memory and launches (cuda_attention), kernels (split_attention_cuda).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "attention/attention.h"
#include "attention/attention_work_cuda.h"
#include "attention/shared_begins.h"
#include "attention/sparse_dial.h"
#include "stemma/result.h"

namespace stemma {

struct CudaPlanLimits {
  AttentionLimits batch;
  std::int64_t page_size = 0;
  std::int64_t table_pages_max = 0;
  std::int64_t sums_max = 0;              // at least batch.rows_max
  std::int64_t busy_items = 0;            // items of every KV head that keep the GPU busy
  AttentionList last_list = kChunkPairs;  // the last list that there is a kernel for
  bool share_prefixes = false;            // of shapes without a window
  SparseDial dial = {};                   // by default nothing is sparse; else without windows
  std::int64_t wave_choices = 0;          // of a wave; at least 1 where something may be sparse
};

class CudaAttentionPlan {
 public:
  // The most sums that a batch can make use of.
  static std::int64_t sums_wanted(const AttentionLimits& limits);
  // The most pages that the table of a batch can name.
  static std::int64_t table_pages(const AttentionLimits& limits, std::int64_t page_size);

  // REQUIRES: make_attention accepts the shape.
  CudaAttentionPlan(const AttentionShape& shape, const CudaPlanLimits& limits);

  // kInvalidArgument if the batch is not within the limits.
  // REQUIRES: every position has a page.
  Status cut(const KvBatch& batch);

  // What was cut last.
  std::span<const AttentionItem> items(AttentionList list) const { return items_[list]; }
  std::span<const AttentionRow> rows() const { return rows_; }
  std::span<const std::int32_t> merged_rows() const { return merged_rows_; }
  std::span<const ChoosingRow> choices() const { return choices_; }
  // Where the items of kChosenPairs of each wave begin, and where those of the last end.
  std::span<const std::int32_t> wave_items() const { return wave_items_; }
  // Rows of the batch that items of runs name.
  std::span<const std::int32_t> shared_rows() const { return shared_.rows(); }

  // The list that items of so many rows of a request are in. REQUIRES: one row, or no more than one
  // item has.
  AttentionList list_of_rows(std::int32_t rows) const;
  // The list that has items of rows of several requests; may be another one if they are few.
  AttentionList list_of_runs() const {
    return limits_.last_list < kSharedPairs ? limits_.last_list : kSharedPairs;
  }

  bool shares_prefixes() const noexcept { return limits_.share_prefixes; }

  // Bytes of the largest image.
  std::int64_t image_bytes_max() const;
  // Writes the image; how many bytes it has.
  // REQUIRES: image_bytes_max() of room, aligned to 16; `batch` is the one that was cut last.
  std::int64_t write(const KvBatch& batch, std::byte* image) const;

 private:
  // Rows of one request that are computed together.
  struct Part {
    std::int32_t request = 0;
    std::int32_t first_row = 0;
    std::int32_t rows = 0;
    std::int32_t keys = 0;  // that its last row sees, from position 0 on; or those of its choice
    std::int32_t choice = -1;
    std::int32_t first_tile = 0;
    std::int32_t shared = 0;  // partitions that runs have, from the first on
    std::int32_t splits = 1;  // sums that its walk is cut into

    std::int32_t end_tile() const;
    std::int32_t first_partition() const { return first_tile / kCudaPartitionTiles; }
    std::int32_t partitions() const;
    // That a row needs; an item of one partition leaves nothing behind.
    std::int32_t sums() const { return partitions() > 1 ? splits : 0; }
  };

  Status check(const KvBatch& batch) const;
  std::int32_t pairs_max() const { return kListPairs[limits_.last_list]; }
  bool may_choose() const;
  std::int64_t items_max(AttentionList list) const;
  AttentionList list_of(const Part& part) const {
    return part.choice < 0 ? list_of_rows(part.rows) : kChosenPairs;
  }
  void gather_parts(const KvBatch& batch);
  void add_parts(const KvBatch& batch, std::int32_t request);
  void add_choices(const KvBatch& batch, std::int32_t request, std::int32_t first_row);
  std::int32_t first_walk(std::int64_t walks, std::int64_t partitions) const;
  void split_parts();
  void leave_shared_partitions();
  void add_runs(const KvBatch& batch);
  std::int32_t most_splits() const;
  void add_items(const Part& part, std::int32_t table_begin);
  void add_rows(const Part& part, const KvBatch& batch, std::int32_t& sums);
  void sort_waves();

  AttentionShape shape_;
  std::int32_t group_;  // query heads of a KV head
  CudaPlanLimits limits_;
  SharedBegins shared_;
  bool shares_ = false;  // runs are computed together
  std::vector<Part> parts_;
  std::vector<AttentionItem> items_[kAttentionLists];
  std::vector<AttentionRow> rows_;
  std::vector<std::int32_t> merged_rows_;
  std::vector<ChoosingRow> choices_;
  std::vector<std::int32_t> wave_items_;
};

}  // namespace stemma
