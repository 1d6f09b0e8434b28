#include "pool/cuda_page_copy.h"

#include <algorithm>

#include "pool/sum_tables.h"

namespace stemma {

namespace {

constexpr std::int64_t kPitchMax = INT32_MAX;  // of rows of one copy

PoolPiece piece_of(const PagePiece<std::byte>& first, const PagePiece<std::byte>& second) {
  return {.begin = first.page0,
          .layer_stride_bytes = second.page0 - first.page0,
          .page_stride_bytes = first.page_stride_bytes,
          .bytes = first.bytes};
}

// One piece of one page, in as many layers as one copy can have.
struct PieceRows {
  std::byte* pool;
  std::byte* image;
  CudaRows rows;  // without strides
  std::int64_t pool_stride_bytes;
};

// Calls queue(rows) for all pieces of a page.
template <typename Queue>
Status for_pieces(const PageCopy& copy, const PagePair& pair, Queue queue) {
  const PageImages& images = copy.images;
  std::byte* image = images.begin + pair.image * images.page_stride_bytes;
  for (int i = 0; i < copy.piece_count; ++i) {
    const PoolPiece& piece = copy.pieces[i];
    std::byte* const pool = piece.begin + pair.pool * piece.page_stride_bytes;
    const bool near = std::max(piece.layer_stride_bytes, images.layer_stride_bytes) <= kPitchMax;
    const std::int64_t layers = near ? copy.layers : 1;
    for (std::int64_t layer = 0; layer < copy.layers; layer += layers) {
      const std::int64_t at = copy.first_layer + layer;
      STEMMA_RETURN_IF_ERROR(queue(PieceRows{pool + at * piece.layer_stride_bytes,
                                             image + at * images.layer_stride_bytes,
                                             {.row_bytes = static_cast<std::size_t>(piece.bytes),
                                              .rows = static_cast<std::size_t>(layers)},
                                             piece.layer_stride_bytes}));
    }
    image += piece.bytes;
  }
  return {};
}

Status queue_out(CudaStream& stream, const PageCopy& copy, PieceRows piece) {
  CudaRows& rows = piece.rows;
  if (rows.rows == 1) return stream.copy_out(piece.image, piece.pool, rows.row_bytes);
  rows.to_stride_bytes = static_cast<std::size_t>(copy.images.layer_stride_bytes);
  rows.from_stride_bytes = static_cast<std::size_t>(piece.pool_stride_bytes);
  return stream.copy_rows_out(piece.image, piece.pool, rows);
}

Status queue_in(CudaStream& stream, const PageCopy& copy, PieceRows piece) {
  CudaRows& rows = piece.rows;
  if (rows.rows == 1) return stream.copy_in(piece.pool, piece.image, rows.row_bytes);
  rows.to_stride_bytes = static_cast<std::size_t>(piece.pool_stride_bytes);
  rows.from_stride_bytes = static_cast<std::size_t>(copy.images.layer_stride_bytes);
  return stream.copy_rows_in(piece.pool, piece.image, rows);
}

}  // namespace

CopyWay best_way(const PageCopy& copy) {
  if (!copy.images.in_reach) return CopyWay::kEngines;
  const std::int64_t layer_bytes = layer_bytes_of(copy);
  const bool large = layer_bytes >= kEnginePieceBytes * copy.piece_count &&
                     layer_bytes * copy.layers * copy.count >= kEngineCallBytes;
  return large ? CopyWay::kEngines : CopyWay::kKernels;
}

PageCopy pages_of(CudaPool& pool) {
  PageCopy copy;
  if (pool.shape().layers == 0) return copy;
  const auto first = pool.layer_pieces(0);
  const auto second = pool.layer_pieces(std::min<std::int64_t>(1, pool.shape().layers - 1));
  const PagePiece<std::byte>* next = second.begin();
  for (const auto& piece : first) copy.pieces[copy.piece_count++] = piece_of(piece, *next++);
  copy.zeros_sum = sum_of_zeros(static_cast<std::size_t>(layer_bytes_of(copy)));
  return copy;
}

PageImages images_of(HostPool& host) {
  const bool page_first = host.layout() == KvLayout::kPageFirst;
  return {.begin = host.memory().data(),
          .layer_stride_bytes = page_first ? host.layer_bytes() : host.pages() * host.layer_bytes(),
          .page_stride_bytes = page_first ? host.page_bytes() : host.layer_bytes()};
}

Status queue_pages_out(CudaStream& stream, const PageCopy& copy, std::span<const PagePair> pairs,
                       CopyWay way) {
  if (way == CopyWay::kKernels) return copy_pages_out(stream, copy);
  STEMMA_RETURN_IF_ERROR(sum_pages(stream, copy));
  for (const PagePair& pair : pairs) {
    STEMMA_RETURN_IF_ERROR(for_pieces(
        copy, pair, [&](const PieceRows& piece) { return queue_out(stream, copy, piece); }));
  }
  return {};
}

Status queue_pages_in(CudaStream& stream, const PageCopy& copy, std::span<const PagePair> pairs,
                      CopyWay way) {
  if (way == CopyWay::kKernels) return copy_pages_in(stream, copy);
  for (const PagePair& pair : pairs) {
    STEMMA_RETURN_IF_ERROR(for_pieces(
        copy, pair, [&](const PieceRows& piece) { return queue_in(stream, copy, piece); }));
  }
  return sum_pages(stream, copy);
}

}  // namespace stemma
