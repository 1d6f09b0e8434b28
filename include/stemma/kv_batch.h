// KvBatch: one step's work, the declaration at which control plane and data plane meet.
//
// The control plane fills it and knows nothing of bytes; a Runner reads it and knows nothing of
// trees or requests.
//
// Thread:     a view; valid until the step that it was made for has retired.
// Memory:     none of its own; the batch builder owns the arrays, sized at start-up.
// Cost:       none.
// Not here:   which requests run and why (sched/), what is computed (Runner).
#pragma once

#include <cstdint>
#include <span>

#include "stemma/ids.h"
#include "stemma/page_table.h"

namespace stemma {

class CudaStream;  // device/cuda_device.h

// Pages of a batch that are still on their way up from a lower tier while it is computed.
class LayerGate {
 public:
  virtual ~LayerGate() = default;

  // Waits until every page of the batch holds `layer`, and what is there was verified. False if a
  // page turned out to be wrong or will not come: nothing computed from this batch will be used.
  [[nodiscard]] virtual bool wait(std::int64_t layer) = 0;

  // For runners that queue their work: what is queued on `stream` from here on begins when every
  // page of the batch holds `layer`. That it is right need not have been verified by then, but will
  // have been before anything computed from this batch is used. False as `wait`.
  [[nodiscard]] virtual bool wait_on(CudaStream& stream, std::int64_t layer) {
    static_cast<void>(stream);
    return wait(layer);
  }
};

// Rows are tokens to compute now, request by request, in token order. A request's rows are the last
// ones of its page table: a chunk of its prompt, or the one token of a decode step. Prefill and
// decode requests mix freely.
struct KvBatch {
  std::span<const TokenId> tokens;           // [rows]
  std::span<const std::int32_t> positions;   // place in its request, from 0   [rows]
  std::span<const SlotId> write_slots;       // where its K and V go           [rows]
  std::span<const std::int32_t> row_indptr;  // where each request's rows begin   [requests + 1]
  std::span<const RequestId> requests;  // whose they are: for logs and tests; invalid: nobody's,
                                        // pages computed again to be compared   [requests]
  // What each is computed with; invalid: the model alone. Empty: all are.   [requests]
  std::span<const AdapterId> adapters = {};
  PageTableView page_table;  // every token up to this step's last    [requests]
  // The same of the layers that look back over a window: pages of another pool. Those before the
  // window of a request's first row here are invalid ids. Empty where there are no such layers.
  std::span<const SlotId> windowed_slots = {};  // [rows]
  PageTableView windowed_table = {};            // [requests]
  std::span<const std::int32_t>
      logit_rows;  // the rows whose logits are wanted, ascending   [outputs]
  // Asked before a layer of the page table is read; nullptr: everything is there.
  LayerGate* arriving = nullptr;

  std::int64_t rows() const noexcept { return static_cast<std::int64_t>(tokens.size()); }
  std::int64_t outputs() const noexcept { return static_cast<std::int64_t>(logit_rows.size()); }
};

}  // namespace stemma
