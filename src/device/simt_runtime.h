// What is behind an emulated GPU: its streams and their work, its memory, and which host memory is
// pinned.
//
// Work waits in its stream's queue until somebody waits for something; then one piece after another
// is done, of a stream drawn among those whose next piece may begin, until what was waited for has
// come.
//
// Thread:     whoever uses the runtime holds its mutex.
// Memory:     the arena (simt_arena.h) and what is queued.
// Cost:       see simt.h.
// Not here:   the declarations of cuda_device.h that this is behind (simt_device.cc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/prng.h"
#include "device/buffer.h"
#include "device/simt.h"
#include "device/simt_arena.h"
#include "device/simt_races.h"
#include "stemma/result.h"

namespace stemma::simt {

// A piece of work. A ticket stands for "everything before is done".
struct Work {
  std::function<void()> run;           // may be empty
  std::uint64_t waits_for = 0;         // a ticket; 0: nothing
  std::uint64_t gives = 0;             // a ticket; 0: none
  bool when_failed = false;            // done by a GPU that has failed, too
  const void* host_or_null = nullptr;  // pinned memory that it names
  const char* name = "nothing";
  WorkClock clock = {};  // of what is before it, and itself
};

struct Stream {
  std::deque<Work> queue;
  std::optional<std::vector<Work>> recording;
  std::thread::id recorder;
  std::size_t number = 0;  // among the streams that there are
  WorkClock clock;         // of what was queued
};

struct Event {
  std::uint64_t ticket = 0;  // of the last record; 0: never
  WorkClock clock;           // of what is before that
};

struct Graph {
  std::vector<Work> works;
};

// Calls of one kind that are to fail.
struct Failures {
  std::int64_t passing = 0;  // before them
  std::int64_t count = 0;

  // Whether the next one does.
  bool take() {
    if (count == 0) return false;
    if (passing > 0) {
      --passing;
      return false;
    }
    --count;
    return true;
  }
};

class Runtime {
 public:
  explicit Runtime(const Machine::Options& options);
  ~Runtime();

  const Machine::Options& options() const { return options_; }
  std::mutex& mutex() { return mutex_; }

  // What the calling thread does is this GPU's from now on.
  void use_in_thread() const;
  // Ends the program unless it is: on a machine of several GPUs it would be the first one's.
  void check_used_in_thread() const;

  Stream* make_stream();
  void release_stream(Stream* stream);
  // That nobody made. Other streams do not wait for it, as those of cudaStreamNonBlocking do not.
  Stream& default_stream();

  Status queue(Stream& stream, Work work);
  // The two halves of it: whether something may be queued, and that it is.
  Status may_queue(const char* name);
  void push(Stream& stream, Work work);

  std::uint64_t next_ticket();
  bool is_done(std::uint64_t ticket) const { return !open_tickets_.contains(ticket); }

  // Does work until `reached`.
  template <typename Reached>
  void run_until(Reached reached) {
    arena_.open();
    while (!reached()) {
      STEMMA_CHECK(run_one(), "streams wait for each other");
    }
    arena_.close();
  }
  // The host has seen that what is before this is done.
  void see(const WorkClock& clock) { join(host_clock_, clock); }
  // Perhaps does something: time passes while somebody asks.
  void let_time_pass();

  void load_kernel(const void* kernel);
  void run_kernel(const Grid& grid, const std::function<void()>& kernel);
  // Maps memory that was given to pin, or, where kernels do not reach it, does not while one runs.
  void map_pinned(int protection) const;

  // kOutOfMemory, naming what wants it, if that is to fail.
  Status take_memory(const char* what);
  // nullptr if there is no room. Other streams may use it behind what is queued in this one.
  void* try_allocate(std::size_t size_bytes, Stream& stream);
  // REQUIRES: called by the work that gives it back.
  void give_back(void* bytes);
  SimtArena& arena() { return arena_; }
  // What the running work does that is no kernel.
  void read(const void* from, std::size_t size_bytes);
  void write(const void* to, std::size_t size_bytes);

  // Host memory is pinned, and no longer: not by a thread that records, which ends a GPU's
  // recording.
  void pin(const void* bytes, std::size_t size_bytes);
  void unpin(const void* bytes);
  bool is_pinned(const void* bytes, std::size_t size_bytes) const;
  bool is_partly_pinned(const void* bytes, std::size_t size_bytes) const;

  std::map<void*, Buffer> pinned_buffers;

  bool failed() const { return failed_; }
  // What the host is told of a device that has failed. All that was queued has ended then.
  Error broken();
  std::int64_t kernels() const { return kernels_; }
  void fail_allocations(const Failures& failures) { of_memory_ = failures; }
  void fail_queueing(const Failures& failures) { of_queueing_ = failures; }
  std::int64_t failures_left() const { return of_memory_.count + of_queueing_.count; }
  void fail_after_kernels(std::int64_t count) { kernels_left_ = count; }

 private:
  void check_not_recording() const;
  bool can_begin(const Stream& stream) const;
  bool run_one();
  WorkTime next_time(Stream& stream, const char* name);

  Machine::Options options_;
  const std::uint64_t number_;  // of the machines of the program
  std::mutex mutex_;
  Prng prng_;
  SimtArena arena_;
  std::unique_ptr<RaceTrace> trace_;  // nullptr: accesses are not watched
  WorkClock host_clock_;
  std::vector<std::unique_ptr<Stream>> streams_;
  Stream* default_stream_ = nullptr;      // once it was asked for
  std::set<std::uint64_t> open_tickets_;  // given, and not yet reached
  std::uint64_t last_ticket_ = 0;
  std::map<const std::byte*, std::size_t> pinned_;
  Failures of_memory_;
  Failures of_queueing_;
  std::optional<std::int64_t> kernels_left_;
  bool failed_ = false;
  std::int64_t kernels_ = 0;
  std::set<const void*> loaded_;  // kernels
};

// While a Machine lives. REQUIRES of runtime(): one does.
bool has_runtime() noexcept;
Runtime& runtime();

// REQUIRES: a stream, an event that was made.
Stream& stream_of(void* raw);
Event& event_of(void* raw);

}  // namespace stemma::simt
