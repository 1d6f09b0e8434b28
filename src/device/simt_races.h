// RaceTrace: which accesses to one byte of an emulated GPU nothing orders, whatever order they
// happened in. The program ends at the first two that are of different threads, of which one is a
// write, and neither is certainly before the other:
//
//   within a team    barriers of the team and of a warp, and arrivals at a barrier in shared memory
//                    that somebody waits for, order what is before them and what is behind them;
//                    shuffles, votes and products order nothing. Matrix loads are done where they
//                    are. A copy to shared memory happens between where it begins and where it is
//                    waited for, of the thread that asked for it
//   within a kernel  teams are not ordered
//   of a device      what lies in one stream, behind events that were waited for, and behind what
//                    the host waited for before it queued the work (any thread of the host: what
//                    another thread has seen counts, too). Of a kernel that may begin early, until
//                    a thread awaits its turn, all but the kernel just before it in the stream
//
// Shared memory that nobody of the team wrote is not read, either.
//
// Device memory begins where it was allocated, in that stream, and ends where it is given back.
//
// This is a happens-before analysis by vector clocks, with the last write of a byte and two of the
// readings since: Flanagan and Freund, "FastTrack: Efficient and Precise Dynamic Race Detection",
// PLDI 2009.
//
// Thread:     whoever holds the machine's mutex.
// Memory:     40 bytes for every byte that was touched, a clock of two bytes for every two threads
//             of a team.
// Cost:       tens of nanoseconds for an access; a barrier of n threads as many as n² / 8.
// Not here:   what calls it for each load and store of a kernel (simt_accesses.cc), clocks of
//             streams (simt_runtime.h), accesses of the host.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "device/buffer.h"

namespace stemma::simt {

// How many works of each stream are before something: [streams].
using WorkClock = std::vector<std::uint32_t>;
// What is before either.
void join(WorkClock& clock, const WorkClock& other);

// A work, the clock's last one of its stream.
struct WorkTime {
  std::size_t stream = 0;
  WorkClock clock;
  const char* name = "";
};

enum class Access { kRead, kWrite, kAdd };  // what adds is not ordered with what adds

class RaceTrace {
 public:
  RaceTrace();

  // ---- Memory.

  void set_device(const std::byte* begin, std::size_t size_bytes);
  // Device memory, from `time` on.
  void begin_memory(const void* begin, std::size_t size_bytes, const WorkTime& time);
  // REQUIRES: called by the work that gives it back.
  void end_memory(const void* begin);
  void begin_host(const void* begin, std::size_t size_bytes);
  void end_host(const void* begin);

  // ---- Works. One at a time.

  void begin_work(const WorkTime& time);
  // What the work does that is no kernel, or a kernel's thread that runs.
  void touch(const void* at, std::size_t size_bytes, Access access, const void* code = nullptr);

  // ---- Kernels: teams, one after another.

  // early: threads are behind the kernel just before in the stream only when they await their turn.
  void begin_team(int threads, const std::byte* shared, std::size_t shared_bytes, bool early);
  void await_turn() { has_turn_[static_cast<std::size_t>(thread_)] = true; }
  void end_kernel();
  void set_thread(int thread) {
    thread_ = static_cast<std::uint16_t>(thread);
    self_ = {run_, thread_, clocks_of(thread)[thread], 0};
  }
  // All of these threads are here.
  void meet(int first, int count);
  // Barriers in shared memory: the running thread arrives, all that are expected have come, it has
  // waited.
  void arrive(const void* barrier);
  void complete(const void* barrier);
  void acquire(const void* barrier);

 private:
  // Who touched a byte. A run is a team of a kernel, or what else a work does; 0: nobody.
  struct Actor {
    std::uint32_t run = 0;
    std::uint16_t thread = 0;
    std::uint16_t clock = 0;
    std::uint32_t code = 0;  // the address' distance from where the program begins

    friend bool operator==(const Actor&, const Actor&) = default;
  };
  struct Cell {
    Actor write;
    std::array<Actor, 2> reads;
    bool adds = false;  // the write

    friend bool operator==(const Cell&, const Cell&) = default;
  };
  struct Work {
    std::uint32_t first_run;
    std::uint32_t of_stream;  // its number there
    std::size_t stream;
    const char* name;
    bool is_kernel = false;
  };
  struct Piece {
    std::size_t size_bytes;
    Actor actor;
  };
  struct Barrier {
    std::vector<std::uint16_t> arrived;
    std::vector<std::uint16_t> complete;
  };
  // Of what the running work has been asked.
  struct Answer {
    std::uint32_t run = 0;
    bool ordered = false;
  };

  static constexpr std::size_t kPageBytes = 4096;
  static constexpr std::size_t kNear = 256;
  static constexpr std::size_t kChunkPages = 12;  // of cells: a huge page of the system

  std::uint32_t new_run(const WorkTime& time);
  const Work& work_of(std::uint32_t run) const;
  std::uint16_t* clocks_of(int thread) {
    return clocks_.data() + static_cast<std::size_t>(thread * threads_);
  }
  void let_go_on(int thread);
  bool is_ordered(const Actor& prior);
  bool is_ordered_work(std::uint32_t run);
  bool is_overlapped(std::uint32_t run) const;
  void note(Cell* cells, std::size_t count, const Actor& actor, Access access, std::uintptr_t at);
  void note_one(Cell& cell, const Actor& actor, Access access, std::uintptr_t at);
  [[noreturn]] void fail_unwritten(const Actor& actor, std::uintptr_t at) const;
  [[noreturn]] void fail(const Actor& prior, const char* did, const Actor& actor, Access access,
                         std::uintptr_t at) const;
  bool is_watched(std::uintptr_t at) const;
  bool has_watched(std::uintptr_t number) const;
  Cell* page_or_null(std::uintptr_t number);
  Cell* make_page(std::uintptr_t number);
  Cell* fresh_cells();
  template <typename Call>
  void each_known(std::uintptr_t begin, std::size_t size_bytes, const Call& call);
  void clear(std::uintptr_t begin, std::size_t size_bytes, const Actor& writer);

  std::uintptr_t device_ = 0;
  std::size_t device_bytes_ = 0;
  std::map<std::uintptr_t, Piece> pieces_;
  std::map<std::uintptr_t, std::size_t> host_;
  std::unordered_map<std::uintptr_t, Cell*> pages_;
  std::vector<Buffer> chunks_;                           // of the cells of kChunkPages pages each
  std::size_t chunk_pages_ = 0;                          // that the last one has left
  std::array<std::uintptr_t, kNear> near_numbers_ = {};  // pages that were looked up last
  std::array<Cell*, kNear> near_pages_ = {};             // nullptr: nothing of the page is watched

  std::vector<Work> works_;  // all of them
  std::uint32_t last_run_ = 0;
  WorkTime time_;  // of the one that runs
  std::uint32_t work_first_run_ = 0;
  std::array<Answer, kNear> answers_ = {};

  std::uint32_t run_ = 0;  // the running team, or work
  int threads_ = 0;        // 0: it is no kernel
  std::uint16_t thread_ = 0;
  Actor self_;                         // the running thread
  std::vector<std::uint16_t> clocks_;  // [threads, threads] what a thread knows of others
  std::vector<std::uint16_t> joined_;
  std::vector<bool> has_turn_;  // of each thread of a kernel
  std::map<const void*, Barrier> barriers_;
  std::uintptr_t shared_ = 0;
  std::size_t shared_bytes_ = 0;
  std::vector<Cell> shared_cells_;
};

// Of the kernel that a thread of the host runs; nullptr outside.
inline constinit thread_local RaceTrace* trace_of_this_thread = nullptr;
inline RaceTrace* running_trace() {
  return trace_of_this_thread;
}
inline void set_running_trace(RaceTrace* trace_or_null) {
  trace_of_this_thread = trace_or_null;
}

}  // namespace stemma::simt
