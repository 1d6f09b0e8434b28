// Store kernels of CUDA pools: rows scattered to their slots, 16 bytes an access. A part of a warp
// takes a row of K or of V, so that what it reads and what it writes are whole lines.
//
// Rows whose slot is not one of the pool's are not written: graphs are filled up with slots of −1.
// Scales, codes and rounded rows have the bits that the CPU's kernels give them (store_kernel.h).
//
// Thread:     as CudaStream.
// Memory:     none.
// Cost:       each byte is read once and written once; a launch, two of labelled pools.
// Not here:   checks of rows and layers (cuda_pool), strides (kv_layout).
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cuda_device.h"
#include "stemma/kv_shape.h"
#include "stemma/result.h"

namespace stemma {

// One layer of a CUDA pool as kernels write it; those that fuse something with the store take it
// too. The row of K of slot s, head h begins at element
// (s / page_size) × page_stride + (s % page_size) × token_stride + h × head_dim of `k`; V likewise.
struct StoreTarget {
  std::byte* k = nullptr;
  std::byte* v = nullptr;  // of a pool of latent rows null
  DType dtype = DType::kF32;
  std::int32_t page_size = 0;
  std::int32_t heads = 0;
  std::int32_t head_dim = 0;
  std::int64_t slots = 0;        // of the pool
  std::int64_t page_stride = 0;  // in elements
  std::int64_t token_stride = 0;

  // Of scaled dtypes, else null: the scale of slot s, head h is element
  // (s / page_size) × scale_page_stride + s % page_size + h × scale_head_stride.
  float* k_scales = nullptr;
  float* v_scales = nullptr;
  std::int64_t scale_page_stride = 0;
  std::int64_t scale_head_stride = 0;

  // Of labelled pools, else null: element i of the label of slot s, head h is that of K, as stored,
  // in channel heavy_channels[h × label_channels + i]; its place is made as that of K.
  std::byte* labels = nullptr;
  const std::int32_t* heavy_channels = nullptr;  // on the device
  std::int32_t label_channels = 0;
  std::int64_t label_page_stride = 0;
  std::int64_t label_token_stride = 0;
  std::int64_t label_head_stride = 0;
};

// Slots in the memory of a device, either 32 or 64 bits wide.
struct DeviceSlots {
  const std::int32_t* narrow = nullptr;
  const std::int64_t* wide = nullptr;  // if narrow is null
  std::int64_t count = 0;
};

// Rows of K or V on the device, [rows, heads, head_dim], the last two dense.
struct StoreSource {
  const std::byte* elements = nullptr;
  std::int64_t row_stride = 0;  // in elements
};

// Loads of a side that a lane has on its way before it stores, of rows that are copied: 1, 2 or 4.
// With fewer of them a part of the rows is stored while another is loaded, and the kernel behind
// finds room to begin; pool_cuda_bench has them all (docs/GPU.md).
inline constexpr int kStoreLoads = 4;

struct StoreCall {
  StoreTarget target;
  DeviceSlots slots;
  DType source_dtype = DType::kF32;
  StoreSource k;
  StoreSource v;  // not of a pool of latent rows
  int loads = kStoreLoads;
};

// Queues it. REQUIRES: slots that are in the pool differ. kInvalidArgument for a source dtype that
// is scaled, or of 16 bits and not the plain pool's.
Status store_rows_on(CudaStream& stream, const StoreCall& call);

}  // namespace stemma
