#include "model/rank_rows.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/check.h"

namespace stemma {

Result<std::unique_ptr<RankRows>> RankRows::create(RankGroup& ranks, ThreadPool& threads,
                                                   std::span<const GatheredExtent> extents) {
  auto rows = std::make_unique<RankRows>(Key{}, ranks, threads);
  std::int64_t part = 0;
  for (const GatheredExtent& extent : extents) {
    part = std::max(part, extent.rows_max * rows->shard_.most(extent.columns));
  }
  Rows own;
  Rows all;
  const std::array wanted = {RowsWanted{own, 1, part}, RowsWanted{all, ranks.ranks(), part}};
  STEMMA_ASSIGN_OR_RETURN(rows->buffer_, allocate_rows(wanted));
  rows->buffer_.prefault(threads);
  rows->own_ = own.values;
  rows->all_ = all.values;
  return rows;
}

RankRows::RankRows(Key, RankGroup& ranks, ThreadPool& threads)
    : ranks_(ranks), threads_(threads), shard_{ranks.rank(), ranks.ranks()} {}

void RankRows::gather(const Rows& own, std::int64_t rows, const MatrixView& whole) {
  STEMMA_CHECK_EQ(own.columns, shard_.range(whole.columns).outputs);
  if (rows == 0 || !status_.ok()) return;
  const std::size_t bytes = part_bytes(rows, whole.columns);
  const std::span<const std::byte> given(reinterpret_cast<const std::byte*>(own.values), bytes);
  // One row of equal parts is already what it is to be.
  const bool in_place = rows == 1 && whole.columns % shard_.ranks == 0;
  auto* const to = reinterpret_cast<std::byte*>(in_place ? whole.values : all_);
  status_ = ranks_.all_gather(given, {to, bytes * static_cast<std::size_t>(shard_.ranks)});
  if (!in_place) place(rows, whole);
}

void RankRows::gather_to_first(const Rows& own, std::int64_t rows, const MatrixView& whole) {
  STEMMA_CHECK_EQ(own.columns, shard_.range(whole.columns).outputs);
  if (rows == 0 || !status_.ok()) return;
  const std::size_t bytes = part_bytes(rows, whole.columns);
  const std::span<const std::byte> given(reinterpret_cast<const std::byte*>(own.values), bytes);
  auto* const to = reinterpret_cast<std::byte*>(all_);
  status_ = ranks_.gather(given, {to, bytes * static_cast<std::size_t>(shard_.ranks)});
  if (shard_.rank == 0) place(rows, whole);
}

// Parts are as long as the longest one.
std::size_t RankRows::part_bytes(std::int64_t rows, std::int64_t columns) const {
  return static_cast<std::size_t>(rows * shard_.most(columns)) * sizeof(float);
}

void RankRows::place(std::int64_t rows, const MatrixView& whole) {
  const std::int64_t part = rows * shard_.most(whole.columns);
  for_rows(threads_, {rows, whole.columns}, [&](std::int64_t row) {
    for (int rank = 0; rank < shard_.ranks; ++rank) {
      const OutputRange range = shard_.range(whole.columns, rank);
      const float* const from = all_ + rank * part + row * range.outputs;
      std::copy_n(from, range.outputs, whole.values + row * whole.row_stride + range.first);
    }
  });
}

void multiply_cut(const ConstMatrixView& a, const CutProduct& product, const MatrixView& c,
                  ThreadPool& threads, RankRows* peers_or_null) {
  const auto multiply = [&](const MatrixView& out) {
    gemm(a, product.weights, product.bias, out, threads);
    product.adapters.add(product.projection, a, out);
  };
  if (peers_or_null == nullptr) return multiply(c);
  const Rows own = peers_or_null->own(c.columns);
  multiply(own.write(c.rows));
  peers_or_null->gather(own, c.rows, c);
}

}  // namespace stemma
