#include "device/simt_races.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <limits>
#include <type_traits>
#include <utility>

#include "base/check.h"

// Where the program's code begins: the linker says so.
extern const char code_begin asm("__executable_start");

namespace stemma::simt {

namespace {

// A work that touches so much at once, as whoever fills a pool of many GiB, is not noted.
constexpr std::size_t kWholeBytes = std::size_t{64} << 20;

std::uintptr_t number_of(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

std::uint32_t code_of(const void* code) {
  return code == nullptr ? 0 : static_cast<std::uint32_t>(number_of(code) - number_of(&code_begin));
}

void take_larger(std::uint16_t* into, const std::uint16_t* from, int count) {
  for (int i = 0; i < count; ++i) into[i] = std::max(into[i], from[i]);
}

const char* verb_of(Access access) {
  if (access == Access::kRead) return "reads";
  return access == Access::kWrite ? "writes" : "adds to";
}

}  // namespace

void join(WorkClock& clock, const WorkClock& other) {
  clock.resize(std::max(clock.size(), other.size()));
  for (std::size_t i = 0; i < other.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

RaceTrace::RaceTrace() {
  works_.push_back({0, 0, 0, "nothing"});
}

// ---- Memory.

void RaceTrace::set_device(const std::byte* begin, std::size_t size_bytes) {
  device_ = number_of(begin);
  device_bytes_ = size_bytes;
}

// Calls with the cells of these bytes that there are: where the first one is, and how many.
template <typename Call>
void RaceTrace::each_known(std::uintptr_t begin, std::size_t size_bytes, const Call& call) {
  const std::uintptr_t end = begin + size_bytes;
  for (std::uintptr_t number = begin / kPageBytes; number * kPageBytes < end; ++number) {
    const auto page = pages_.find(number);
    if (page == pages_.end()) continue;
    const std::uintptr_t from = std::max(number * kPageBytes, begin);
    const std::uintptr_t to = std::min((number + 1) * kPageBytes, end);
    call(page->second + from % kPageBytes, to - from, from);
  }
}

void RaceTrace::begin_memory(const void* begin, std::size_t size_bytes, const WorkTime& time) {
  const Actor allocation = {new_run(time), 0, 1, 0};
  pieces_[number_of(begin)] = {size_bytes, allocation};
  clear(number_of(begin), size_bytes, allocation);
}

void RaceTrace::end_memory(const void* begin) {
  const auto piece = pieces_.find(number_of(begin));
  STEMMA_CHECK(piece != pieces_.end(), "only what was allocated comes back");
  each_known(number_of(begin), piece->second.size_bytes,
             [&](Cell* cells, std::size_t count, std::uintptr_t at) {
               note(cells, count, self_, Access::kWrite, at);
             });
  pieces_.erase(piece);
}

void RaceTrace::begin_host(const void* begin, std::size_t size_bytes) {
  host_[number_of(begin)] = size_bytes;
  near_numbers_ = {};
  clear(number_of(begin), size_bytes, {});
}

void RaceTrace::end_host(const void* begin) {
  host_.erase(number_of(begin));
}

// What was known of these bytes is forgotten; `writer` was the last.
void RaceTrace::clear(std::uintptr_t begin, std::size_t size_bytes, const Actor& writer) {
  each_known(begin, size_bytes, [&](Cell* cells, std::size_t count, std::uintptr_t) {
    std::fill_n(cells, count, Cell{writer, {}, false});
  });
}

bool RaceTrace::is_watched(std::uintptr_t at) const {
  if (at - device_ < device_bytes_) return true;
  const auto behind = host_.upper_bound(at);
  if (behind == host_.begin()) return false;
  const auto& [begin, size_bytes] = *std::prev(behind);
  return at - begin < size_bytes;
}

// Whether any byte of the page is: not of pages of stacks, which are looked up most.
bool RaceTrace::has_watched(std::uintptr_t number) const {
  const std::uintptr_t begin = number * kPageBytes;
  if (is_watched(begin)) return true;
  const auto behind = host_.upper_bound(begin);
  return behind != host_.end() && behind->first < begin + kPageBytes;
}

RaceTrace::Cell* RaceTrace::make_page(std::uintptr_t number) {
  Cell* const page = fresh_cells();
  const std::uintptr_t begin = number * kPageBytes;
  auto piece = pieces_.upper_bound(begin);
  if (piece != pieces_.begin()) --piece;
  for (; piece != pieces_.end() && piece->first < begin + kPageBytes; ++piece) {
    const std::uintptr_t from = std::max(begin, piece->first);
    const std::uintptr_t to = std::min(begin + kPageBytes, piece->first + piece->second.size_bytes);
    for (std::uintptr_t at = from; at < to; ++at) page[at - begin].write = piece->second.actor;
  }
  pages_[number] = page;
  return page;
}

// Zeros, which is what nobody touched.
RaceTrace::Cell* RaceTrace::fresh_cells() {
  static_assert(std::is_trivially_copyable_v<Cell>);
  if (chunk_pages_ == 0) {
    auto chunk = Buffer::allocate(kChunkPages * kPageBytes * sizeof(Cell));
    STEMMA_CHECK(chunk.ok(), "memory for what is known of accesses");
    chunks_.push_back(std::move(chunk).value());
    chunk_pages_ = kChunkPages;
  }
  --chunk_pages_;
  return chunks_.back().as<Cell>().data() + chunk_pages_ * kPageBytes;
}

RaceTrace::Cell* RaceTrace::page_or_null(std::uintptr_t number) {
  const std::size_t place = number % kNear;
  if (near_numbers_[place] == number) return near_pages_[place];
  const auto found = pages_.find(number);
  Cell* cells = found != pages_.end() ? found->second : nullptr;
  if (cells == nullptr && has_watched(number)) cells = make_page(number);
  near_numbers_[place] = number;
  near_pages_[place] = cells;
  return cells;
}

// ---- Works.

std::uint32_t RaceTrace::new_run(const WorkTime& time) {
  STEMMA_CHECK(last_run_ < std::numeric_limits<std::uint32_t>::max(), "runs can be counted");
  works_.push_back({++last_run_, time.clock[time.stream], time.stream, time.name});
  return last_run_;
}

const RaceTrace::Work& RaceTrace::work_of(std::uint32_t run) const {
  const auto behind =
      std::upper_bound(works_.begin(), works_.end(), run,
                       [](std::uint32_t one, const Work& work) { return one < work.first_run; });
  return *std::prev(behind);
}

void RaceTrace::begin_work(const WorkTime& time) {
  time_ = time;
  run_ = new_run(time);
  work_first_run_ = run_;
  threads_ = 0;
  thread_ = 0;
  self_ = {run_, 0, 1, 0};
  answers_ = {};
}

void RaceTrace::touch(const void* address, std::size_t size_bytes, Access access,
                      const void* code) {
  const std::uintptr_t begin = number_of(address);
  Actor actor = self_;
  actor.code = code_of(code);
  if (begin - shared_ < shared_bytes_) {
    const std::size_t at = begin - shared_;
    note(&shared_cells_[at], std::min(size_bytes, shared_bytes_ - at), actor, access, begin);
    return;
  }
  if (size_bytes >= kWholeBytes) return;
  for (std::uintptr_t at = begin; at < begin + size_bytes;) {
    Cell* const cells = page_or_null(at / kPageBytes);
    if (cells == nullptr || !is_watched(at)) return;
    const std::uintptr_t end = std::min(begin + size_bytes, (at / kPageBytes + 1) * kPageBytes);
    note(cells + at % kPageBytes, end - at, actor, access, at);
    at = end;
  }
}

// ---- Order.

bool RaceTrace::is_ordered_work(std::uint32_t run) {
  Answer& answer = answers_[run % kNear];
  if (answer.run != run) {
    const Work& work = work_of(run);
    const bool ordered =
        work.stream < time_.clock.size() && time_.clock[work.stream] >= work.of_stream;
    answer = {run, ordered};
  }
  return answer.ordered;
}

bool RaceTrace::is_ordered(const Actor& prior) {
  if (prior.run == 0) return true;
  if (prior.run == run_) {
    return prior.thread == thread_ || clocks_of(thread_)[prior.thread] >= prior.clock;
  }
  return prior.run < work_first_run_ && is_ordered_work(prior.run) && !is_overlapped(prior.run);
}

// Whether it is of the kernel whose end the running thread has not awaited.
bool RaceTrace::is_overlapped(std::uint32_t run) const {
  if (has_turn_.empty() || has_turn_[thread_]) return false;
  const Work& work = work_of(run);
  return work.is_kernel && work.stream == time_.stream &&
         work.of_stream + 1 == time_.clock[time_.stream];
}

// Neighbours mostly have one past.
void RaceTrace::note(Cell* cells, std::size_t count, const Actor& actor, Access access,
                     std::uintptr_t at) {
  // Of a struct that is copied some bytes are padding.
  const auto unwritten = [&](const Cell& cell) { return cell.write.run != run_; };
  if (access == Access::kRead && at - shared_ < shared_bytes_ &&
      std::all_of(cells, cells + count, unwritten)) {
    fail_unwritten(actor, at);
  }
  const Cell* known = nullptr;
  Cell before;
  for (std::size_t i = 0; i < count; ++i) {
    if (known != nullptr && cells[i] == before) {
      cells[i] = *known;
      continue;
    }
    before = cells[i];
    note_one(cells[i], actor, access, at + i);
    known = &cells[i];
  }
}

// Shared memory is of one run: of others that had it before nothing is left.
void RaceTrace::note_one(Cell& cell, const Actor& actor, Access access, std::uintptr_t at) {
  if (at - shared_ < shared_bytes_ && cell.write.run != run_ && cell.reads[0].run != run_) {
    cell = {};
  }
  const bool both_add = access == Access::kAdd && cell.adds;
  if (!both_add && !is_ordered(cell.write)) {
    fail(cell.write, cell.adds ? "added to" : "wrote", actor, access, at);
  }
  if (access == Access::kRead) {
    const bool first = is_ordered(cell.reads[0]);
    const bool second = !first && (is_ordered(cell.reads[1]) || thread_ % 2 == 0);
    if (first || second) cell.reads[first ? 0 : 1] = actor;
    return;
  }
  for (const Actor& read : cell.reads) {
    if (!is_ordered(read)) fail(read, "read", actor, access, at);
  }
  cell = {actor, {}, access == Access::kAdd};
}

void RaceTrace::fail_unwritten(const Actor& actor, std::uintptr_t at) const {
  std::fprintf(stderr, "%s, thread %d (code +0x%x), reads byte %zu of shared memory\n", time_.name,
               int{actor.thread}, actor.code, at - shared_);
  STEMMA_CHECK(false, "shared memory is written before it is read");
}

void RaceTrace::fail(const Actor& prior, const char* did, const Actor& actor, Access access,
                     std::uintptr_t at) const {
  const Work& work = work_of(prior.run);
  const bool shared = at - shared_ < shared_bytes_;
  std::fprintf(stderr,
               "race: %s, thread %d of run %u (code +0x%x), %s byte %zu of %s memory;\n"
               "  %s, thread %d of run %u (code +0x%x), %s it, and nothing orders the two\n",
               time_.name, int{actor.thread}, actor.run, actor.code, verb_of(access),
               shared ? at - shared_ : at - device_, shared ? "shared" : "the device's", work.name,
               int{prior.thread}, prior.run, prior.code, did);
  STEMMA_CHECK(false, "accesses to a byte are ordered where one of them writes");
}

// ---- Kernels.

void RaceTrace::begin_team(int threads, const std::byte* shared, std::size_t shared_bytes,
                           bool early) {
  run_ = threads_ == 0 ? run_ : ++last_run_;
  works_.back().is_kernel = true;
  has_turn_.assign(static_cast<std::size_t>(threads), !early);
  threads_ = threads;
  const auto count = static_cast<std::size_t>(threads);
  clocks_.assign(count * count, 0);
  joined_.resize(count);
  for (int i = 0; i < threads; ++i) clocks_of(i)[i] = 1;
  barriers_.clear();
  shared_ = number_of(shared);
  shared_bytes_ = shared_bytes;
  if (shared_cells_.size() < shared_bytes) shared_cells_.resize(shared_bytes);
}

void RaceTrace::end_kernel() {
  shared_bytes_ = 0;
  has_turn_.clear();
}

// What it does next is not known to others.
void RaceTrace::let_go_on(int thread) {
  std::uint16_t& own = clocks_of(thread)[thread];
  STEMMA_CHECK(own < std::numeric_limits<std::uint16_t>::max(), "barriers can be counted");
  ++own;
  if (thread == thread_) self_.clock = own;
}

void RaceTrace::meet(int first, int count) {
  std::copy_n(clocks_of(first), threads_, joined_.begin());
  for (int i = 1; i < count; ++i) take_larger(joined_.data(), clocks_of(first + i), threads_);
  for (int i = 0; i < count; ++i) {
    std::copy(joined_.begin(), joined_.end(), clocks_of(first + i));
    let_go_on(first + i);
  }
}

void RaceTrace::arrive(const void* barrier) {
  std::vector<std::uint16_t>& arrived = barriers_[barrier].arrived;
  arrived.resize(static_cast<std::size_t>(threads_));
  take_larger(arrived.data(), clocks_of(thread_), threads_);
  let_go_on(thread_);
}

void RaceTrace::complete(const void* barrier) {
  Barrier& done = barriers_[barrier];
  done.complete = done.arrived;
}

void RaceTrace::acquire(const void* barrier) {
  const std::vector<std::uint16_t>& known = barriers_[barrier].complete;
  if (!known.empty()) take_larger(clocks_of(thread_), known.data(), threads_);
}

}  // namespace stemma::simt
