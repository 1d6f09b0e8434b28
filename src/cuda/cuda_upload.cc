#include "cuda/cuda_upload.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/math.h"
#include "model/weights.h"

namespace stemma {

Result<CudaUpload> CudaUpload::open(CudaDevice& device, CudaStream& stream, ThreadPool& threads) {
  CudaUpload upload(stream, threads);
  STEMMA_ASSIGN_OR_RETURN(upload.chunks_, PinnedTurns::create(device, kChunkBytes));
  return upload;
}

Status CudaUpload::write(void* device, std::span<const std::byte> bytes) {
  auto* to = static_cast<std::byte*>(device);
  while (!bytes.empty()) {
    const std::size_t taken = std::min(bytes.size(), kChunkBytes);
    STEMMA_ASSIGN_OR_RETURN(std::byte* const chunk, chunks_.begin());
    fill(chunk, bytes.first(taken));
    STEMMA_RETURN_IF_ERROR(chunks_.copy_in(*stream_, to, taken));
    to += taken;
    bytes = bytes.subspan(taken);
  }
  return {};
}

Status CudaUpload::write_floats(float* device, WeightType type, std::span<const std::byte> bytes,
                                float added) {
  std::vector<float> values = to_floats(type, bytes);
  for (float& value : values) value += added;
  return write(device, std::as_bytes(std::span(values)));
}

// One thread alone is slower than the way to the device.
void CudaUpload::fill(std::byte* to, std::span<const std::byte> from) {
  constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
  const auto pieces = static_cast<std::int64_t>(ceil_div(from.size(), kPieceBytes));
  threads_->run(pieces, [&](std::int64_t piece, int) {
    const std::size_t first = static_cast<std::size_t>(piece) * kPieceBytes;
    std::memcpy(to + first, from.data() + first, std::min(kPieceBytes, from.size() - first));
  });
}

}  // namespace stemma
