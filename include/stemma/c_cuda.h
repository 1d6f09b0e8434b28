// The C ABI of the component `cuda`: pools in the memory of a GPU (docs/EMBEDDING.md).
//
// Such a pool is opened, filled and copied by what is here, and is a stemma_pool for everything
// else: stemma_pool_layer tells its addresses, which are the device's, stemma_tiers_open puts host
// memory and stores below it, stemma_pool_close gives it back, when all that streams have queued on
// it is done. stemma_pool_store refuses it.
//
// A stream is the engine's cudaStream_t, NULL CUDA's default stream. Compiled against version
// STEMMA_ABI_VERSION of stemma/c.h, and in the library stemma_cuda.
//
// Thread:     what queues: one at a time; the pool's device becomes the thread's current one.
// Memory:     of the pool on the device, and a few KiB of pinned host memory.
// Cost:       a call that queues, some microseconds.
// Not here:   kernels of attention; C++ (stemma/cuda_pool.h).
#pragma once

#include "stemma/c.h"

#ifdef __cplusplus
extern "C" {
#endif

// GPUs that there are; 0 also where there is no driver.
STEMMA_API int32_t stemma_cuda_devices(void);

// As stemma_pool_open, on a device. NOT_FOUND: there is none of that number; UNSUPPORTED: it is
// older than compute capability 8.0.
STEMMA_API stemma_status stemma_cuda_pool_open(const stemma_pool_options* options, int32_t device,
                                               stemma_pool** pool);

// Rows that lie on the device, as stemma_pool_store takes them: [rows, heads, head_dim] of `dtype`,
// each row_stride elements behind the one before; STEMMA_MLA: of `k` alone, `v` is NULL.
typedef struct stemma_cuda_rows {
  size_t struct_size;
  const void* slots;  // on the device: row i goes to slots[i]; those outside the pool are left out
  const void* k;
  const void* v;
  int64_t rows;
  int64_t row_stride;
  int32_t slot_bytes;  // of each of `slots`: 4 or 8
  int32_t dtype;       // of k and v: STEMMA_F32, STEMMA_F16 or STEMMA_BF16
} stemma_cuda_rows;
// Queues the store of new rows.
STEMMA_API stemma_status stemma_cuda_pool_store(stemma_pool* pool, int64_t layer,
                                                const stemma_cuda_rows* rows, void* stream);

// Queues a copy of all of a page to another, as stemma_fork asks for it.
STEMMA_API stemma_status stemma_cuda_pool_copy_page(stemma_pool* pool, int32_t from, int32_t to,
                                                    void* stream);

// What is queued on `stream` by now uses the pool: pages go down to lower tiers after it. Once a
// step, before stemma_commit or stemma_finish; the last call counts. UNSUPPORTED while the stream
// records a graph: call it behind each launch of that. Pages that a request gives up
// are others' at once, or between stemma_step_begin and _retire when the stream has done.
STEMMA_API stemma_status stemma_cuda_pool_record_use(stemma_pool* pool, void* stream);

// As stemma_wait_layer, of what is queued on `stream` from here on: 1 does not say yet that what
// comes is right, stemma_end_loans does.
STEMMA_API int32_t stemma_cuda_wait_layer(stemma_cache* cache, int64_t layer, void* stream);

#ifdef __cplusplus
}
#endif
