// Every operation has a Flight, whose address is the operation's name in the ring. While a flight
// is busy the system may write to its buffer; it is not given to another operation before the
// answer has come, however long ago its caller went away.
#include "store/uring_queue.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/check.h"

namespace stemma {

namespace {

constexpr std::size_t kDirectBytes = 4096;
// Deadlines may be as far away as numbers go; a wait is not.
constexpr std::int64_t kWaitMaxUs = 3'600'000'000;
// Of the system's own threads for operations that it cannot start at once.
constexpr unsigned kKernelWorkersMax = 8;

// Buffers that the system may still write to, for the life of the process.
void leave_to_the_system(std::unique_ptr<Buffer> buffer) {
  static std::mutex mutex;
  static std::vector<std::unique_ptr<Buffer>> left;
  const std::lock_guard lock(mutex);
  left.push_back(std::move(buffer));
}

bool to_be_repeated(int answer) {
  return answer == -EINTR || answer == -EAGAIN;
}

void prepare(io_uring_sqe& entry, const UringCall& call) {
  switch (call.kind) {
    case UringCall::Kind::kOpen:
      io_uring_prep_openat(&entry, call.descriptor, call.name.c_str(), call.flags, 0600);
      return;
    case UringCall::Kind::kAllocate:
      io_uring_prep_fallocate(&entry, call.descriptor, 0, 0, call.bytes);
      return;
    case UringCall::Kind::kRename:
      io_uring_prep_renameat(&entry, call.descriptor, call.name.c_str(), call.descriptor,
                             call.new_name.c_str(), 0);
      return;
    case UringCall::Kind::kRemove:
      io_uring_prep_unlinkat(&entry, call.descriptor, call.name.c_str(), 0);
      return;
    case UringCall::Kind::kSync:
      io_uring_prep_fsync(&entry, call.descriptor, static_cast<unsigned>(call.flags));
      return;
  }
}

}  // namespace

UringQueue::UringQueue(const Clock& clock, const UringQueueOptions& options)
    : clock_(clock), options_(options) {}

Result<std::unique_ptr<UringQueue>> UringQueue::open(const Clock& clock,
                                                     const UringQueueOptions& options) {
  STEMMA_CHECK_GE(options.depth, 1);
  STEMMA_CHECK_EQ(options.piece_bytes % kDirectBytes, 0u);
  std::unique_ptr<UringQueue> queue(new UringQueue(clock, options));
  STEMMA_RETURN_IF_ERROR(queue->start());
  return queue;
}

Status UringQueue::start() {
  const auto depth = static_cast<std::size_t>(options_.depth);
  STEMMA_ASSIGN_OR_RETURN(Buffer buffer, Buffer::allocate(depth * options_.piece_bytes));
  buffer_ = std::make_unique<Buffer>(std::move(buffer));
  flights_.resize(depth);
  for (std::size_t i = 0; i < depth; ++i) {
    flights_[i].buffer =
        buffer_->as<std::byte>().subspan(i * options_.piece_bytes, options_.piece_bytes);
  }
  const int answer = io_uring_queue_init(static_cast<unsigned>(options_.depth), &ring_, 0);
  if (answer < 0) {
    return Error{ErrorCode::kUnsupported,
                 "the disk tier needs io_uring, which this system has not or does not allow",
                 -answer};
  }
  ring_open_ = true;
  if ((ring_.features & IORING_FEAT_EXT_ARG) == 0) {  // nor can it rename: Linux 5.11 has both
    return Error{ErrorCode::kUnsupported, "the disk tier needs Linux 5.11, for io_uring"};
  }
  unsigned workers[2] = {kKernelWorkersMax, kKernelWorkersMax};
  const int limited = io_uring_register_iowq_max_workers(&ring_, workers);
  STEMMA_CHECK(limited <= 0, "a limit is set or refused by an older system, which has its own");
  return {};
}

UringQueue::~UringQueue() {
  if (ring_open_ && overdue() > 0) leave_to_the_system(std::move(buffer_));
  if (ring_open_) io_uring_queue_exit(&ring_);
}

void UringQueue::run(std::span<UringTransfer> transfers, std::int64_t deadline_us) {
  STEMMA_CHECK_EQ(current_, 0);
  Progress progress{transfers};
  for (UringTransfer& transfer : transfers) {
    transfer.left_bytes = transfer.target.size() + transfer.source.size();
    transfer.outcome = transfer.left_bytes == 0 ? DiskOutcome::kDone : DiskOutcome::kOverdue;
  }
  for (;;) {
    const bool more = start_pieces(progress);
    if (!more && current_ == 0) return;
    if (!wait(deadline_us)) {
      give_up();
      return;
    }
  }
}

// Fills free flights with the next pieces. Whether some are left.
bool UringQueue::start_pieces(Progress& progress) {
  for (Flight& flight : flights_) {
    while (progress.next < progress.transfers.size()) {
      const UringTransfer& transfer = progress.transfers[progress.next];
      // What has failed already needs no further pieces.
      const bool over = transfer.outcome != DiskOutcome::kOverdue;
      if (!over && progress.next_offset < transfer.target.size() + transfer.source.size()) break;
      ++progress.next;
      progress.next_offset = 0;
    }
    if (progress.next == progress.transfers.size()) return false;
    if (flight.state != Flight::State::kFree) continue;
    UringTransfer& transfer = progress.transfers[progress.next];
    const std::size_t size = transfer.target.size() + transfer.source.size();
    flight.state = Flight::State::kPiece;
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
    submit_piece(flight);
  }
  return true;
}

void UringQueue::submit_piece(Flight& flight) {
  const UringTransfer& transfer = *flight.transfer;
  std::byte* const bytes = flight.buffer.data() + flight.done_bytes;
  const auto size = static_cast<unsigned>(flight.bytes - flight.done_bytes);
  const auto offset = static_cast<std::uint64_t>(transfer.offset_bytes) +
                      flight.offset_in_transfer + flight.done_bytes;
  io_uring_sqe& entry = new_entry();
  if (transfer.source.empty()) {
    io_uring_prep_read(&entry, transfer.descriptor, bytes, size, offset);
  } else {
    io_uring_prep_write(&entry, transfer.descriptor, bytes, size, offset);
  }
  io_uring_sqe_set_data(&entry, &flight);
}

io_uring_sqe& UringQueue::new_entry() {
  io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
  STEMMA_CHECK(entry != nullptr, "the ring has an entry for each flight");
  return *entry;
}

std::optional<int> UringQueue::run(const UringCall& call, std::int64_t deadline_us) {
  STEMMA_CHECK_EQ(current_, 0);
  do {
    Flight* const flight = try_wait_for_flight(deadline_us);
    if (flight == nullptr) return std::nullopt;
    flight->state = Flight::State::kCall;
    flight->opens = call.kind == UringCall::Kind::kOpen;
    ++current_;
    io_uring_sqe& entry = new_entry();
    prepare(entry, call);
    io_uring_sqe_set_data(&entry, flight);
    while (current_ > 0) {
      if (!wait(deadline_us)) {
        give_up();
        return std::nullopt;
      }
    }
  } while (to_be_repeated(answer_));
  return answer_;
}

UringQueue::Flight* UringQueue::try_wait_for_flight(std::int64_t deadline_us) {
  for (;;) {
    const auto found = std::ranges::find(flights_, Flight::State::kFree, &Flight::state);
    if (found != flights_.end()) return &*found;
    if (!wait(deadline_us)) return nullptr;
  }
}

// Hands over what is prepared and waits for an answer. False when the deadline has passed.
bool UringQueue::wait(std::int64_t deadline_us) {
  const std::int64_t now_us = clock_.now_us();
  const std::int64_t left_us =
      deadline_us <= now_us ? 0 : std::min(deadline_us - now_us, kWaitMaxUs);
  __kernel_timespec time = {.tv_sec = left_us / 1'000'000, .tv_nsec = left_us % 1'000'000 * 1'000};
  io_uring_cqe* first = nullptr;
  const int answer = io_uring_submit_and_wait_timeout(&ring_, &first, 1, &time, nullptr);
  if (io_uring_cq_ready(&ring_) > 0) {
    reap();
    return true;
  }
  const bool interrupted = answer >= 0 || answer == -EINTR;
  return interrupted || left_us == kWaitMaxUs;
}

void UringQueue::reap() {
  std::array<io_uring_cqe*, 64> ready = {};
  for (;;) {
    const unsigned count =
        io_uring_peek_batch_cqe(&ring_, ready.data(), static_cast<unsigned>(ready.size()));
    if (count == 0) return;
    for (unsigned i = 0; i < count; ++i) {
      auto* const flight = static_cast<Flight*>(io_uring_cqe_get_data(ready[i]));
      const int answer = ready[i]->res;
      io_uring_cqe_seen(&ring_, ready[i]);
      take_answer(*flight, answer);
    }
  }
}

void UringQueue::take_answer(Flight& flight, int answer) {
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
      --overdue_;
      return make_free(flight);
  }
}

void UringQueue::take_piece(Flight& flight, int answer) {
  const bool reads = flight.transfer->source.empty();
  if (to_be_repeated(answer)) return submit_piece(flight);
  if (answer < 0) return fail(flight, DiskOutcome::kFailed, -answer);
  if (answer == 0 && reads) return fail(flight, DiskOutcome::kShort, 0);
  if (answer == 0) return fail(flight, DiskOutcome::kFailed, ENOSPC);
  flight.done_bytes += static_cast<std::size_t>(answer);
  if (flight.done_bytes == flight.bytes) return land(flight);
  // A direct read that stops inside a sector has met the end of the file.
  if (reads && flight.done_bytes % kDirectBytes != 0) return fail(flight, DiskOutcome::kShort, 0);
  submit_piece(flight);
}

void UringQueue::fail(Flight& flight, DiskOutcome outcome, int sys_errno) {
  flight.transfer->outcome = outcome;
  flight.transfer->sys_errno = sys_errno;
  --current_;
  make_free(flight);
}

void UringQueue::land(Flight& flight) {
  UringTransfer& transfer = *flight.transfer;
  if (!transfer.target.empty()) {
    std::memcpy(transfer.target.data() + flight.offset_in_transfer, flight.buffer.data(),
                flight.bytes);
  }
  transfer.left_bytes -= flight.bytes;
  if (transfer.left_bytes == 0) transfer.outcome = DiskOutcome::kDone;
  --current_;
  make_free(flight);
}

void UringQueue::make_free(Flight& flight) {
  flight.state = Flight::State::kFree;
  flight.opens = false;
  flight.transfer = nullptr;
}

void UringQueue::give_up() {
  take_back_unsubmitted();
  for (Flight& flight : flights_) {
    if (flight.state != Flight::State::kPiece && flight.state != Flight::State::kCall) continue;
    flight.state = Flight::State::kGivenUp;
    flight.transfer = nullptr;  // its caller goes away now
    ++overdue_;
  }
  current_ = 0;
}

// What the system has refused to take still lies in the ring, and would be handed over with the
// next operation: by then its names are gone, and its descriptor may be another file's.
void UringQueue::take_back_unsubmitted() {
  const unsigned unsubmitted = io_uring_sq_ready(&ring_);
  for (unsigned i = 0; i < unsubmitted; ++i) {
    --ring_.sq.sqe_tail;
    const io_uring_sqe& entry = ring_.sq.sqes[ring_.sq.sqe_tail & ring_.sq.ring_mask];
    make_free(*reinterpret_cast<Flight*>(static_cast<std::uintptr_t>(entry.user_data)));
  }
  ring_.sq.sqe_head = ring_.sq.sqe_tail;
  *ring_.sq.ktail = ring_.sq.sqe_tail;
}

std::int64_t UringQueue::overdue() {
  if (overdue_ > 0) reap();
  return overdue_;
}

}  // namespace stemma
