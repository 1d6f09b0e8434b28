// While a flight is busy the system may write to its buffer; it is not given to another operation
// before the answer has come, however long ago its caller went away.
#include "store/disk_queue.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace stemma {

namespace {

constexpr std::size_t kDirectBytes = 4096;

// The ring, or the threads, are those of another process.
constexpr int kOtherProcess = ECHILD;

bool to_be_repeated(int answer) {
  return answer == -EINTR || answer == -EAGAIN;
}

}  // namespace

DiskQueue::DiskQueue(const Clock& clock, const DiskQueueOptions& options)
    : clock_(clock), options_(options) {
  STEMMA_CHECK_GE(options.depth, 1);
  STEMMA_CHECK_EQ(options.piece_bytes % kDirectBytes, 0u);
}

Status DiskQueue::allocate_buffers() {
  const auto depth = static_cast<std::size_t>(options_.depth);
  STEMMA_ASSIGN_OR_RETURN(Buffer buffer, Buffer::allocate(depth * options_.piece_bytes));
  buffer_ = std::make_unique<Buffer>(std::move(buffer));
  flights_.resize(depth);
  held_ = std::vector<std::atomic<int>>(depth);
  for (std::atomic<int>& descriptor : held_) descriptor = -1;
  for (std::size_t i = 0; i < depth; ++i) {
    flights_[i].buffer =
        buffer_->as<std::byte>().subspan(i * options_.piece_bytes, options_.piece_bytes);
  }
  return {};
}

void DiskQueue::run(std::span<DiskTransfer> transfers, std::int64_t deadline_us) {
  if (!opened_in_.is_here()) {
    for (DiskTransfer& transfer : transfers) {
      transfer.outcome = DiskOutcome::kFailed;
      transfer.sys_errno = kOtherProcess;
    }
    return;
  }
  STEMMA_CHECK_EQ(current_, 0);
  Progress progress{transfers};
  for (DiskTransfer& transfer : transfers) {
    transfer.left_bytes = transfer.target.size() + transfer.source.size();
    transfer.outcome = transfer.left_bytes == 0 ? DiskOutcome::kDone : DiskOutcome::kOverdue;
  }
  for (;;) {
    const bool more = start_pieces(progress);
    if (!more && current_ == 0) return;
    // Where answers come one after the other there is always one to be had without a wait.
    if (!wait(deadline_us) || left_us(deadline_us) == 0) return give_up();
  }
}

// Fills free flights with the next pieces. Whether some are left.
bool DiskQueue::start_pieces(Progress& progress) {
  for (Flight& flight : flights_) {
    while (progress.next < progress.transfers.size()) {
      const DiskTransfer& transfer = progress.transfers[progress.next];
      // What has failed already needs no further pieces.
      const bool over = transfer.outcome != DiskOutcome::kOverdue;
      if (!over && progress.next_offset < transfer.target.size() + transfer.source.size()) break;
      ++progress.next;
      progress.next_offset = 0;
    }
    if (progress.next == progress.transfers.size()) return false;
    if (flight.state != Flight::State::kFree) continue;
    DiskTransfer& transfer = progress.transfers[progress.next];
    const std::size_t size = transfer.target.size() + transfer.source.size();
    flight.state = Flight::State::kPiece;
    flight.descriptor = transfer.descriptor;
    flight.transfer = &transfer;
    flight.offset_in_transfer = progress.next_offset;
    flight.bytes = std::min(options_.piece_bytes, size - progress.next_offset);
    flight.done_bytes = 0;
    if (!transfer.source.empty()) {
      std::memcpy(flight.buffer.data(), transfer.source.data() + progress.next_offset,
                  flight.bytes);
    }
    progress.next_offset += flight.bytes;
    ++current_;
    start_piece(flight);
  }
  return true;
}

void DiskQueue::start_piece(Flight& flight) {
  const DiskTransfer& transfer = *flight.transfer;
  start(flight,
        {.descriptor = transfer.descriptor,
         .offset_bytes = transfer.offset_bytes +
                         static_cast<std::int64_t>(flight.offset_in_transfer + flight.done_bytes),
         .bytes = flight.buffer.first(flight.bytes).subspan(flight.done_bytes),
         .reads = transfer.source.empty()});
}

std::optional<int> DiskQueue::run(const DiskCall& call, std::int64_t deadline_us) {
  if (!opened_in_.is_here()) return -kOtherProcess;
  STEMMA_CHECK_EQ(current_, 0);
  do {
    Flight* const flight = try_wait_for_flight(deadline_us);
    if (flight == nullptr) return std::nullopt;
    flight->state = Flight::State::kCall;
    flight->descriptor = call.descriptor;
    flight->opens = call.kind == DiskCall::Kind::kOpen;
    ++current_;
    start(*flight, call);
    while (current_ > 0) {
      if (!wait(deadline_us)) {
        give_up();
        return std::nullopt;
      }
    }
  } while (to_be_repeated(answer_) && left_us(deadline_us) > 0);
  return to_be_repeated(answer_) ? std::nullopt : std::optional(answer_);
}

DiskQueue::Flight* DiskQueue::try_wait_for_flight(std::int64_t deadline_us) {
  for (;;) {
    const auto found = std::ranges::find(flights_, Flight::State::kFree, &Flight::state);
    if (found != flights_.end()) return &*found;
    if (!wait(deadline_us)) return nullptr;
  }
}

std::int64_t DiskQueue::left_us(std::int64_t deadline_us) const {
  const std::int64_t now_us = clock_.now_us();
  return deadline_us <= now_us ? 0 : std::min(deadline_us - now_us, kWaitMaxUs);
}

void DiskQueue::take_answer(Flight& flight, int answer) {
  switch (flight.state) {
    case Flight::State::kFree:
      STEMMA_CHECK(false, "an answer has a flight");
      return;
    case Flight::State::kPiece:
      return take_piece(flight, answer);
    case Flight::State::kCall:
      answer_ = answer;
      --current_;
      return make_free(flight);
    case Flight::State::kGivenUp:
      if (flight.opens && answer >= 0) ::close(answer);
      held_by(flight) = -1;
      --overdue_;
      return make_free(flight);
  }
}

void DiskQueue::take_piece(Flight& flight, int answer) {
  const bool reads = flight.transfer->source.empty();
  if (to_be_repeated(answer)) return start_piece(flight);
  if (answer < 0) return fail(flight, DiskOutcome::kFailed, -answer);
  if (answer == 0 && reads) return fail(flight, DiskOutcome::kShort, 0);
  if (answer == 0) return fail(flight, DiskOutcome::kFailed, ENOSPC);
  flight.done_bytes += static_cast<std::size_t>(answer);
  if (flight.done_bytes == flight.bytes) return land(flight);
  // A direct read that stops inside a sector has met the end of the file.
  if (reads && flight.done_bytes % kDirectBytes != 0) return fail(flight, DiskOutcome::kShort, 0);
  start_piece(flight);
}

void DiskQueue::fail(Flight& flight, DiskOutcome outcome, int sys_errno) {
  flight.transfer->outcome = outcome;
  flight.transfer->sys_errno = sys_errno;
  --current_;
  make_free(flight);
}

void DiskQueue::land(Flight& flight) {
  DiskTransfer& transfer = *flight.transfer;
  if (!transfer.target.empty()) {
    std::memcpy(transfer.target.data() + flight.offset_in_transfer, flight.buffer.data(),
                flight.bytes);
  }
  transfer.left_bytes -= flight.bytes;
  if (transfer.left_bytes == 0) transfer.outcome = DiskOutcome::kDone;
  --current_;
  make_free(flight);
}

void DiskQueue::make_free(Flight& flight) {
  flight.state = Flight::State::kFree;
  flight.opens = false;
  flight.transfer = nullptr;
}

void DiskQueue::give_up() {
  take_back_unstarted();
  for (Flight& flight : flights_) {
    if (flight.state != Flight::State::kPiece && flight.state != Flight::State::kCall) continue;
    flight.state = Flight::State::kGivenUp;
    flight.transfer = nullptr;  // its caller goes away now
    held_by(flight) = flight.descriptor;
    ++overdue_;
  }
  current_ = 0;
}

bool DiskQueue::holds(int descriptor) const noexcept {
  return std::ranges::any_of(held_, [&](const auto& held) { return held == descriptor; });
}

std::int64_t DiskQueue::overdue() {
  if (overdue_ > 0 && opened_in_.is_here()) reap();
  return overdue_;
}

}  // namespace stemma
