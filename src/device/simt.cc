// Teams run one after another, in a drawn order; the threads of one are fibers that give way only
// where they wait, so that what they share needs no lock.
#include "device/simt.h"

#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <boost/context/fiber.hpp>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/math.h"
#include "base/prng.h"
#include "device/simt_copy.h"
#include "device/simt_fibers.h"
#include "device/simt_races.h"
#include "device/simt_warpgroup.h"

namespace stemma::simt {

namespace {

constexpr std::size_t kSharedAlignment = 1024;
constexpr std::size_t kGuardBytes = 256;
constexpr std::int64_t kPauseRoundsMax = 200;
constexpr std::byte kPoison{0xFF};
constexpr std::byte kGuard{0xA5};

void check_multiple(const void* address, std::size_t bytes) {
  STEMMA_CHECK(reinterpret_cast<std::uintptr_t>(address) % bytes == 0,
               "what is loaded and stored at once lies at a multiple of its size");
}

template <typename T>
void shuffle(std::vector<T>& order, Prng& prng) {
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1],
              order[static_cast<std::size_t>(prng.below(static_cast<std::int64_t>(i)))]);
  }
}

// Threads that wait for each other: all that are expected have come `rounds` times.
struct Meeting {
  int expected = 0;
  int come = 0;
  std::int64_t rounds = 0;
  Site site = {};  // of the first that came
};

struct Warp {
  Meeting meeting;
  Slot slots[2][kWarp];
};

// Four warps, and what they multiply together.
struct Group {
  explicit Group(SharedTrace& trace) : products(trace) {}

  Meeting meeting = {.expected = kGroupLanes};
  Warpgroup products;
};

struct Thread {
  boost::context::fiber context;    // that of `fibers` which it has
  boost::context::fiber scheduler;  // where it gives way to, while it runs
  const std::function<void()>* kernel = nullptr;
  bool done = false;
  Here place;
  Warp* warp = nullptr;
  const Meeting* waits_at = nullptr;  // nullptr: it can go on
  std::int64_t waits_past = 0;        // for more rounds than these
  std::int64_t exchanges = 0;
  std::vector<SharedCopy> uncommitted;
  std::deque<std::vector<SharedCopy>> groups;
  std::vector<const void*> unfenced;  // sixteen shared bytes each that it wrote
  bool registers_fenced = false;
  bool had_turn = false;

  bool can_run() const { return !done && (waits_at == nullptr || waits_at->rounds > waits_past); }
};

// Executed by one thread at a time.
thread_local Thread* running = nullptr;
thread_local Meeting* team_meeting = nullptr;
thread_local Prng* choices = nullptr;
// What a team has besides.
struct TeamParts {
  SharedTrace trace;
  std::deque<Group> groups;
  std::map<const void*, Meeting> barriers;
};
thread_local TeamParts* parts = nullptr;

Thread& current() {
  STEMMA_CHECK(running != nullptr, "only a kernel calls this");
  return *running;
}

// Whether the round is over.
bool come_to(Meeting& meeting) {
  if (++meeting.come < meeting.expected) return false;
  meeting.come = 0;
  ++meeting.rounds;
  return true;
}

// What a fiber does: whichever thread is running when somebody resumes it, until none is.
boost::context::fiber run_threads(boost::context::fiber&& scheduler) {
  while (running != nullptr) {
    Thread& thread = *running;
    thread.scheduler = std::move(scheduler);
    (*thread.kernel)();
    for (auto& group : thread.groups) {
      for (SharedCopy& copy : group) copy.finish();
    }
    thread.done = true;
    scheduler = std::move(thread.scheduler).resume();
  }
  return std::move(scheduler);
}

thread_local Fibers fibers(run_threads);

// Until the round that goes on now is over.
void wait_at(const Meeting& meeting) {
  Thread& self = current();
  self.waits_at = &meeting;
  self.waits_past = meeting.rounds;
  self.scheduler = std::move(self.scheduler).resume();
  self.waits_at = nullptr;
}

void meet(Meeting& meeting) {
  if (!come_to(meeting)) wait_at(meeting);
}

// The last one to come does `work`, before the others go on.
template <typename Work>
void meet_and(Meeting& meeting, const Work& work) {
  if (meeting.come + 1 == meeting.expected) work();
  meet(meeting);
}

// Elsewhere a GPU may wait for ever, or take one for the other.
void check_site(const Site& site, Meeting& meeting) {
  if (meeting.come == 0) meeting.site = site;
  const char* const first = meeting.site.file_name();
  STEMMA_CHECK(meeting.site.line() == site.line() && meeting.site.column() == site.column() &&
                   (first == site.file_name() || std::strcmp(first, site.file_name()) == 0),
               "threads meet at different places of the code");
}

// Those that meet, from thread `first` on, know of each other what was before.
void meet_and_order(Meeting& meeting, int first) {
  meet_and(meeting, [&] {
    if (RaceTrace* const trace = running_trace()) trace->meet(first, meeting.expected);
  });
}

Group& group_of(const Thread& thread) {
  const auto group = static_cast<std::size_t>(thread.place.thread / kGroupLanes);
  STEMMA_CHECK(group < parts->groups.size(), "a warpgroup has four warps");
  return parts->groups[group];
}

Meeting& barrier_at(const void* barrier) {
  const auto found = parts->barriers.find(barrier);
  STEMMA_CHECK(found != parts->barriers.end(), "a barrier is begun before it is used");
  return found->second;
}

class Team {
 public:
  Team(const Grid& grid, const std::function<void()>& kernel, Prng& prng)
      : grid_(grid),
        kernel_(kernel),
        prng_(prng),
        shared_(grid.shared_bytes + kSharedAlignment + kGuardBytes),
        warps_(static_cast<std::size_t>(grid.threads / kWarp)),
        order_(static_cast<std::size_t>(grid.threads)) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
  }
  ~Team() {
    ASAN_UNPOISON_MEMORY_REGION(shared_.data(), shared_.size());
    give_back_fibers();
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  void run(const std::array<std::int64_t, 3>& team) {
    begin(team);
    team_meeting = &meeting_;
    parts = &parts_;
    while (run_each_once()) continue;
    team_meeting = nullptr;
    parts = nullptr;
    for (const Thread& thread : threads_) {
      STEMMA_CHECK(thread.done,
                   "threads of a team wait for each other: some do not reach the barrier");
      STEMMA_CHECK(thread.had_turn || !grid_.early, "whoever may begin early awaits its turn");
    }
    check_guard();
    for (const Group& group : parts_.groups) {
      STEMMA_CHECK(group.products.idle(), "a kernel ends before its products");
    }
  }

 private:
  std::byte* shared() {
    void* at = shared_.data();
    std::size_t room = shared_.size();
    return static_cast<std::byte*>(std::align(kSharedAlignment, grid_.shared_bytes, at, room));
  }

  void begin(const std::array<std::int64_t, 3>& team) {
    ASAN_UNPOISON_MEMORY_REGION(shared_.data(), shared_.size());
    std::fill(shared_.begin(), shared_.end(), kPoison);
    std::memset(shared() + grid_.shared_bytes, static_cast<int>(kGuard), kGuardBytes);
    ASAN_POISON_MEMORY_REGION(shared() + grid_.shared_bytes, kGuardBytes);
    meeting_ = {.expected = grid_.threads};
    for (Warp& warp : warps_) warp.meeting = {.expected = kWarp};
    parts_.trace.begin(shared(), grid_.shared_bytes);
    parts_.barriers.clear();
    parts_.groups.clear();
    for (int i = 0; i < grid_.threads / kGroupLanes; ++i) parts_.groups.emplace_back(parts_.trace);
    give_back_fibers();
    threads_.clear();
    threads_.resize(static_cast<std::size_t>(grid_.threads));
    for (int i = 0; i < grid_.threads; ++i) {
      Thread& thread = threads_[static_cast<std::size_t>(i)];
      thread.place = {i, grid_.threads, team, grid_.teams[0], shared()};
      thread.warp = &warps_[static_cast<std::size_t>(i / kWarp)];
      thread.kernel = &kernel_;
      thread.context = fibers.take();
    }
    shuffle(order_, prng_);
    pause_ = {};
    if (RaceTrace* const trace = running_trace()) {
      trace->begin_team(grid_.threads, shared(), grid_.shared_bytes, grid_.early);
    }
  }

  void give_back_fibers() {
    for (Thread& thread : threads_) fibers.give_back(std::move(thread.context));
  }

  // Whether any thread could go on.
  bool run_each_once() {
    draw_pause();
    if (run_those_not_paused()) return true;
    pause_ = {};  // they wait for those that pause
    return run_those_not_paused();
  }

  // No warp is as fast as the others for long: for some rounds one, or four together, pause.
  void draw_pause() {
    if (--pause_.rounds > 0) return;
    const std::size_t threads = prng_.below(2) == 0 ? kWarp : kGroupLanes;
    const auto groups = static_cast<std::int64_t>(ceil_div(threads_.size(), threads));
    const auto group = static_cast<std::size_t>(prng_.below(groups));
    const bool any = prng_.below(2) == 0;
    pause_ = {group * threads, any ? threads : 0, 1 + prng_.below(kPauseRoundsMax)};
  }

  bool run_those_not_paused() {
    bool any = false;
    for (const std::size_t i : order_) {
      Thread& thread = threads_[i];
      if (!thread.can_run() || i - pause_.begin < pause_.threads) continue;
      any = true;
      running = &thread;
      if (RaceTrace* const trace = running_trace()) trace->set_thread(static_cast<int>(i));
      thread.context = std::move(thread.context).resume();
      running = nullptr;
    }
    return any;
  }

  void check_guard() {
    const std::byte* const guard = shared() + grid_.shared_bytes;
    ASAN_UNPOISON_MEMORY_REGION(guard, kGuardBytes);
    for (std::size_t i = 0; i < kGuardBytes; ++i) {
      STEMMA_CHECK(guard[i] == kGuard, "a kernel wrote behind its team's shared memory");
    }
  }

  const Grid& grid_;
  const std::function<void()>& kernel_;
  Prng& prng_;
  std::vector<std::byte> shared_;
  Meeting meeting_;
  TeamParts parts_;
  std::vector<Warp> warps_;
  std::vector<Thread> threads_;
  std::vector<std::size_t> order_;  // of the threads, drawn for each team
  // Threads that do not go on for some rounds.
  struct Pause {
    std::size_t begin = 0;
    std::size_t threads = 0;
    std::int64_t rounds = 0;
  };
  Pause pause_;
};

}  // namespace

const Here& here() {
  return current().place;
}

void await_turn() {
  current().had_turn = true;
  if (RaceTrace* const trace = running_trace()) trace->await_turn();
}

void wait_for_team(const Site& site) {
  check_site(site, *team_meeting);
  meet_and_order(*team_meeting, 0);
}

void wait_for_warp(const Site& site) {
  Thread& self = current();
  check_site(site, self.warp->meeting);
  meet_and_order(self.warp->meeting, self.place.thread / kWarp * kWarp);
}

void gather_warp(const Site& site, FunctionRef<void()> work) {
  Meeting& meeting = current().warp->meeting;
  check_site(site, meeting);
  meet_and(meeting, work);
}

std::uint32_t add_to_shared(std::uint32_t* to, std::uint32_t value) {
  if (RaceTrace* const trace = running_trace()) {
    trace->touch(to, sizeof(*to), Access::kAdd, __builtin_return_address(0));
  }
  const std::uint32_t before = *to;  // threads give way only where they wait
  *to = before + value;
  return before;
}

Slot* exchange_slots() {
  Thread& self = current();
  return self.warp->slots[self.exchanges++ % 2];
}

void copy_later(void* shared, const void* global_or_null, std::size_t bytes) {
  check_multiple(shared, bytes);
  check_multiple(global_or_null, bytes);
  parts->trace.write(shared);
  SharedCopy copy = {shared, global_or_null, bytes, __builtin_return_address(0)};
  copy.note();
  if (choices->below(2) == 0) copy.finish();  // a GPU may be early or late
  current().uncommitted.push_back(copy);
}

void commit_copies() {
  current().groups.push_back(std::exchange(current().uncommitted, {}));
}

void wait_copies(int pending) {
  auto& groups = current().groups;
  while (groups.size() > static_cast<std::size_t>(pending)) {
    for (SharedCopy& copy : groups.front()) {
      copy.note();
      copy.finish();
      current().unfenced.push_back(copy.to);
    }
    groups.pop_front();
  }
}

void check_aligned(const void* address) {
  check_multiple(address, 16);
}

void check_matrix_row(const void* address) {
  check_aligned(address);
  static_cast<void>(shared_address(address));
}

std::uint32_t shared_address(const void* shared) {
  return parts->trace.address_of(shared);
}

void note_store(const void* address) {
  if (!parts->trace.has(address)) return;
  parts->trace.write(address);
  current().unfenced.push_back(address);
}

// Copies that were not waited for stay unfenced.
void fence_shared_writes() {
  for (const void* const address : std::exchange(current().unfenced, {})) {
    parts->trace.fence(address);
  }
}

void multiply_group(const GroupProduct& product) {
  Thread& self = current();
  STEMMA_CHECK(self.registers_fenced, "products begin with a fence of registers");
  Group& group = group_of(self);
  group.products.set(self.place.thread % kGroupLanes, product);
  meet_and(group.meeting, [&] { group.products.issue(); });
}

void fence_registers() {
  Thread& self = current();
  meet(group_of(self).meeting);
  self.registers_fenced = true;
}

void commit_products() {
  Group& group = group_of(current());
  meet_and(group.meeting, [&] { group.products.commit(); });
}

// Registers may be touched from now on.
void wait_products(int pending) {
  Thread& self = current();
  Group& group = group_of(self);
  meet_and(group.meeting, [&] { group.products.wait(pending); });
  self.registers_fenced = false;
}

void check_settled(const float* sums) {
  STEMMA_CHECK(!group_of(current()).products.sums_at(sums),
               "sums are used before their products are waited for");
}

void begin_barrier(const void* barrier, int arrivals) {
  static_cast<void>(shared_address(barrier));
  parts->barriers[barrier] = {.expected = arrivals};
}

void arrive(const void* barrier) {
  RaceTrace* const trace = running_trace();
  if (trace != nullptr) trace->arrive(barrier);
  const bool all = come_to(barrier_at(barrier));
  if (trace != nullptr && all) trace->complete(barrier);
}

// A phase's parity is that of the phases before it.
void wait_for(const void* barrier, int parity) {
  const Meeting& meeting = barrier_at(barrier);
  if (meeting.rounds % 2 == parity) wait_at(meeting);
  if (RaceTrace* const trace = running_trace()) trace->acquire(barrier);
}

void run_grid(const Grid& grid, const std::function<void()>& kernel, std::uint64_t seed) {
  STEMMA_CHECK(running == nullptr, "a kernel does not run another");
  STEMMA_CHECK(grid.threads >= kWarp && grid.threads <= 1024 && grid.threads % kWarp == 0,
               "a team has 1 to 32 whole warps");
  Prng prng(seed);
  choices = &prng;
  Team team(grid, kernel, prng);
  std::vector<std::int64_t> order(
      static_cast<std::size_t>(grid.teams[0] * grid.teams[1] * grid.teams[2]));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  shuffle(order, prng);
  for (const std::int64_t place : order) {
    team.run({place % grid.teams[0], place / grid.teams[0] % grid.teams[1],
              place / grid.teams[0] / grid.teams[1]});
  }
  choices = nullptr;
}

}  // namespace stemma::simt
