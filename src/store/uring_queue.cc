// Every operation has a Flight, whose address is the operation's name in the ring.
#include "store/uring_queue.h"

#include <array>
#include <cerrno>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"

namespace stemma {

namespace {

// Of the system's own threads for operations that it cannot start at once.
constexpr unsigned kKernelWorkersMax = 8;

// Buffers that the system may still write to, for the life of the process.
void leave_to_the_system(std::unique_ptr<Buffer> buffer) {
  static std::mutex mutex;
  static std::vector<std::unique_ptr<Buffer>> left;
  const std::lock_guard lock(mutex);
  left.push_back(std::move(buffer));
}

void prepare(io_uring_sqe& entry, const DiskCall& call) {
  switch (call.kind) {
    case DiskCall::Kind::kOpen:
      io_uring_prep_openat(&entry, call.descriptor, call.name.c_str(), call.flags, 0600);
      return;
    case DiskCall::Kind::kAllocate:
      io_uring_prep_fallocate(&entry, call.descriptor, 0, 0, call.bytes);
      return;
    case DiskCall::Kind::kRename:
      io_uring_prep_renameat(&entry, call.descriptor, call.name.c_str(), call.descriptor,
                             call.new_name.c_str(), 0);
      return;
    case DiskCall::Kind::kRemove:
      io_uring_prep_unlinkat(&entry, call.descriptor, call.name.c_str(), 0);
      return;
    case DiskCall::Kind::kSync:
      io_uring_prep_fsync(&entry, call.descriptor, call.data_only ? IORING_FSYNC_DATASYNC : 0);
      return;
  }
}

}  // namespace

Result<std::unique_ptr<UringQueue>> UringQueue::open(const Clock& clock,
                                                     const DiskQueueOptions& options) {
  std::unique_ptr<UringQueue> queue(new UringQueue(clock, options));
  STEMMA_RETURN_IF_ERROR(queue->open_ring());
  STEMMA_RETURN_IF_ERROR(queue->allocate_buffers());
  return queue;
}

Status UringQueue::open_ring() {
  const int answer = io_uring_queue_init(static_cast<unsigned>(depth()), &ring_, 0);
  if (answer < 0) {
    return Error{ErrorCode::kUnsupported, "this system has or allows no io_uring", -answer};
  }
  ring_open_ = true;
  if ((ring_.features & IORING_FEAT_EXT_ARG) == 0) {  // nor can it rename: Linux 5.11 has both
    return Error{ErrorCode::kUnsupported, "io_uring of Linux 5.11 or later is needed"};
  }
  // A child of fork() has no part in it. Where that is not to be had, it makes no use of it either.
  static_cast<void>(io_uring_ring_dontfork(&ring_));
  unsigned workers[2] = {kKernelWorkersMax, kKernelWorkersMax};
  const int limited = io_uring_register_iowq_max_workers(&ring_, workers);
  STEMMA_CHECK(limited <= 0, "a limit is set or refused by an older system, which has its own");
  return {};
}

UringQueue::~UringQueue() {
  if (!ring_open_) return;
  if (overdue() > 0) leave_to_the_system(release_buffers());
  io_uring_queue_exit(&ring_);
}

io_uring_sqe& UringQueue::new_entry() {
  io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
  STEMMA_CHECK(entry != nullptr, "the ring has an entry for each flight");
  return *entry;
}

void UringQueue::start(Flight& flight, const Piece& piece) {
  io_uring_sqe& entry = new_entry();
  const auto size = static_cast<unsigned>(piece.bytes.size());
  const auto offset = static_cast<std::uint64_t>(piece.offset_bytes);
  if (piece.reads) {
    io_uring_prep_read(&entry, piece.descriptor, piece.bytes.data(), size, offset);
  } else {
    io_uring_prep_write(&entry, piece.descriptor, piece.bytes.data(), size, offset);
  }
  io_uring_sqe_set_data(&entry, &flight);
}

void UringQueue::start(Flight& flight, const DiskCall& call) {
  io_uring_sqe& entry = new_entry();
  prepare(entry, call);
  io_uring_sqe_set_data(&entry, &flight);
}

// Hands over what is prepared first.
bool UringQueue::wait(std::int64_t deadline_us) {
  const std::int64_t left = left_us(deadline_us);
  __kernel_timespec time = {.tv_sec = left / 1'000'000, .tv_nsec = left % 1'000'000 * 1'000};
  io_uring_cqe* first = nullptr;
  const int answer = io_uring_submit_and_wait_timeout(&ring_, &first, 1, &time, nullptr);
  if (io_uring_cq_ready(&ring_) > 0) {
    reap();
    return true;
  }
  // Without memory for it the system takes nothing now, and may in a moment.
  const bool refused = answer == -EAGAIN && left > 0;
  if (refused) std::this_thread::yield();
  return answer >= 0 || answer == -EINTR || refused || left == kWaitMaxUs;
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

// What the system has refused to take still lies in the ring, and would be handed over with the
// next operation: by then its names are gone, and its descriptor may be another file's.
void UringQueue::take_back_unstarted() {
  const unsigned unsubmitted = io_uring_sq_ready(&ring_);
  for (unsigned i = 0; i < unsubmitted; ++i) {
    --ring_.sq.sqe_tail;
    const io_uring_sqe& entry = ring_.sq.sqes[ring_.sq.sqe_tail & ring_.sq.ring_mask];
    make_free(*reinterpret_cast<Flight*>(static_cast<std::uintptr_t>(entry.user_data)));
  }
  ring_.sq.sqe_head = ring_.sq.sqe_tail;
  *ring_.sq.ktail = ring_.sq.sqe_tail;
}

}  // namespace stemma
