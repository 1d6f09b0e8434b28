// UringQueue: a DiskQueue through one io_uring.
//
// A queue that is destroyed while operations are overdue leaves its buffers to the system for the
// life of the process.
//
// Thread:     one at a time.
// Memory:     as DiskQueue.
// Cost:       a system call a round.
// Not here:   pieces, deadlines, what is given up (disk_queue).
#pragma once

#include <liburing.h>

#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "stemma/result.h"
#include "store/disk_queue.h"

namespace stemma {

class UringQueue final : public DiskQueue {
 public:
  // kUnsupported where the system has or allows no io_uring; kOutOfMemory. `clock` must outlive it.
  static Result<std::unique_ptr<UringQueue>> open(const Clock& clock,
                                                  const DiskQueueOptions& options);
  ~UringQueue() override;

 private:
  UringQueue(const Clock& clock, const DiskQueueOptions& options) : DiskQueue(clock, options) {}
  Status open_ring();
  io_uring_sqe& new_entry();

  void start(Flight& flight, const Piece& piece) override;
  void start(Flight& flight, const DiskCall& call) override;
  bool wait(std::int64_t deadline_us) override;
  void reap() override;
  void take_back_unstarted() override;

  io_uring ring_ = {};
  bool ring_open_ = false;
};

}  // namespace stemma
