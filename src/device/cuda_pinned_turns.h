// PinnedTurns: two pieces of pinned memory, one being written while the other is copied to the
// device.
//
// Thread:     one thread; copies on one stream at a time.
// Memory:     two pinned pieces, at creation.
// Cost:       begin waits only if the copy before the last is still queued.
// Not here:   what is written.
#pragma once

#include <array>
#include <cstddef>

#include "device/cuda_device.h"
#include "stemma/result.h"

namespace stemma {

class PinnedTurns {
 public:
  // kOutOfMemory. The device must outlive it.
  static Result<PinnedTurns> create(CudaDevice& device, std::size_t size_bytes);
  PinnedTurns() = default;
  PinnedTurns(PinnedTurns&&) noexcept = default;
  PinnedTurns& operator=(PinnedTurns&&) noexcept = default;
  // Waits for the copies that are queued.
  ~PinnedTurns();

  // The piece whose turn it is, all of it, once nothing queued reads it any more.
  Result<std::byte*> begin();
  // Queues a copy of its first `size_bytes` to `device`; it is the other's turn then.
  // REQUIRES: begin was called, and nothing is written to the piece from here on.
  Status copy_in(CudaStream& stream, void* device, std::size_t size_bytes);
  // The same of rows of it.
  Status copy_rows_in(CudaStream& stream, void* device, const CudaRows& rows);

 private:
  Status end_turn(CudaStream& stream);

  struct Piece {
    PinnedMemory pinned;
    CudaEvent copied;
  };

  std::array<Piece, 2> pieces_;
  std::size_t next_ = 0;
};

}  // namespace stemma
