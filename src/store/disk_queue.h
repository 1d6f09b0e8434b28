// DiskQueue: operations on descriptors, many at once, ended by a deadline or given up.
//
// Bytes go through the queue's own buffers. An operation that is given up keeps its buffer until
// the system is done with it, so that a disk that hangs costs buffers, in the end all of them, and
// every further operation its deadline; but never a thread of the caller's and never a byte of its
// memory. In a child of the process that opened it (base/own_process) every operation fails at
// once.
//
// Thread:     one at a time.
// Memory:     depth × piece_bytes of buffers, at opening.
// Cost:       a copy of what is moved.
// Not here:   how the system is asked (uring_queue, thread_queue); which files (directory_files).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/own_process.h"
#include "device/buffer.h"
#include "stemma/result.h"
#include "store/disk_files.h"

namespace stemma {

struct DiskQueueOptions {
  int depth = 32;                       // operations at once
  std::size_t piece_bytes = 512 << 10;  // a longer transfer is cut into such pieces
};

// Bytes from or to a descriptor: one of `target` and `source` is empty.
struct DiskTransfer {
  int descriptor = -1;
  std::int64_t offset_bytes = 0;
  std::span<std::byte> target;
  std::span<const std::byte> source;
  DiskOutcome outcome = DiskOutcome::kFailed;
  int sys_errno = 0;
  std::size_t left_bytes = 0;  // the queue's own
};

// A call of the system that moves no bytes.
struct DiskCall {
  enum class Kind : std::uint8_t { kOpen, kAllocate, kRename, kRemove, kSync };
  Kind kind = Kind::kSync;
  int descriptor = -1;  // of the directory, or of the file
  std::string name = {};
  std::string new_name = {};
  int flags = 0;           // of kOpen
  bool data_only = false;  // of kSync: not when the file was changed
  std::int64_t bytes = 0;
};

class DiskQueue {
 public:
  virtual ~DiskQueue() = default;
  DiskQueue(const DiskQueue&) = delete;
  DiskQueue& operator=(const DiskQueue&) = delete;

  // Sets every outcome by the deadline.
  void run(std::span<DiskTransfer> transfers, std::int64_t deadline_us);

  // What the system answered (negative: errno); nullopt when overdue. A descriptor that an overdue
  // kOpen yields later is closed.
  std::optional<int> run(const DiskCall& call, std::int64_t deadline_us);

  // Operations given up and not ended yet.
  std::int64_t overdue();
  // Any thread: whether one of them is at work on this descriptor, or was when they were last
  // looked at.
  bool holds(int descriptor) const noexcept;

 protected:
  // A place for one operation.
  struct Flight {
    enum class State : std::uint8_t { kFree, kPiece, kCall, kGivenUp };
    std::span<std::byte> buffer;
    State state = State::kFree;
    int descriptor = -1;
    bool opens = false;                // its answer is a descriptor
    DiskTransfer* transfer = nullptr;  // of a piece
    std::size_t offset_in_transfer = 0;
    std::size_t bytes = 0;
    std::size_t done_bytes = 0;
  };
  // What a flight reads or writes now, from its buffer or to it.
  struct Piece {
    int descriptor = -1;
    std::int64_t offset_bytes = 0;
    std::span<std::byte> bytes;
    bool reads = false;
  };

  DiskQueue(const Clock& clock, const DiskQueueOptions& options);
  // Before anything is run.
  Status allocate_buffers();
  int depth() const noexcept { return options_.depth; }
  // The time to wait for, which is kWaitMaxUs at most.
  std::int64_t left_us(std::int64_t deadline_us) const;
  // Deadlines may be as far away as numbers go; a wait is not.
  static constexpr std::int64_t kWaitMaxUs = 3'600'000'000;
  // What has ended (negative: errno).
  void take_answer(Flight& flight, int answer);
  // One that was taken back.
  void make_free(Flight& flight);
  // Those that the system may still write to, of a queue that goes.
  std::unique_ptr<Buffer> release_buffers() { return std::move(buffer_); }

 private:
  struct Progress {
    std::span<DiskTransfer> transfers;
    std::size_t next = 0;         // the transfer to cut the next piece from
    std::size_t next_offset = 0;  // and where
  };

  // Hands an operation over, at once or with the next wait. There are never more than `depth`.
  virtual void start(Flight& flight, const Piece& piece) = 0;
  virtual void start(Flight& flight, const DiskCall& call) = 0;
  // Waits for an answer and takes all there are. False when the deadline has passed.
  virtual bool wait(std::int64_t deadline_us) = 0;
  // Takes the answers there are.
  virtual void reap() = 0;
  // Makes those free that the system has not been given: the names and descriptors of their callers
  // are gone by the time it would be.
  virtual void take_back_unstarted() = 0;

  bool start_pieces(Progress& progress);
  void start_piece(Flight& flight);
  Flight* try_wait_for_flight(std::int64_t deadline_us);
  void take_piece(Flight& flight, int answer);
  void fail(Flight& flight, DiskOutcome outcome, int sys_errno);
  void land(Flight& flight);
  void give_up();
  std::atomic<int>& held_by(const Flight& flight) {
    return held_[static_cast<std::size_t>(&flight - flights_.data())];
  }

  const Clock& clock_;
  const DiskQueueOptions options_;
  const OwnProcess opened_in_;
  std::unique_ptr<Buffer> buffer_;
  std::vector<Flight> flights_;
  std::vector<std::atomic<int>> held_;  // by flight: the descriptor of one that was given up, or -1
  int current_ = 0;                     // operations of the call that runs now
  int overdue_ = 0;                     // operations given up
  int answer_ = 0;                      // to the DiskCall that ran last
};

}  // namespace stemma
