#include "device/simt_runtime.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <string>
#include <utility>

#include "base/check.h"
#include "device/cuda_device.h"

namespace stemma::simt {

namespace {

constexpr std::int64_t kTeamsYMax = 65535;  // and z

constexpr int kWatchedEach = 12;  // of machines that are watched at times

#ifdef STEMMA_SIMT_RACES
constexpr bool kCanWatch = true;
#else
constexpr bool kCanWatch = false;
#endif

std::unique_ptr<Runtime> the_runtime;  // while a Machine lives

thread_local std::uint64_t used_in_thread = 0;  // number of a machine; 0: of none

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

// The first of a program, and then some.
bool is_watched(Watch watch) {
  static int machines = 0;
  const int number = machines++;
  if (!kCanWatch || watch == Watch::kNever) return false;
  return watch == Watch::kAlways || number % kWatchedEach == 0;
}

Error refused(const char* name, const std::string& why) {
  return {ErrorCode::kInternal, std::string(name) + ": " + why, 0};
}

}  // namespace

Runtime::Runtime(const Machine::Options& options)
    : options_(options), number_(next_number()), prng_(options.seed), arena_(options.memory_bytes) {
  if (!is_watched(options.watch)) return;
  trace_ = std::make_unique<RaceTrace>();
  trace_->set_device(arena_.begin(), options.memory_bytes);
}

Runtime::~Runtime() {
  if (default_stream_ != nullptr) release_stream(default_stream_);
  STEMMA_CHECK(streams_.empty() && pinned_.empty(), "the emulated GPU goes before its user");
}

void Runtime::use_in_thread() const {
  used_in_thread = number_;
}

void Runtime::check_used_in_thread() const {
  STEMMA_CHECK(used_in_thread == number_, "a thread queues that has not said on which GPU");
}

Stream* Runtime::make_stream() {
  Stream& stream = *streams_.emplace_back(std::make_unique<Stream>());
  const auto has = [&](std::size_t number) {
    return std::any_of(streams_.begin(), streams_.end(), [&](const auto& one) {
      return one.get() != &stream && one->number == number;
    });
  };
  while (has(stream.number)) ++stream.number;
  return &stream;
}

void Runtime::release_stream(Stream* stream) {
  STEMMA_CHECK(!stream->recording.has_value(), "a stream that records goes away");
  run_until([&] { return stream->queue.empty(); });
  see(stream->clock);
  std::erase_if(streams_, [&](const auto& one) { return one.get() == stream; });
}

Error Runtime::broken() {
  for (const auto& stream : streams_) see(stream->clock);
  return {ErrorCode::kInternal, "the emulated GPU has failed", 0};
}

Status Runtime::may_queue(const char* name) {
  if (failed_) return broken();
  if (of_queueing_.take()) return refused(name, "it is not queued");
  return {};
}

Status Runtime::queue(Stream& stream, Work work) {
  STEMMA_RETURN_IF_ERROR(may_queue(work.name));
  push(stream, std::move(work));
  return {};
}

void Runtime::push(Stream& stream, Work work) {
  if (stream.recording.has_value()) {
    stream.recording->push_back(std::move(work));
    return;
  }
  if (trace_ != nullptr) work.clock = next_time(stream, work.name).clock;
  stream.queue.push_back(std::move(work));
  if (options_.eager) run_until([&] { return stream.queue.empty(); });
}

void Runtime::let_time_pass() {
  arena_.open();
  if (prng_.below(2) == 0) static_cast<void>(run_one());
  arena_.close();
}

void Runtime::load_kernel(const void* kernel) {
  if (!loaded_.insert(kernel).second) return;
  for (const auto& stream : streams_) {
    STEMMA_CHECK(!stream->recording.has_value() || stream->recorder == std::this_thread::get_id(),
                 "a kernel is loaded while another thread records");
  }
}

void Runtime::run_kernel(const Grid& grid, const std::function<void()>& kernel) {
  if (kernels_left_.has_value() && (*kernels_left_)-- <= 0) failed_ = true;
  if (failed_) return;
  set_running_trace(trace_.get());
  map_pinned(PROT_NONE);
  run_grid(grid, kernel, prng_());
  map_pinned(PROT_READ | PROT_WRITE);
  set_running_trace(nullptr);
  if (trace_ != nullptr) trace_->end_kernel();
  ++kernels_;
}

void Runtime::map_pinned(int protection) const {
  if (options_.kernels_reach_pinned) return;
  for (const auto& [bytes, size_bytes] : pinned_) {
    std::byte* const memory = const_cast<std::byte*>(bytes);
    if (pinned_buffers.contains(memory)) continue;  // the device's own
    STEMMA_CHECK(mprotect(memory, size_bytes, protection) == 0, "whole pages");
  }
}

Status Runtime::take_memory(const char* what) {
  if (!of_memory_.take()) return {};
  return Error{ErrorCode::kOutOfMemory, std::string("no memory for ") + what, 0};
}

void* Runtime::try_allocate(std::size_t size_bytes, Stream& stream) {
  if (of_memory_.take()) return nullptr;
  void* const bytes = arena_.try_allocate(size_bytes);
  if (trace_ != nullptr && bytes != nullptr) {
    trace_->begin_memory(bytes, size_bytes, next_time(stream, "an allocation"));
  }
  return bytes;
}

void Runtime::give_back(void* bytes) {
  if (trace_ != nullptr) trace_->end_memory(bytes);
  arena_.give_back(bytes);
}

void Runtime::read(const void* from, std::size_t size_bytes) {
  if (trace_ != nullptr) trace_->touch(from, size_bytes, Access::kRead);
}

void Runtime::write(const void* to, std::size_t size_bytes) {
  if (trace_ != nullptr) trace_->touch(to, size_bytes, Access::kWrite);
}

void Runtime::check_not_recording() const {
  for (const auto& stream : streams_) {
    STEMMA_CHECK(!stream->recording.has_value() || stream->recorder != std::this_thread::get_id(),
                 "host memory is pinned or unpinned by a thread that records");
  }
}

void Runtime::pin(const void* bytes, std::size_t size_bytes) {
  check_not_recording();
  pinned_.emplace(static_cast<const std::byte*>(bytes), size_bytes);
  if (trace_ != nullptr) trace_->begin_host(bytes, size_bytes);
}

void Runtime::unpin(const void* bytes) {
  check_not_recording();
  const auto piece = pinned_.find(static_cast<const std::byte*>(bytes));
  STEMMA_CHECK(piece != pinned_.end(), "only pinned memory is unpinned");
  const std::byte* const end = piece->first + piece->second;
  for (const auto& stream : streams_) {
    for (const Work& work : stream->queue) {
      STEMMA_CHECK(work.host_or_null < piece->first || work.host_or_null >= end,
                   "pinned memory goes away while a copy names it");
    }
  }
  pinned_.erase(piece);
  if (trace_ != nullptr) trace_->end_host(bytes);
}

bool Runtime::is_pinned(const void* bytes, std::size_t size_bytes) const {
  const auto* const begin = static_cast<const std::byte*>(bytes);
  auto piece = pinned_.upper_bound(begin);
  if (piece == pinned_.begin()) return false;
  --piece;
  return begin + size_bytes <= piece->first + piece->second;
}

bool Runtime::is_partly_pinned(const void* bytes, std::size_t size_bytes) const {
  const auto* const begin = static_cast<const std::byte*>(bytes);
  const auto behind = pinned_.lower_bound(begin + size_bytes);
  if (behind == pinned_.begin()) return false;
  const auto& [last, last_bytes] = *std::prev(behind);
  return last + last_bytes > begin;
}

bool Runtime::can_begin(const Stream& stream) const {
  return !stream.queue.empty() && is_done(stream.queue.front().waits_for);
}

// What is queued next in a stream comes behind this.
WorkTime Runtime::next_time(Stream& stream, const char* name) {
  join(stream.clock, host_clock_);
  stream.clock.resize(std::max(stream.clock.size(), stream.number + 1));
  ++stream.clock[stream.number];
  return {stream.number, stream.clock, name};
}

bool Runtime::run_one() {
  std::vector<Stream*> ready;
  for (const auto& stream : streams_) {
    if (can_begin(*stream)) ready.push_back(stream.get());
  }
  if (ready.empty()) return false;
  Stream& stream =
      *ready[static_cast<std::size_t>(prng_.below(static_cast<std::int64_t>(ready.size())))];
  const Work work = std::move(stream.queue.front());
  stream.queue.pop_front();
  if (trace_ != nullptr) trace_->begin_work({stream.number, work.clock, work.name});
  if (work.run && (!failed_ || work.when_failed)) work.run();
  open_tickets_.erase(work.gives);
  return true;
}

std::uint64_t Runtime::next_ticket() {
  open_tickets_.insert(++last_ticket_);
  return last_ticket_;
}

bool can_watch_accesses() {
  return kCanWatch;
}

bool has_runtime() noexcept {
  return the_runtime != nullptr;
}

Runtime& runtime() {
  STEMMA_CHECK(the_runtime != nullptr, "there is an emulated GPU");
  return *the_runtime;
}

Stream& Runtime::default_stream() {
  if (default_stream_ == nullptr) default_stream_ = make_stream();
  return *default_stream_;
}

Stream& stream_of(void* raw) {
  if (raw == stemma::default_stream()) return runtime().default_stream();
  STEMMA_CHECK(raw != nullptr, "a stream that was made");
  return *static_cast<Stream*>(raw);
}

Event& event_of(void* raw) {
  STEMMA_CHECK(raw != nullptr, "an event that was made");
  return *static_cast<Event*>(raw);
}

void load_kernel(const void* kernel) {
  const std::lock_guard lock(runtime().mutex());
  runtime().load_kernel(kernel);
}

void ask_about_launches() {
  static constexpr char kNoWork = 0;  // stands for a kernel
  load_kernel(&kNoWork);
}

Status queue_kernel(void* stream, const char* name, const Grid& grid,
                    std::function<void()> kernel) {
  if (grid.threads < 1 || grid.threads > 1024) {
    return refused(name, "a team of " + std::to_string(grid.threads) + " threads");
  }
  if (grid.shared_bytes > static_cast<std::size_t>(team_shared_bytes_max())) {
    return refused(name, std::to_string(grid.shared_bytes) + " shared bytes");
  }
  if (grid.teams[1] > kTeamsYMax || grid.teams[2] > kTeamsYMax || grid.teams[0] > INT32_MAX) {
    return refused(name, "too many teams");
  }
  return queue_work(stream, name,
                    [grid, kernel = std::move(kernel)] { runtime().run_kernel(grid, kernel); });
}

std::int64_t team_shared_bytes_max() {
  return runtime().options().team_shared_bytes;
}

Status queue_work(void* stream, const char* name, std::function<void()> work) {
  const std::lock_guard lock(runtime().mutex());
  runtime().check_used_in_thread();
  return runtime().queue(stream_of(stream), {.run = std::move(work), .name = name});
}

Machine::Machine(const Options& options) {
  STEMMA_CHECK(the_runtime == nullptr, "one emulated GPU at a time");
  the_runtime = std::make_unique<Runtime>(options);
}

Machine::~Machine() {
  the_runtime.reset();
}

std::int64_t Machine::kernels() const {
  const std::lock_guard lock(runtime().mutex());
  return runtime().kernels();
}

void Machine::fail_allocations(std::int64_t count, std::int64_t passing) {
  const std::lock_guard lock(runtime().mutex());
  runtime().fail_allocations({passing, count});
}

void Machine::fail_queueing(std::int64_t count, std::int64_t passing) {
  const std::lock_guard lock(runtime().mutex());
  runtime().fail_queueing({passing, count});
}

std::int64_t Machine::failures_left() const {
  const std::lock_guard lock(runtime().mutex());
  return runtime().failures_left();
}

void Machine::fail_after_kernels(std::int64_t count) {
  const std::lock_guard lock(runtime().mutex());
  runtime().fail_after_kernels(count);
}

Window::Window() {
  const std::lock_guard lock(runtime().mutex());
  runtime().arena().open();
}

Window::~Window() {
  const std::lock_guard lock(runtime().mutex());
  runtime().arena().close();
}

}  // namespace stemma::simt
