#include "device/cuda_pinned_turns.h"

namespace stemma {

Result<PinnedTurns> PinnedTurns::create(CudaDevice& device, std::size_t size_bytes) {
  PinnedTurns turns;
  for (Piece& piece : turns.pieces_) {
    STEMMA_ASSIGN_OR_RETURN(piece.pinned, device.allocate_pinned(size_bytes));
    STEMMA_ASSIGN_OR_RETURN(piece.copied, device.make_event());
  }
  return turns;
}

PinnedTurns::~PinnedTurns() {
  for (const Piece& piece : pieces_) {
    if (piece.copied.raw() == nullptr) continue;
    ignore_error(piece.copied.wait(), "a device that failed copies nothing any more");
  }
}

Result<std::byte*> PinnedTurns::begin() {
  const Piece& piece = pieces_[next_];
  STEMMA_RETURN_IF_ERROR(piece.copied.wait());
  return piece.pinned.bytes();
}

Status PinnedTurns::copy_in(CudaStream& stream, void* device, std::size_t size_bytes) {
  STEMMA_RETURN_IF_ERROR(stream.copy_in(device, pieces_[next_].pinned.bytes(), size_bytes));
  return end_turn(stream);
}

Status PinnedTurns::copy_rows_in(CudaStream& stream, void* device, const CudaRows& rows) {
  STEMMA_RETURN_IF_ERROR(stream.copy_rows_in(device, pieces_[next_].pinned.bytes(), rows));
  return end_turn(stream);
}

Status PinnedTurns::end_turn(CudaStream& stream) {
  Piece& piece = pieces_[next_];
  next_ = 1 - next_;
  const Status recorded = stream.record(piece.copied);
  if (recorded.ok()) return {};
  // No event stands for the copy: nobody else would wait for it.
  ignore_error(stream.synchronize(), "a device that failed copies nothing any more");
  return recorded;
}

}  // namespace stemma
