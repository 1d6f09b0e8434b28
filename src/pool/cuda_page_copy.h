// Copies of whole pages between a CudaPool and images in pinned memory, queued one of two ways.
//
// kKernels   one launch gathers or scatters any number of pages and takes their sums
//            (page_copy_cuda). It takes a few multiprocessors' time.
// kEngines   each piece of each page is a copy of its own, that of a copy engine, all layers of it
//            being rows of one; then a kernel sums what lies on the device.
//
// A copy takes one to two microseconds to begin, so that engines reach a link's rate only with
// large pieces and many of them: best_way says from which sizes on (docs/GPU.md has what was
// measured). From there on both are as fast, and engines leave the multiprocessors alone.
//
// Thread:     as CudaStream.
// Memory:     none.
// Cost:       a launch, or a copy a piece of each page.
// Not here:   kernels (page_copy_cuda), what sums are compared with (cuda_page_mover).
#pragma once

#include <cstdint>
#include <span>

#include "device/cuda_device.h"
#include "pool/cuda_pool.h"
#include "pool/host_pool.h"
#include "pool/page_copy_cuda.h"
#include "stemma/result.h"

namespace stemma {

enum class CopyWay : std::uint8_t { kKernels, kEngines };

// Pieces of this size, the mean of a layer's, are copied by engines where a call has so many bytes.
inline constexpr std::int64_t kEnginePieceBytes = std::int64_t{512} << 10;
inline constexpr std::int64_t kEngineCallBytes = std::int64_t{64} << 20;
CopyWay best_way(const PageCopy& copy);

// What all copies of a pool have in common: pieces and the sum of zeros. Tables, images, pages,
// layers and sums are each call's.
PageCopy pages_of(CudaPool& pool);
// Images as a host pool keeps them.
PageImages images_of(HostPool& host);

// As copy_pages_out and copy_pages_in. `pairs`: what copy.pages has on the device.
Status queue_pages_out(CudaStream& stream, const PageCopy& copy, std::span<const PagePair> pairs,
                       CopyWay way);
Status queue_pages_in(CudaStream& stream, const PageCopy& copy, std::span<const PagePair> pairs,
                      CopyWay way);

}  // namespace stemma
