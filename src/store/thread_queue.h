// ThreadQueue: a DiskQueue through threads that wait for the system's calls, where it allows no
// io_uring: in containers, whose usual filters of system calls forbid it.
//
// Thread:     one at a time; eight of its own at most, which sleep while there is nothing to do.
// Memory:     as DiskQueue, and the threads' stacks.
// Cost:       two hand-overs an operation beside its system call. The destructor waits for
//             operations that were given up, where that of io_uring leaves them to the system.
// Not here:   pieces, deadlines, what is given up (disk_queue).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/bounded_queue.h"
#include "base/clock.h"
#include "stemma/result.h"
#include "store/disk_queue.h"

namespace stemma {

class ThreadQueue final : public DiskQueue {
 public:
  // kOutOfMemory. `clock` must outlive it.
  static Result<std::unique_ptr<ThreadQueue>> open(const Clock& clock,
                                                   const DiskQueueOptions& options);
  ~ThreadQueue() override;

 private:
  // What a thread does next.
  struct Work {
    Flight* flight = nullptr;
    std::optional<Piece> piece;  // else the call
    DiskCall call = {};
  };
  struct Answer {
    Flight* flight = nullptr;
    int answer = 0;
  };

  ThreadQueue(const Clock& clock, const DiskQueueOptions& options);
  void start_threads();
  void work();
  static int answer_to(const Work& work);
  void hand_over(Work&& work);

  void start(Flight& flight, const Piece& piece) override;
  void start(Flight& flight, const DiskCall& call) override;
  bool wait(std::int64_t deadline_us) override;
  void reap() override;
  void take_back_unstarted() override;

  BoundedQueue<Work> waiting_;
  BoundedQueue<Answer> answers_;
  std::vector<std::jthread> threads_;
};

}  // namespace stemma
