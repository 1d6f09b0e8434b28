#include "device/simt_arena.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/math.h"

namespace stemma::simt {

namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kGuardBytes = 1024;  // on both sides; a multiple of the alignment
constexpr int kPoison = 0xFF;
constexpr std::byte kGuard{0xA5};

}  // namespace

SimtArena::SimtArena(std::size_t size_bytes)
    : size_bytes_(round_up(size_bytes, std::size_t{4096})) {
  void* const mapping =
      mmap(nullptr, size_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  STEMMA_CHECK(mapping != MAP_FAILED, "address space for an emulated GPU");
  memory_ = static_cast<std::byte*>(mapping);
}

SimtArena::~SimtArena() {
  STEMMA_CHECK(pieces_.empty(), "device memory outlives the emulated GPU");
  ASAN_UNPOISON_MEMORY_REGION(memory_, used_end_);
  STEMMA_CHECK_EQ(munmap(memory_, size_bytes_), 0);
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
  used_end_ = std::max(used_end_, round_up(begin + size_bytes + kGuardBytes, std::size_t{4096}));
  const int opened = std::exchange(opened_, 0);
  open();  // up to the new end
  opened_ = opened + 1;
  ASAN_UNPOISON_MEMORY_REGION(memory_ + begin - kGuardBytes, size_bytes + 2 * kGuardBytes);
  std::memset(memory_ + begin - kGuardBytes, static_cast<int>(kGuard), kGuardBytes);
  std::memset(memory_ + begin, kPoison, size_bytes);
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
  std::memset(memory_ + begin, kPoison, piece->second);
  ASAN_POISON_MEMORY_REGION(memory_ + begin, piece->second);
  close();
  pieces_.erase(piece);
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
