// Large buffers are mappings. Small ones come from the heap, which has touched most of its pages
// before: a fresh one costs as much as writing dozens.
#include "device/buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

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

std::byte* heap_bytes_or_null(std::size_t size_bytes) {
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): a Buffer is the owner
  void* const bytes = std::aligned_alloc(kPageBytes, size_bytes);
  if (bytes != nullptr) std::memset(bytes, 0, size_bytes);
  return static_cast<std::byte*>(bytes);
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
  std::byte* const bytes =
      mapping ? try_map_huge(whole_bytes, PROT_READ | PROT_WRITE) : heap_bytes_or_null(whole_bytes);
  if (bytes == nullptr) return out_of_memory(size_bytes, errno);
  return Buffer(bytes, size_bytes);
}

void Buffer::prefault(ThreadPool& pool) {
  if (!is_mapping(size_bytes_)) return;  // it has been written
  constexpr std::size_t kPieceBytes = 8 * kHugePageBytes;
  const std::size_t whole_bytes = round_up(size_bytes_, kHugePageBytes);
  const auto pieces = static_cast<std::int64_t>(ceil_div(whole_bytes, kPieceBytes));
  pool.run(pieces, [this, whole_bytes](std::int64_t piece, int) {
    const std::size_t begin = static_cast<std::size_t>(piece) * kPieceBytes;
    const std::size_t end = begin + kPieceBytes < whole_bytes ? begin + kPieceBytes : whole_bytes;
    for (std::size_t offset = begin; offset < end; offset += kPageBytes) {
      volatile std::byte* const touched = bytes_ + offset;
      *touched = *touched;
    }
  });
}

void Buffer::release() noexcept {
  if (is_mapping(size_bytes_)) {
    unmap(bytes_, round_up(size_bytes_, kHugePageBytes));
  } else {
    std::free(bytes_);  // NOLINT(cppcoreguidelines-owning-memory): of its own
  }
  bytes_ = nullptr;
  size_bytes_ = 0;
}

Buffer::~Buffer() {
  release();
}

Buffer::Buffer(Buffer&& other) noexcept
    : bytes_(std::exchange(other.bytes_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  release();
  bytes_ = std::exchange(other.bytes_, nullptr);
  size_bytes_ = std::exchange(other.size_bytes_, 0);
  return *this;
}

}  // namespace stemma
