#include "device/simt_arena.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "base/math.h"
#include "device/huge_mapping.h"

namespace stemma::simt {

namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kGuardBytes = 1024;  // on both sides; a multiple of the alignment
constexpr int kPoison = 0xFF;
constexpr std::byte kGuard{0xA5};
constexpr std::size_t kPageBytes = 4096;  // of the system
constexpr std::size_t kEndBytes = 16 * kPageBytes;

bool is_vast(std::size_t size_bytes) {
  return size_bytes >= SimtArena::kVastBytes;
}

// Zeros, without touching the pages between the ends.
void clear_vast(std::byte* bytes, std::size_t size_bytes) {
  std::byte* const end = bytes + size_bytes;
  const auto aligned = [](std::byte* at) {
    return at + (kPageBytes - reinterpret_cast<std::uintptr_t>(at) % kPageBytes) % kPageBytes;
  };
  std::byte* const whole = aligned(bytes);
  std::byte* const whole_end = aligned(end) - (aligned(end) == end ? 0 : kPageBytes);
  std::memset(bytes, 0, static_cast<std::size_t>(whole - bytes));
  STEMMA_CHECK_EQ(madvise(whole, static_cast<std::size_t>(whole_end - whole), MADV_DONTNEED), 0);
  std::memset(whole_end, 0, static_cast<std::size_t>(end - whole_end));
}

void poison(std::byte* bytes, std::size_t size_bytes) {
  if (!is_vast(size_bytes)) {
    std::memset(bytes, kPoison, size_bytes);
    return;
  }
  clear_vast(bytes, size_bytes);
  std::memset(bytes, kPoison, kEndBytes);
  std::memset(bytes + size_bytes - kEndBytes, kPoison, kEndBytes);
}

struct Mapping {
  std::byte* memory = nullptr;
  std::size_t size_bytes = 0;
};
std::mutex idle_mutex;
Mapping idle;  // that of the arena before; empty: another has it

std::byte* take_mapping(std::size_t size_bytes) {
  const std::lock_guard lock(idle_mutex);
  const Mapping before = std::exchange(idle, {});
  if (before.size_bytes == size_bytes) return before.memory;
  unmap(before.memory, before.size_bytes);
  std::byte* const memory = try_map_huge(size_bytes, PROT_NONE, MAP_NORESERVE);
  STEMMA_CHECK(memory != nullptr, "address space for an emulated GPU");
  return memory;
}

void keep_mapping(std::byte* memory, std::size_t size_bytes) {
  const std::lock_guard lock(idle_mutex);
  const Mapping before = std::exchange(idle, {memory, size_bytes});
  unmap(before.memory, before.size_bytes);
}

}  // namespace

SimtArena::SimtArena(std::size_t size_bytes)
    : size_bytes_(round_up(size_bytes, kHugePageBytes)), memory_(take_mapping(size_bytes_)) {}

SimtArena::~SimtArena() {
  STEMMA_CHECK(pieces_.empty(), "device memory outlives the emulated GPU");
  ASAN_UNPOISON_MEMORY_REGION(memory_, used_end_);
  keep_mapping(memory_, size_bytes_);
}

// Where a piece with its guards fits first; size_bytes_ if nowhere.
std::size_t SimtArena::find_room(std::size_t size_bytes) const {
  const std::size_t wanted = size_bytes + 2 * kGuardBytes;
  std::size_t begin = 0;
  for (const auto& [piece, piece_bytes] : pieces_) {
    if (piece - kGuardBytes >= begin + wanted) break;
    begin = round_up(piece + piece_bytes + kGuardBytes, kAlignment);
  }
  return begin + wanted <= size_bytes_ ? begin + kGuardBytes : size_bytes_;
}

void* SimtArena::try_allocate(std::size_t size_bytes) {
  const std::size_t begin = find_room(size_bytes);
  if (begin == size_bytes_) return nullptr;
  used_end_ = std::max(used_end_, round_up(begin + size_bytes + kGuardBytes, kHugePageBytes));
  const int opened = std::exchange(opened_, 0);
  open();  // up to the new end
  opened_ = opened + 1;
  ASAN_UNPOISON_MEMORY_REGION(memory_ + begin - kGuardBytes, size_bytes + 2 * kGuardBytes);
  std::memset(memory_ + begin - kGuardBytes, static_cast<int>(kGuard), kGuardBytes);
  poison(memory_ + begin, size_bytes);
  std::memset(memory_ + begin + size_bytes, static_cast<int>(kGuard), kGuardBytes);
  ASAN_POISON_MEMORY_REGION(memory_ + begin - kGuardBytes, kGuardBytes);
  ASAN_POISON_MEMORY_REGION(memory_ + begin + size_bytes, kGuardBytes);
  close();
  pieces_.emplace(begin, size_bytes);
  return memory_ + begin;
}

void SimtArena::give_back(void* bytes) {
  const auto begin = static_cast<std::size_t>(static_cast<std::byte*>(bytes) - memory_);
  const auto piece = pieces_.find(begin);
  STEMMA_CHECK(piece != pieces_.end(), "only what was allocated comes back");
  open();
  ASAN_UNPOISON_MEMORY_REGION(memory_ + begin - kGuardBytes, piece->second + 2 * kGuardBytes);
  check_guards(begin, piece->second);
  poison(memory_ + begin, piece->second);
  if (!is_vast(piece->second)) ASAN_POISON_MEMORY_REGION(memory_ + begin, piece->second);
  close();
  pieces_.erase(piece);
}

void SimtArena::fill(void* bytes, int value, std::size_t size_bytes) {
  if (value == 0 && is_vast(size_bytes)) {
    clear_vast(static_cast<std::byte*>(bytes), size_bytes);
  } else {
    std::memset(bytes, value, size_bytes);
  }
}

void SimtArena::check_guards(std::size_t begin, std::size_t size_bytes) const {
  const auto is_guard = [](std::byte byte) { return byte == kGuard; };
  const std::byte* const before = memory_ + begin - kGuardBytes;
  const std::byte* const behind = memory_ + begin + size_bytes;
  STEMMA_CHECK(std::all_of(before, before + kGuardBytes, is_guard) &&
                   std::all_of(behind, behind + kGuardBytes, is_guard),
               "something was written beside an allocation of device memory");
}

void SimtArena::open() {
  if (opened_++ == 0 && used_end_ > 0) {
    STEMMA_CHECK_EQ(mprotect(memory_, used_end_, PROT_READ | PROT_WRITE), 0);
  }
}

void SimtArena::close() {
  if (--opened_ == 0 && used_end_ > 0) {
    STEMMA_CHECK_EQ(mprotect(memory_, used_end_, PROT_NONE), 0);
  }
}

}  // namespace stemma::simt
