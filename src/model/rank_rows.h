// RankRows: rows of which every rank computes some columns, put together on all of them.
//
// A product whose matrix is cut by its outputs (shard) gives a rank some columns of each row. Ranks
// gather these side by side: a copy of bits, so that what comes next is as on one rank (I13).
//
// Thread:     called by the thread that owns the ThreadPool and the RankGroup.
// Memory:     two buffers for the largest rows, at construction; nothing allocates later.
// Cost:       each gather moves every value once between ranks, and once within this one where
//             there is more than one row.
// Not here:   which outputs are whose (shard), how ranks talk (device/rank_group), what adapters
//             make of a row (adapter_pass).
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/thread_pool.h"
#include "device/buffer.h"
#include "device/gemm.h"
#include "device/packed_weights.h"
#include "device/rank_group.h"
#include "model/activation_rows.h"
#include "model/adapter_pass.h"
#include "model/shard.h"
#include "stemma/result.h"

namespace stemma {

// Rows that will be gathered at most.
struct GatheredExtent {
  std::int64_t rows_max = 0;
  std::int64_t columns = 0;  // of all ranks
};

class RankRows {
  struct Key {};

 public:
  // kOutOfMemory if the buffers cannot be had. `ranks` and `threads` must outlive this.
  static Result<std::unique_ptr<RankRows>> create(RankGroup& ranks, ThreadPool& threads,
                                                  std::span<const GatheredExtent> extents);
  RankRows(Key, RankGroup& ranks, ThreadPool& threads);  // for create

  const Shard& shard() const noexcept { return shard_; }

  // Room for this rank's columns of rows of `columns`, until it is asked for again.
  Rows own(std::int64_t columns) const { return {own_, shard_.range(columns).outputs}; }

  // Gives the first `rows` rows of `own`, this rank's columns, and writes those of all ranks to
  // `whole`. All ranks call it with the same rows. REQUIRES: own.columns is this rank's part of
  // whole.columns; behind own's rows there is room where ranks do not have equally many.
  void gather(const Rows& own, std::int64_t rows, const MatrixView& whole);
  // The same for rank 0 alone: elsewhere `whole` is not written.
  void gather_to_first(const Rows& own, std::int64_t rows, const MatrixView& whole);

  // Whether all ranks were reached so far. Where they were not, what was gathered means nothing.
  const Status& status() const noexcept { return status_; }

 private:
  std::size_t part_bytes(std::int64_t rows, std::int64_t columns) const;
  void place(std::int64_t rows, const MatrixView& whole);

  RankGroup& ranks_;
  ThreadPool& threads_;
  Shard shard_;
  Status status_;
  Buffer buffer_;
  float* own_ = nullptr;
  float* all_ = nullptr;  // the parts of all ranks, each [rows, its columns]
};

// A product with a matrix of which a rank of several has some outputs, and what adapters add.
struct CutProduct {
  const PackedWeights& weights;
  std::span<const float> bias;
  LayerAdapters adapters = {};  // where there are any, rows are those that they are of
  Projection projection = Projection::kOutput;
};

// Writes all columns of c = a · weightsᵀ + bias, and adds to each row what its adapter makes of it:
// the bits that the whole matrix would give. Without `peers` it has all outputs. REQUIRES: as gemm.
void multiply_cut(const ConstMatrixView& a, const CutProduct& product, const MatrixView& c,
                  ThreadPool& threads, RankRows* peers_or_null);

}  // namespace stemma
