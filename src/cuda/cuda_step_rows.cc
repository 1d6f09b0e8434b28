// Six arrays of rows_max, one behind the other, on the host as on the device.
#include "cuda/cuda_step_rows.h"

#include <algorithm>
#include <span>
#include <type_traits>

#include "base/check.h"

namespace stemma {
namespace {

constexpr std::size_t kArrays = 6;

// Fills an array up to its length with `rest`.
template <typename From>
void write(std::span<std::int32_t> to, std::span<const From> from, std::int32_t rest) {
  const auto narrow = [](From value) {
    if constexpr (std::is_integral_v<From>) {
      return static_cast<std::int32_t>(value);
    } else {
      return static_cast<std::int32_t>(value.value());
    }
  };
  const auto end = std::transform(from.begin(), from.end(), to.begin(), narrow);
  std::fill(end, to.end(), rest);
}

// Each row has that of its request.
void write_adapters(std::span<std::int32_t> to, const KvBatch& batch) {
  std::fill(to.begin(), to.end(), -1);
  for (std::size_t request = 0; request < batch.adapters.size(); ++request) {
    const AdapterId adapter = batch.adapters[request];
    if (!adapter.valid()) continue;
    const std::int32_t first = batch.row_indptr[request];
    const std::int32_t rows = batch.row_indptr[request + 1] - first;
    std::fill_n(to.begin() + first, rows, static_cast<std::int32_t>(adapter.value()));
  }
}

}  // namespace

Result<CudaStepRows> CudaStepRows::create(CudaDevice& device, CudaStream& stream,
                                          std::int64_t rows_max) {
  CudaStepRows rows;
  rows.rows_max_ = rows_max;
  const auto bytes = kArrays * static_cast<std::size_t>(rows_max) * sizeof(std::int32_t);
  STEMMA_ASSIGN_OR_RETURN(rows.images_, PinnedTurns::create(device, bytes));
  STEMMA_ASSIGN_OR_RETURN(rows.memory_, device.allocate(bytes, stream));
  const auto* first = rows.memory_.as<const std::int32_t>();
  rows.places_ = {first,
                  first + rows_max,
                  first + 2 * rows_max,
                  first + 3 * rows_max,
                  first + 4 * rows_max,
                  first + 5 * rows_max};
  return rows;
}

Status CudaStepRows::upload(CudaStream& stream, const KvBatch& batch, std::int64_t filled_rows) {
  const std::int64_t rows = std::max(batch.rows(), filled_rows);
  STEMMA_CHECK_LE(rows, rows_max_);
  STEMMA_ASSIGN_OR_RETURN(std::byte* const image, images_.begin());
  auto* const first = reinterpret_cast<std::int32_t*>(image);
  const auto array = [&](std::int64_t index) {
    return std::span(first + index * rows_max_, static_cast<std::size_t>(rows));
  };
  write(array(0), batch.tokens, 0);
  write(array(1), batch.positions, 0);
  write(array(2), batch.write_slots, -1);
  write(array(3), batch.windowed_slots, -1);
  write(array(4), batch.logit_rows, 0);
  write_adapters(array(5), batch);
  const auto stride_bytes = static_cast<std::size_t>(rows_max_) * sizeof(std::int32_t);
  return images_.copy_rows_in(stream, memory_.bytes(),
                              {.row_bytes = static_cast<std::size_t>(rows) * sizeof(std::int32_t),
                               .rows = kArrays,
                               .to_stride_bytes = stride_bytes,
                               .from_stride_bytes = stride_bytes});
}

}  // namespace stemma
