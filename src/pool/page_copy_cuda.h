// Kernels that copy pages between a CUDA pool and page images (pool/page_image.h) in memory that
// the device can reach: pinned host memory, over the link, or its own. They gather and scatter
// whatever both layouts are, 16 bytes an access, and take the CRC32C of each layer image, that of
// base/crc32c, of the very registers that they store.
//
// A team takes a layer of a page at a time, or a part of one where there are few. As many teams run
// as keep the link busy, not the device: most of it computes meanwhile. Where a pool's pieces are
// large, its copy engines do the same without any team (cuda_page_mover), and sum_pages reads what
// they copied.
//
// Thread:     as CudaStream.
// Memory:     none.
// Cost:       each byte is read once and written once, by the slower of link and memory; a launch.
// Not here:   which way is taken, what sums are compared with (cuda_page_mover), tables
//             (sum_tables).
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cuda_device.h"
#include "stemma/result.h"

namespace stemma {

inline constexpr int kImagePiecesMax = 4;

// What every page has of one piece (stemma/kv_pool.h), in all layers of a pool.
struct PoolPiece {
  std::byte* begin = nullptr;  // of page 0, layer 0
  std::int64_t layer_stride_bytes = 0;
  std::int64_t page_stride_bytes = 0;
  std::int64_t bytes = 0;
};

// Images [pages, layers, layer_bytes] or [layers, pages, layer_bytes].
struct PageImages {
  std::byte* begin = nullptr;
  std::int64_t layer_stride_bytes = 0;
  std::int64_t page_stride_bytes = 0;
  bool in_reach = true;  // of kernels; else of copy engines alone
};

// A page of the pool and that of the images.
struct PagePair {
  std::int32_t pool = 0;
  std::int32_t image = 0;
};

struct PageCopy {
  PoolPiece pieces[kImagePiecesMax] = {};
  int piece_count = 0;
  PageImages images;
  const PagePair* pages = nullptr;  // on the device   [count]
  std::int64_t count = 0;
  std::int64_t first_layer = 0;
  std::int64_t layers = 0;                // from there on
  std::uint32_t* sums = nullptr;          // of layer images   [count, layers], see sum_words
  const std::uint32_t* tables = nullptr;  // make_sum_tables, on the device
  std::uint32_t zeros_sum = 0;            // sum_of_zeros(layer_bytes_of)
};

// Bytes of a layer of a page.
std::int64_t layer_bytes_of(const PageCopy& copy);

// How many words `sums` has room for: kernels leave sums of parts there, of so many at most.
inline constexpr std::int64_t kSumWordsMin = 128;
constexpr std::int64_t sum_words(std::int64_t images) {
  return images < kSumWordsMin ? kSumWordsMin : images;
}
// Makes sums of images of them. REQUIRES: called once, on the host, when the copy is done.
void gather_sums(const PageCopy& copy);

// Loads the kernels, so that copies may be queued first while another thread's stream records.
Status load_page_copies();

// Queue it. REQUIRES: pages of both sides differ from each other; a layer of a page has fewer than
// 2^30 bytes; no kernel that is still on its way in the stream writes `pages` or, for
// copy_pages_in, images: both are read while it ends.
Status copy_pages_out(CudaStream& stream, const PageCopy& copy);
Status copy_pages_in(CudaStream& stream, const PageCopy& copy);
// The sums of what the pool has; `images` is not looked at.
Status sum_pages(CudaStream& stream, const PageCopy& copy);

}  // namespace stemma
