// Large buffers are mappings, made one huge page too long: the ends that the alignment leaves over
// go back at once. Small ones come from the heap, which has touched most of its pages before: a
// fresh one costs as much as writing dozens.
#include "device/buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/math.h"

namespace stemma {

namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kHugeFromBytes = kHugePageBytes / 4;
constexpr std::size_t kSizeMax = std::numeric_limits<std::size_t>::max() - 2 * kHugePageBytes;

Error out_of_memory(std::size_t size_bytes, int sys_errno) {
  return Error{ErrorCode::kOutOfMemory,
               "cannot map " + std::to_string(size_bytes) + " bytes of host memory", sys_errno};
}

void unmap(std::byte* begin, std::size_t size_bytes) noexcept {
  if (size_bytes == 0) return;
  STEMMA_CHECK_EQ(munmap(begin, size_bytes), 0);
}

std::byte* heap_bytes_or_null(std::size_t size_bytes) {
  void* const bytes = std::aligned_alloc(kPageBytes, size_bytes);
  if (bytes != nullptr) std::memset(bytes, 0, size_bytes);
  return static_cast<std::byte*>(bytes);
}

// At a multiple of a huge page. nullptr: errno says why.
std::byte* mapping_or_null(std::size_t size_bytes) {
  const std::size_t asked_bytes = size_bytes + kHugePageBytes;
  void* const mapping =
      mmap(nullptr, asked_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  auto* const first = static_cast<std::byte*>(mapping);
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(first) % kHugePageBytes;
  const std::size_t head = misaligned == 0 ? 0 : kHugePageBytes - misaligned;
  unmap(first, head);
  unmap(first + head + size_bytes, asked_bytes - size_bytes - head);
  // Advice only: without huge pages everything works, more slowly.
  static_cast<void>(madvise(first + head, size_bytes, MADV_HUGEPAGE));
  return first + head;
}

bool is_mapping(std::size_t size_bytes) {
  return size_bytes >= kHugeFromBytes;
}

}  // namespace

Result<Buffer> Buffer::allocate(std::size_t size_bytes) {
  if (size_bytes == 0) return Buffer();
  if (size_bytes > kSizeMax) return out_of_memory(size_bytes, ENOMEM);
  const bool mapping = is_mapping(size_bytes);
  const std::size_t whole_bytes = round_up(size_bytes, mapping ? kHugePageBytes : kPageBytes);
  std::byte* const bytes = mapping ? mapping_or_null(whole_bytes) : heap_bytes_or_null(whole_bytes);
  if (bytes == nullptr) return out_of_memory(size_bytes, errno);
  return Buffer(bytes, size_bytes, whole_bytes);
}

void Buffer::prefault(ThreadPool& pool) {
  constexpr std::size_t kPieceBytes = 8 * kHugePageBytes;
  const auto pieces = static_cast<std::int64_t>(ceil_div(whole_bytes_, kPieceBytes));
  pool.run(pieces, [this](std::int64_t piece, int) {
    const std::size_t begin = static_cast<std::size_t>(piece) * kPieceBytes;
    const std::size_t end = begin + kPieceBytes < whole_bytes_ ? begin + kPieceBytes : whole_bytes_;
    for (std::size_t offset = begin; offset < end; offset += kPageBytes) {
      volatile std::byte* const touched = bytes_ + offset;
      *touched = *touched;
    }
  });
}

void Buffer::release() noexcept {
  if (is_mapping(size_bytes_)) {
    unmap(bytes_, whole_bytes_);
  } else {
    std::free(bytes_);
  }
  bytes_ = nullptr;
  size_bytes_ = 0;
  whole_bytes_ = 0;
}

Buffer::~Buffer() {
  release();
}

Buffer::Buffer(Buffer&& other) noexcept
    : bytes_(std::exchange(other.bytes_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)),
      whole_bytes_(std::exchange(other.whole_bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  release();
  bytes_ = std::exchange(other.bytes_, nullptr);
  size_bytes_ = std::exchange(other.size_bytes_, 0);
  whole_bytes_ = std::exchange(other.whole_bytes_, 0);
  return *this;
}

}  // namespace stemma
