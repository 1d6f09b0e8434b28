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
#include "stemma/result.h"

namespace stemma::simt {

inline constexpr std::int64_t kTeamSharedBytes = 227 * 1024;

// A piece of work. A ticket stands for "everything before is done".
struct Work {
  std::function<void()> run;           // may be empty
  std::uint64_t waits_for = 0;         // a ticket; 0: nothing
  std::uint64_t gives = 0;             // a ticket; 0: none
  const void* host_or_null = nullptr;  // pinned memory that it names
};

struct Stream {
  std::deque<Work> queue;
  std::optional<std::vector<Work>> recording;
  std::thread::id recorder;
};

struct Event {
  std::uint64_t ticket = 0;  // of the last record; 0: never
};

struct Graph {
  std::vector<Work> works;
};

class Runtime {
 public:
  explicit Runtime(const Machine::Options& options)
      : options_(options), prng_(options.seed), arena_(options.memory_bytes) {}
  ~Runtime();

  const Machine::Options& options() const { return options_; }
  std::mutex& mutex() { return mutex_; }

  Stream* make_stream() { return streams_.emplace_back(std::make_unique<Stream>()).get(); }
  void release_stream(Stream* stream);

  Status queue(Stream& stream, Work work);

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
  // Perhaps does something: time passes while somebody asks.
  void let_time_pass();

  void run_kernel(const Grid& grid, const std::function<void()>& kernel);

  void* try_allocate(std::size_t size_bytes);
  SimtArena& arena() { return arena_; }

  // Host memory is pinned, and no longer: not by a thread that records, which ends a GPU's
  // recording.
  void pin(const void* bytes, std::size_t size_bytes);
  void unpin(const void* bytes);
  bool is_pinned(const void* bytes, std::size_t size_bytes) const;
  bool is_partly_pinned(const void* bytes, std::size_t size_bytes) const;

  std::map<void*, Buffer> pinned_buffers;

  bool failed() const { return failed_; }
  static Error broken() { return {ErrorCode::kInternal, "the emulated GPU has failed", 0}; }
  std::int64_t kernels() const { return kernels_; }
  void fail_allocations(int count) { allocations_to_fail_ = count; }
  void fail_after_kernels(std::int64_t count) { kernels_left_ = count; }

 private:
  void check_not_recording() const;
  bool can_begin(const Stream& stream) const;
  bool run_one();

  Machine::Options options_;
  std::mutex mutex_;
  Prng prng_;
  SimtArena arena_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::set<std::uint64_t> open_tickets_;  // given, and not yet reached
  std::uint64_t last_ticket_ = 0;
  std::map<const std::byte*, std::size_t> pinned_;
  int allocations_to_fail_ = 0;
  std::optional<std::int64_t> kernels_left_;
  bool failed_ = false;
  std::int64_t kernels_ = 0;
};

// While a Machine lives. REQUIRES of runtime(): one does.
bool has_runtime() noexcept;
Runtime& runtime();

// REQUIRES: a stream, an event that was made.
Stream& stream_of(void* raw);
Event& event_of(void* raw);

}  // namespace stemma::simt
