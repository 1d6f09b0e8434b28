// A run raises the generation under the sleep mutex, so a worker either sees it while spinning or
// is woken from its sleep. A worker joins the run if it comes before the caller has found no task
// left and closed it: the caller then waits for those who joined, and nobody else. So a worker that
// has no processor at the moment holds up a run only if it lost it amid a task, and `task_` is
// never read after run returns.
#include "base/thread_pool.h"

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#include <time.h>
#endif

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace stemma {

namespace {

// Bounded: about 20 µs of pauses, longer than the gap between two layers' kernels, shorter than a
// scheduler's slice.
constexpr int kSpinsMax = 2000;

// In party_, beside the number of workers: more may join.
constexpr std::uint32_t kOpen = std::uint32_t{1} << 31;

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// How often a caller that waits looks whether those it waits for are running.
constexpr std::chrono::microseconds kLook(50);
// How long a caller that had to leave its CPU stays away: about as long as a program computes that
// was given a CPU before it.
constexpr std::chrono::milliseconds kAway(2);

#if defined(__linux__)

static_assert(sizeof(CpuMask) == sizeof(cpu_set_t));

// The CPUs that `thread` may use; none where there are more than a mask holds.
CpuMask allowed_cpus(pthread_t thread) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CpuMask cpus;
  if (pthread_getaffinity_np(thread, sizeof(set), &set) != 0) return cpus;
  std::memcpy(cpus.bits.data(), &set, sizeof(set));
  return cpus;
}

int current_cpu() {
  return sched_getcpu();
}

bool keep_to(pthread_t thread, const CpuMask& cpus) {
  cpu_set_t set;
  std::memcpy(&set, cpus.bits.data(), sizeof(set));
  return pthread_setaffinity_np(thread, sizeof(set), &set) == 0;
}

pthread_t this_thread() {
  return pthread_self();
}

// Processor time that `thread` has had; what it is having counts.
std::int64_t cpu_ns_of(pthread_t thread) {
  clockid_t clock = 0;
  timespec time = {};
  if (pthread_getcpuclockid(thread, &clock) != 0 || clock_gettime(clock, &time) != 0) return -1;
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

#else

using Thread = std::jthread::native_handle_type;

CpuMask allowed_cpus(Thread) {
  return {};
}
int current_cpu() {
  return -1;
}
bool keep_to(Thread, const CpuMask&) {
  return false;
}
Thread this_thread() {
  return Thread();
}
std::int64_t cpu_ns_of(Thread) {
  return -1;
}

#endif

constexpr int kWordCpus = 64;

std::vector<int> list_of(const CpuMask& mask) {
  std::vector<int> cpus;
  for (int cpu = 0; cpu < kWordCpus * static_cast<int>(mask.bits.size()); ++cpu) {
    const std::uint64_t word = mask.bits[static_cast<std::size_t>(cpu / kWordCpus)];
    if ((word >> (cpu % kWordCpus) & 1) != 0) cpus.push_back(cpu);
  }
  return cpus;
}

CpuMask only(int cpu) {
  CpuMask mask;
  mask.bits[static_cast<std::size_t>(cpu / kWordCpus)] = std::uint64_t{1} << (cpu % kWordCpus);
  return mask;
}

}  // namespace

int usable_cpus() {
  const auto allowed = static_cast<int>(list_of(allowed_cpus(this_thread())).size());
  return allowed > 0 ? allowed : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

ThreadPool::ThreadPool(int threads, ThreadPinning pinning) {
  STEMMA_CHECK(threads >= 1, "a pool has at least the calling thread");
  const std::vector<int> cpus = list_of(allowed_cpus(this_thread()));
  pinned_ = pinning == ThreadPinning::kWorkers && threads > 1 && std::ssize(cpus) == threads;
  if (pinned_) {
    seats_ = std::vector<Seat>(cpus.size());
    for (std::size_t i = 0; i < cpus.size(); ++i) seats_[i].cpu = cpus[i];
  }
  workers_.reserve(static_cast<std::size_t>(threads - 1));
  for (int worker = 1; worker < threads; ++worker) {
    workers_.emplace_back([this, worker](const std::stop_token& stop) { work(stop, worker); });
  }
}

ThreadPool::~ThreadPool() {
  for (std::jthread& worker : workers_) worker.request_stop();
  workers_.clear();
}

void ThreadPool::run(std::int64_t tasks, Task task) {
  const bool alone = workers_.empty() || tasks <= 1;
  if (!alone && !(caller_is_displaced() && threads() == 2)) return spread(tasks, task);
  for (std::int64_t i = 0; i < tasks; ++i) task(i, 0);
}

void ThreadPool::run_on_all(Task task) {
  if (workers_.empty()) return task(0, 0);
  bring_caller_home();
  spread(threads(), task);
}

void ThreadPool::spread(std::int64_t tasks, Task task) {
  {
    const std::lock_guard lock(sleep_mutex_);
    tasks_ = tasks;
    task_ = &task;
    next_task_.store(0, std::memory_order_relaxed);
    party_.store(kOpen, std::memory_order_release);
    if (pinned_) {
      caller_.store(this_thread(), std::memory_order_relaxed);
      seat_of(0).cpu_ns = -1;
      seat_of(0).inside.store(true, std::memory_order_relaxed);
      in_run_.store(true, std::memory_order_release);
    }
    generation_.fetch_add(1, std::memory_order_release);
  }
  wake_.notify_all();
  drain(task, 0);
  if (pinned_) seat_of(0).inside.store(false, std::memory_order_release);
  party_.fetch_and(~kOpen, std::memory_order_acq_rel);
  wait_for_workers();
  if (pinned_) free_caller();
}

void ThreadPool::wait_for_workers() {
  const auto all_left = [this] { return party_.load(std::memory_order_acquire) == 0; };
  for (int spin = 0; spin < kSpinsMax; ++spin) {
    if (all_left()) return;
    pause_cpu();
  }
  std::unique_lock lock(sleep_mutex_);
  if (!pinned_) return done_.wait(lock, all_left);
  for (Seat& seat : seats_) seat.cpu_ns = -1;
  while (!done_.wait_for(lock, kLook, all_left)) fetch_workers();
}

// Whoever has had no processor time since the last look waits for a CPU, behind another program. It
// would get it in milliseconds; meanwhile the CPU of who waits for it has nothing to do.
bool ThreadPool::is_stalled(Seat& seat, Handle thread) {
  const std::int64_t cpu_ns = cpu_ns_of(thread);
  return cpu_ns >= 0 && std::exchange(seat.cpu_ns, cpu_ns) == cpu_ns;
}

void ThreadPool::fetch_workers() {
  const int here = current_cpu();
  for (int worker = 1; worker < threads(); ++worker) {
    Seat& seat = seat_of(worker);
    if (!seat.inside.load(std::memory_order_acquire) || seat.away.load()) continue;
    const Handle thread = workers_[static_cast<std::size_t>(worker - 1)].native_handle();
    if (is_stalled(seat, thread) && keep_to(thread, only(here))) seat.away.store(true);
  }
}

void ThreadPool::go_home(int worker) {
  Seat& seat = seat_of(worker);
  if (seat.away.exchange(false)) keep_to(this_thread(), only(seat.cpu));
}

// REQUIRES: sleep_mutex_ is held, by worker 1.
void ThreadPool::fetch_caller() {
  Seat& seat = seat_of(0);
  const Handle caller = caller_.load(std::memory_order_relaxed);
  if (!seat.inside.load(std::memory_order_acquire) || seat.away.load()) return;
  if (!is_stalled(seat, caller)) return;
  caller_cpus_ = allowed_cpus(caller);
  if (keep_to(caller, only(seat_of(1).cpu))) seat.away.store(true);
}

// At the end of a run: the caller may go again where it might before, but stays where it is.
void ThreadPool::free_caller() {
  const std::lock_guard lock(sleep_mutex_);
  in_run_.store(false, std::memory_order_release);
  if (!seat_of(0).away.exchange(false)) return;
  keep_to(this_thread(), caller_cpus_);
  displaced_.store(true, std::memory_order_release);
  home_again_ = std::chrono::steady_clock::now() + kAway;
}

// Whether the caller is on the CPU of worker 1, who leaves it to him. Goes home when it is time.
bool ThreadPool::caller_is_displaced() {
  if (!displaced_.load(std::memory_order_relaxed)) return false;
  if (std::chrono::steady_clock::now() < home_again_) return true;
  bring_caller_home();
  return false;
}

void ThreadPool::bring_caller_home() {
  if (!displaced_.exchange(false)) return;
  keep_to(this_thread(), only(seat_of(0).cpu));
  keep_to(this_thread(), caller_cpus_);
}

void ThreadPool::work(const std::stop_token& stop, int worker) {
  if (pinned_) keep_to(this_thread(), only(seat_of(worker).cpu));
  std::uint64_t seen = 0;
  while (!stop.stop_requested()) {
    for (int spin = 0; spin < kSpinsMax && generation_.load(std::memory_order_acquire) == seen;
         ++spin) {
      pause_cpu();
    }
    if (generation_.load(std::memory_order_acquire) == seen &&
        !sleep_until_run(stop, seen, worker)) {
      return;
    }
    seen = generation_.load(std::memory_order_acquire);
    const bool left_to_caller = worker == 1 && displaced_.load(std::memory_order_acquire);
    if (left_to_caller || !try_join()) continue;
    if (pinned_) seat_of(worker).inside.store(true, std::memory_order_release);
    drain(*task_, worker);
    if (pinned_) seat_of(worker).inside.store(false, std::memory_order_release);
    leave();
    if (pinned_) go_home(worker);
  }
}

// False if the pool ends. While a run goes on that has nothing left for worker 1, he looks after
// the caller.
bool ThreadPool::sleep_until_run(const std::stop_token& stop, std::uint64_t seen, int worker) {
  const auto called = [&] { return generation_.load(std::memory_order_acquire) != seen; };
  std::unique_lock lock(sleep_mutex_);
  while (pinned_ && worker == 1 && in_run_.load(std::memory_order_acquire)) {
    if (wake_.wait_for(lock, stop, kLook, called)) return true;
    if (stop.stop_requested()) return false;
    if (in_run_.load(std::memory_order_acquire)) fetch_caller();
  }
  return wake_.wait(lock, stop, called);
}

// Of a run that began since the generation was read it may be a part too: it then finds no task
// left, or takes some, and comes back for the generation that it has not seen.
bool ThreadPool::try_join() {
  std::uint32_t party = party_.load(std::memory_order_acquire);
  while ((party & kOpen) != 0) {
    if (party_.compare_exchange_weak(party, party + 1, std::memory_order_acq_rel)) return true;
  }
  return false;
}

// The last one wakes the caller, who may sleep already.
void ThreadPool::leave() {
  if (party_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const std::lock_guard lock(sleep_mutex_);
  done_.notify_one();
}

void ThreadPool::drain(const Task& task, int worker) {
  for (;;) {
    const std::int64_t i = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (i >= tasks_) return;
    task(i, worker);
  }
}

}  // namespace stemma
