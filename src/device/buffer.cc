// Large mappings are made one huge page too long, and the ends that the alignment leaves over go
// back at once.
#include "device/buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
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

}  // namespace

Result<Buffer> Buffer::allocate(std::size_t size_bytes) {
  if (size_bytes == 0) return Buffer();
  if (size_bytes > kSizeMax) return out_of_memory(size_bytes, ENOMEM);
  const bool huge = size_bytes >= kHugeFromBytes;
  const std::size_t alignment = huge ? kHugePageBytes : kPageBytes;
  const std::size_t mapped_bytes = round_up(size_bytes, alignment);
  const std::size_t asked_bytes = mapped_bytes + (huge ? alignment : 0);
  void* const mapping =
      mmap(nullptr, asked_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return out_of_memory(size_bytes, errno);
  auto* const first = static_cast<std::byte*>(mapping);
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(first) % alignment;
  const std::size_t head = misaligned == 0 ? 0 : alignment - misaligned;
  unmap(first, head);
  unmap(first + head + mapped_bytes, asked_bytes - mapped_bytes - head);
  if (huge) {
    // Advice only: without huge pages everything works, more slowly.
    static_cast<void>(madvise(first + head, mapped_bytes, MADV_HUGEPAGE));
  }
  return Buffer(first + head, size_bytes, mapped_bytes);
}

void Buffer::prefault(ThreadPool& pool) {
  constexpr std::size_t kPieceBytes = 8 * kHugePageBytes;
  const auto pieces = static_cast<std::int64_t>(ceil_div(mapped_bytes_, kPieceBytes));
  pool.run(pieces, [this](std::int64_t piece, int) {
    const std::size_t begin = static_cast<std::size_t>(piece) * kPieceBytes;
    const std::size_t end =
        begin + kPieceBytes < mapped_bytes_ ? begin + kPieceBytes : mapped_bytes_;
    for (std::size_t offset = begin; offset < end; offset += kPageBytes) {
      volatile std::byte* const touched = bytes_ + offset;
      *touched = *touched;
    }
  });
}

void Buffer::release() noexcept {
  unmap(bytes_, mapped_bytes_);
  bytes_ = nullptr;
  size_bytes_ = 0;
  mapped_bytes_ = 0;
}

Buffer::~Buffer() {
  release();
}

Buffer::Buffer(Buffer&& other) noexcept
    : bytes_(std::exchange(other.bytes_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  release();
  bytes_ = std::exchange(other.bytes_, nullptr);
  size_bytes_ = std::exchange(other.size_bytes_, 0);
  mapped_bytes_ = std::exchange(other.mapped_bytes_, 0);
  return *this;
}

}  // namespace stemma
