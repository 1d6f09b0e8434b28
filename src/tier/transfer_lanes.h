// TransferLanes: where transfers wait and run. One lane for copies down from the device, one for
// copies up to it, and for each page store one that reads and one that writes: nothing that a slow
// store does holds up another lane.
//
// Thread:     post, try_take_done_or_null, wait_done and stop: the engine thread. ThreadLanes runs
//             a thread a lane; simulations run jobs in steps of their own.
// Memory:     queues of fixed room: everything that may be posted at once fits.
// Cost:       a lock and a wake-up a job.
// Not here:   what a job does (transfer_work), what its end means (cache/tiering).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/bounded_queue.h"
#include "tier/transfer.h"

namespace stemma {

class CudaStream;

// Moves the bytes of one job and sets its verdicts. Lanes call it for different lanes at once, for
// one lane one job at a time.
class TransferWork {
 public:
  virtual ~TransferWork() = default;
  virtual void run(Transfer& job) = 0;
  // Any thread: as Transfer::wait_layer, but for what is queued on `stream` from here on, which
  // begins when the layer has come; its sums may not have been compared by then.
  virtual bool wait_layer_on(Transfer& job, CudaStream& stream, std::int64_t layer) {
    static_cast<void>(stream);
    return job.wait_layer(layer);
  }
};

class TransferLanes {
 public:
  virtual ~TransferLanes() = default;

  // Begins `job`, which stays where it is until it is taken back.
  virtual void post(Transfer& job) = 0;
  // A job that has ended, in the order of their ends; nullptr if there is none now.
  virtual Transfer* try_take_done_or_null() = 0;
  // Waits until a job has ended or the time is over.
  virtual void wait_done(std::chrono::microseconds time) = 0;
  // Waits until `layer` of the pages of a kPromote that was posted has come; false if it will not.
  virtual bool wait_layer(Transfer& job, std::int64_t layer) = 0;
  // The same for what is queued on `stream` from here on (TransferWork::wait_layer_on).
  virtual bool wait_layer_on(Transfer& job, CudaStream& stream, std::int64_t layer) {
    static_cast<void>(stream);
    return wait_layer(job, layer);
  }
  // Once nobody reads the pages any more, though the job may not have been taken back: whether all
  // layers up to `layer` came right. Waits for them.
  virtual bool came_right(Transfer& job, std::int64_t layer) { return wait_layer(job, layer); }
  // Ends every job that was posted, then all threads: jobs that have not begun see `cancelled`. All
  // can be taken afterwards; nothing may be posted.
  virtual void stop() = 0;
};

// The lane of a job: 0 down, 1 up, then two a store: reads, writes.
std::size_t transfer_lane(const Transfer& job) noexcept;
std::size_t transfer_lanes(std::size_t stores) noexcept;

class ThreadLanes final : public TransferLanes {
 public:
  // `work` must outlive it. At most `jobs_max` jobs are posted and not taken back.
  ThreadLanes(TransferWork& work, std::size_t stores, std::int64_t jobs_max);
  ~ThreadLanes() override;
  ThreadLanes(const ThreadLanes&) = delete;
  ThreadLanes& operator=(const ThreadLanes&) = delete;

  void post(Transfer& job) override;
  Transfer* try_take_done_or_null() override;
  void wait_done(std::chrono::microseconds time) override;
  bool wait_layer(Transfer& job, std::int64_t layer) override { return job.wait_layer(layer); }
  bool wait_layer_on(Transfer& job, CudaStream& stream, std::int64_t layer) override {
    return work_.wait_layer_on(job, stream, layer);
  }
  void stop() override;

 private:
  using Queue = BoundedQueue<Transfer*>;
  ThreadLanes(TransferWork& work, std::int64_t jobs_max);  // without a lane
  void serve(Queue& queue);

  TransferWork& work_;
  std::vector<std::unique_ptr<Queue>> queues_;
  Queue done_;
  std::vector<std::jthread> threads_;  // joined before the queues go
};

}  // namespace stemma
