// UringQueue: operations on descriptors through one io_uring, ended by a deadline or given up.
//
// Bytes go through the queue's own buffers. An operation that is given up keeps its buffer until
// the system is done with it, so that a disk that hangs costs buffers, in the end all of them, and
// every further operation its deadline; but never a thread and never a byte of a caller's memory.
// A queue that is destroyed meanwhile leaves its buffers to the system for the life of the process.
//
// Thread:     one at a time.
// Memory:     depth × piece_bytes of buffers, at opening.
// Cost:       a copy of what is moved; a system call a round.
// Not here:   which files (uring_files).
#pragma once

#include <liburing.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "device/buffer.h"
#include "stemma/result.h"
#include "store/disk_files.h"

namespace stemma {

struct UringQueueOptions {
  int depth = 32;                       // operations at once
  std::size_t piece_bytes = 512 << 10;  // a longer transfer is cut into such pieces
};

// Bytes from or to a descriptor: one of `target` and `source` is empty.
struct UringTransfer {
  int descriptor = -1;
  std::int64_t offset_bytes = 0;
  std::span<std::byte> target;
  std::span<const std::byte> source;
  DiskOutcome outcome = DiskOutcome::kFailed;
  int sys_errno = 0;
  std::size_t left_bytes = 0;  // the queue's own
};

// A call of the system that moves no bytes.
struct UringCall {
  enum class Kind : std::uint8_t { kOpen, kAllocate, kRename, kRemove, kSync };
  Kind kind = Kind::kSync;
  int descriptor = -1;  // of the directory, or of the file
  std::string name = {};
  std::string new_name = {};
  int flags = 0;
  std::int64_t bytes = 0;
};

class UringQueue {
 public:
  // kUnsupported where the system has or allows no io_uring; kOutOfMemory. `clock` must outlive it.
  static Result<std::unique_ptr<UringQueue>> open(const Clock& clock,
                                                  const UringQueueOptions& options);
  ~UringQueue();
  UringQueue(const UringQueue&) = delete;
  UringQueue& operator=(const UringQueue&) = delete;

  // Sets every outcome by the deadline.
  void run(std::span<UringTransfer> transfers, std::int64_t deadline_us);

  // What the system answered (negative: errno); nullopt when overdue. A descriptor that an overdue
  // kOpen yields later is closed.
  std::optional<int> run(const UringCall& call, std::int64_t deadline_us);

  // Operations given up and not ended yet.
  std::int64_t overdue();

 private:
  // A place for one operation.
  struct Flight {
    enum class State : std::uint8_t { kFree, kPiece, kCall, kGivenUp };
    std::span<std::byte> buffer;
    State state = State::kFree;
    bool opens = false;                 // its answer is a descriptor
    UringTransfer* transfer = nullptr;  // of a piece
    std::size_t offset_in_transfer = 0;
    std::size_t bytes = 0;
    std::size_t done_bytes = 0;
  };
  struct Progress {
    std::span<UringTransfer> transfers;
    std::size_t next = 0;         // the transfer to cut the next piece from
    std::size_t next_offset = 0;  // and where
  };

  UringQueue(const Clock& clock, const UringQueueOptions& options);
  Status start();
  bool start_pieces(Progress& progress);
  void submit_piece(Flight& flight);
  io_uring_sqe& new_entry();
  Flight* try_wait_for_flight(std::int64_t deadline_us);
  bool wait(std::int64_t deadline_us);
  void reap();
  void take_answer(Flight& flight, int answer);
  void take_piece(Flight& flight, int answer);
  void fail(Flight& flight, DiskOutcome outcome, int sys_errno);
  void land(Flight& flight);
  void make_free(Flight& flight);
  void give_up();
  void take_back_unsubmitted();

  const Clock& clock_;
  UringQueueOptions options_;
  std::unique_ptr<Buffer> buffer_;
  io_uring ring_ = {};
  bool ring_open_ = false;
  std::vector<Flight> flights_;
  int current_ = 0;  // operations of the call that runs now
  int overdue_ = 0;  // operations given up
  int answer_ = 0;   // to the UringCall that ran last
};

}  // namespace stemma
