#include "device/cpu_device.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/math.h"

namespace stemma {

namespace {

// Large enough for the streaming copy of the C library, small enough to spread.
constexpr std::size_t kPieceBytes = std::size_t{4} << 20;

}  // namespace

Result<Buffer> CpuDevice::allocate(std::size_t size_bytes) {
  STEMMA_ASSIGN_OR_RETURN(Buffer buffer, Buffer::allocate(size_bytes));
  buffer.prefault(pool_);
  return Result<Buffer>(std::move(buffer));
}

void CpuDevice::copy(std::span<std::byte> target, std::span<const std::byte> source) {
  STEMMA_CHECK_EQ(target.size(), source.size());
  const auto pieces = static_cast<std::int64_t>(ceil_div(source.size(), kPieceBytes));
  pool_.run(pieces, [&](std::int64_t piece, int) {
    const std::size_t begin = static_cast<std::size_t>(piece) * kPieceBytes;
    const std::size_t size_bytes = std::min(kPieceBytes, source.size() - begin);
    std::memcpy(target.data() + begin, source.data() + begin, size_bytes);
  });
}

}  // namespace stemma
