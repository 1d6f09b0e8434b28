#include "cuda/cuda_sampler.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "cuda/sample_cuda.h"

namespace stemma {
namespace {

RowSampling row_of(const TokenChoice& choice) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  return {.temperature = choice.temperature,
          .top_k = static_cast<std::int32_t>(std::min(choice.top_k, kMost)),
          .top_p = choice.top_p,
          .min_p = choice.min_p,
          .unit = choice.unit};
}

bool draws(const TokenChoice& choice) {
  return choice.temperature != 0;
}

}  // namespace

Result<CudaSampler> CudaSampler::create(CudaDevice& device, CudaStream& stream,
                                        std::int64_t outputs_max) {
  CudaSampler sampler;
  const std::size_t bytes = static_cast<std::size_t>(outputs_max) * sizeof(RowSampling);
  STEMMA_ASSIGN_OR_RETURN(sampler.images_, PinnedTurns::create(device, bytes));
  STEMMA_ASSIGN_OR_RETURN(sampler.memory_, device.allocate(bytes, stream));
  return sampler;
}

Status CudaSampler::draw(CudaStream& stream, std::span<const TokenChoice> choices,
                         const SampledRows& rows) {
  if (std::none_of(choices.begin(), choices.end(), draws)) return {};
  STEMMA_CHECK_LE(choices.size() * sizeof(RowSampling), memory_.size_bytes());
  STEMMA_ASSIGN_OR_RETURN(std::byte* const image, images_.begin());
  std::transform(choices.begin(), choices.end(), reinterpret_cast<RowSampling*>(image), row_of);
  STEMMA_RETURN_IF_ERROR(
      images_.copy_in(stream, memory_.bytes(), choices.size() * sizeof(RowSampling)));
  return sample_rows(stream, {.logits = rows.logits,
                              .sampling = memory_.as<RowSampling>(),
                              .tokens = rows.tokens,
                              .rows = std::ssize(choices),
                              .columns = rows.columns});
}

}  // namespace stemma
