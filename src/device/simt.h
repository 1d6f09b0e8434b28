// Simt: an emulated GPU, so that the very kernels that nvcc compiles run, and are tested, where
// there is none. It is slow and it is strict.
//
// Each thread of a team is a fiber, run in an order that is drawn anew for every team; it goes on
// until it waits for others, and at times a drawn warp, or four, let the others go ahead. Shared
// memory and what is allocated begin as bytes of 0xFF, not a number in any floating type. A copy to
// shared memory is done only when it is waited for. Streams are done as late as anybody notices, in
// a drawn order that keeps only what events and the order within a stream demand. While the host
// runs, the device's memory is not mapped for it: following such an address ends the program. So
// does a deadlock (a barrier that some threads do not reach), threads that meet at different places
// of the code, a misaligned access, a write behind an allocation (a read too: simt_arena.h) and
// memory asked for while a stream records. A host copy of memory that is not pinned is refused. Of
// products of warpgroups: simt_warpgroup.h.
//
// Thread:     one thread at a time executes (it holds the machine's mutex); queueing from any.
// Memory:     an arena of address space, of which only what was touched is there; stacks.
// Cost:       about a thousand times that of the same arithmetic.
// Not here:   time (events of it say 0), accesses that nothing orders (simt_races.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>

#include "base/function_ref.h"
#include "stemma/result.h"

namespace stemma::simt {

// Where in a kernel threads wait for each other: all that meet must have come to the same place.
using Site = std::source_location;
#define STEMMA_SITE const simt::Site& site = simt::Site::current()

// Where the running thread is.
struct Here {
  int thread = 0;
  int team_threads = 0;
  std::array<std::int64_t, 3> team = {};
  std::int64_t teams_x = 0;
  std::byte* shared = nullptr;
};

inline constexpr int kWarp = 32;

// What a lane shows the others.
struct Slot {
  alignas(8) std::byte bytes[32];
};
template <typename T>
T slot_as(const Slot& slot) {
  static_assert(sizeof(T) <= sizeof(Slot));
  T value;
  std::memcpy(static_cast<void*>(&value), slot.bytes, sizeof(T));
  return value;
}

struct Grid {
  std::array<std::int64_t, 3> teams = {1, 1, 1};
  int threads = 32;
  std::size_t shared_bytes = 0;
  bool early = false;  // every thread calls await_turn
};

// For code of kernels. REQUIRES: called from a kernel.
const Here& here();
void await_turn();
void wait_for_team(const Site& site);
void wait_for_warp(const Site& site);
// As wait_for_warp, but what lanes did before is not ordered with what others do behind it. The
// lane that comes last does `work`, before the others go on.
void gather_warp(const Site& site, FunctionRef<void()> work);
// Adds to a number of the team's shared memory, at once; what it was before.
std::uint32_t add_to_shared(std::uint32_t* to, std::uint32_t value);
// The warp's slots of the next exchange. A lane writes its own, waits for the warp, and reads the
// others' until its next exchange but one.
Slot* exchange_slots();
// These slots, of which the lane's own has `value`. REQUIRES: the lane waits for the warp next.
template <typename T>
const Slot* show(const T& value) {
  static_assert(sizeof(T) <= sizeof(Slot));
  Slot* const slots = exchange_slots();
  std::memcpy(slots[here().thread % kWarp].bytes, &value, sizeof(T));
  return slots;
}
// Sixteen bytes or four, done at wait_copies; zeros from nullptr.
void copy_later(void* shared, const void* global_or_null, std::size_t bytes);
void commit_copies();
void wait_copies(int pending);
// Ends the program unless `address` is a multiple of 16.
void check_aligned(const void* address);
// The same unless it is sixteen bytes of the team's shared memory.
void check_matrix_row(const void* address);

// Runs `kernel` once for every thread of every team. REQUIRES: not called from a kernel; threads
// are whole warps, 32 … 1,024.
void run_grid(const Grid& grid, const std::function<void()>& kernel, std::uint64_t seed);

// What the first launch of a kernel does, unless it was done. Ends the program where a stream of
// another thread records: on a GPU either may fail.
void load_kernel(const void* kernel);
// What the first launch that may begin early asks of the GPU, unless CudaDevice::open has: whose
// PTX it runs, for which a kernel is loaded.
void ask_about_launches();
// Queues a kernel on an emulated stream. kInternal, as of the CUDA runtime, for a shape that a GPU
// would refuse.
Status queue_kernel(void* stream, const char* name, const Grid& grid, std::function<void()> kernel);
// Shared memory that a team of the machine can have.
std::int64_t team_shared_bytes_max();
// Queues other work of the device, for what is a library's on a GPU.
Status queue_work(void* stream, const char* name, std::function<void()> work);

// Whether accesses that nothing orders (simt_races.h) end the program. That is slow: kSome is the
// first machine of a program and some others.
enum class Watch { kNever, kSome, kAlways };
// Whether this build can: kernels are compiled for it.
bool can_watch_accesses();

// While one lives, CudaDevice::open finds one emulated GPU. At most one at a time.
class Machine {
 public:
  struct Options {
    std::uint64_t seed = 1;
    std::size_t memory_bytes = std::size_t{1} << 30;
    int multiprocessors = 4;
    std::int64_t team_shared_bytes = 227 * 1024;  // that a team can have, as on Hopper
    bool kernels_reach_pinned = true;             // CudaTraits; else a kernel that tries is stopped
    Watch watch = Watch::kSome;
    bool eager = false;  // do work when it is queued: for tests that look at speed, not at order
  };
  Machine() : Machine(Options{}) {}
  explicit Machine(const Options& options);
  // REQUIRES: all streams, events and memory were given back.
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // Kernels done so far.
  std::int64_t kernels() const;
  // Of the calls behind `passing` more that take memory, `count` fail, as if it were full: those
  // that allocate it, on the device or pinned, that pin it, that make a stream or an event, that
  // end a recording or queue what was recorded.
  void fail_allocations(std::int64_t count, std::int64_t passing = 0);
  // The same of calls that queue something, of which nothing is queued then.
  void fail_queueing(std::int64_t count, std::int64_t passing = 0);
  // Of the two how many are still to come.
  std::int64_t failures_left() const;
  // The kernel after `count` more fails, as a GPU that falls off the bus: so does all that follows.
  void fail_after_kernels(std::int64_t count);
};

// Lets the host look at device memory while it lives: for tests.
class Window {
 public:
  Window();
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
};

}  // namespace stemma::simt
