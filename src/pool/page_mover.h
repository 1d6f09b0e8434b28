// PageMover: moves pages between a device pool and the host memory below it, the way that suits the
// device (KvPool::make_mover).
//
// Thread:     one thread backs up, one promotes, any number copy pages in, all at once and of
//             different pages; try_wait_on from any.      Invariants: I5, I6, I8
//             (docs/INVARIANTS.md).
// Memory:     of the CPU's none; of a GPU's staging for one page and lists of pages, at its making.
// Cost:       one copy of what moves, sums included. All calls return when what they queued is
//             done, whatever became of it.
// Not here:   which pages move (cache/), on which thread (tier/), images (host_pool).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/function_ref.h"
#include "pool/host_pool.h"
#include "stemma/ids.h"

namespace stemma {

class CudaStream;

// Told how far a promotion is, layer by layer, all of them and in their order.
class LayerArrivals {
 public:
  virtual ~LayerArrivals() = default;

  // Of devices that copy by themselves: the copies of `layer` of every page are queued, and
  // try_wait_on may name it.
  virtual void queued(std::int64_t layer) = 0;
  // Nothing more is written to `layer` of any page; whether it, and those before, have come right.
  virtual void arrived(std::int64_t layer, bool right) = 0;
};

class PageMover {
 public:
  using GoOn = HostPool::GoOn;

  virtual ~PageMover() = default;

  // As HostPool::backup, after what the device computes by now. A page that the device does not
  // give is kCancelled.
  virtual void back_up(std::span<PageMove> moves, GoOn go_on) = 0;

  // As HostPool::promote of all layers. `go_on` is asked before each layer, or oftener. What the
  // device does not take is kCancelled. Of pages without layers the first one arrives.
  virtual void promote(std::span<PageMove> moves, GoOn go_on, LayerArrivals& arrivals) = 0;

  // Lets what is queued on `stream` from here on begin after the copies of `layer` of the promotion
  // that runs. Their sums have not been compared then. False if nothing was queued: the device has
  // no streams, or has failed. REQUIRES: the promotion has said that the layer is queued.
  [[nodiscard]] virtual bool try_wait_on(CudaStream& stream, std::int64_t layer) = 0;

  // Copies an image, [layers, layer_bytes] as the host pool keeps it, from any host memory to a
  // page of the device: kDone; kCorrupt if a layer's sum is wrong, kCancelled if the device does
  // not take it: then what was written must not be used.
  [[nodiscard]] virtual MoveVerdict copy_page_in(std::span<const std::byte> image,
                                                 std::span<const std::uint32_t> sums,
                                                 PageId page) = 0;
};

}  // namespace stemma
