#include "attention/cuda_token_choice.h"

#include <algorithm>
#include <cstddef>

#include "attention/token_choice_cuda.h"
#include "attention/token_guesses_cuda.h"
#include "base/math.h"

namespace stemma {

namespace {

constexpr std::int64_t kFloat = sizeof(float);

// Of one row.
struct RowRoom {
  RowRoom(const AttentionShape& shape, const TokenChoiceLimits& limits)
      : spans(ceil_div<std::int64_t>(limits.context_tokens_max, kSpanTokens)),
        guesses(round_up<std::int64_t>(limits.context_tokens_max, 4)),
        chosen(limits.dial.tokens_kept(limits.context_tokens_max)),
        span_bytes(2 * shape.query_heads * spans * kFloat),
        guess_bytes(shape.kv_heads * guesses * kFloat),
        chosen_bytes(shape.kv_heads * chosen * kFloat) {}

  std::int64_t bytes() const { return span_bytes + guess_bytes + chosen_bytes; }

  std::int64_t spans;
  std::int64_t guesses;  // of a KV head
  std::int64_t chosen;   // of a KV head, at most
  std::int64_t span_bytes;
  std::int64_t guess_bytes;
  std::int64_t chosen_bytes;
};

}  // namespace

std::int64_t CudaTokenChoice::wave_rows(const AttentionShape& shape,
                                        const TokenChoiceLimits& limits) {
  const std::int64_t fit = limits.bytes_max / RowRoom(shape, limits).bytes();
  return std::clamp<std::int64_t>(fit, 1, limits.rows_max);
}

Result<CudaTokenChoice> CudaTokenChoice::create(CudaDevice& device, CudaStream& stream,
                                                const AttentionShape& shape,
                                                const TokenChoiceLimits& limits) {
  const RowRoom room(shape, limits);
  CudaTokenChoice choice;
  choice.multiprocessors_ = limits.multiprocessors;
  choice.wave_rows_ = wave_rows(shape, limits);
  choice.spans_max_ = room.spans;
  choice.guesses_max_ = room.guesses;
  choice.chosen_max_ = room.chosen;
  const auto bytes_of_wave = [&](std::int64_t row_bytes) {
    return static_cast<std::size_t>(choice.wave_rows_ * row_bytes);
  };
  STEMMA_ASSIGN_OR_RETURN(choice.spans_, device.allocate(bytes_of_wave(room.span_bytes), stream));
  STEMMA_ASSIGN_OR_RETURN(choice.guesses_,
                          device.allocate(bytes_of_wave(room.guess_bytes), stream));
  STEMMA_ASSIGN_OR_RETURN(choice.chosen_,
                          device.allocate(bytes_of_wave(room.chosen_bytes), stream));
  return choice;
}

void CudaTokenChoice::place(AttentionParams& params, std::int64_t wave) const {
  params.chosen = chosen_.as<std::int32_t>();
  params.chosen_max = static_cast<std::int32_t>(chosen_max_);
  params.wave = static_cast<std::int32_t>(wave);
  params.wave_choices = static_cast<std::int32_t>(wave_rows_);
}

Status CudaTokenChoice::choose(CudaStream& stream, const AttentionParams& params,
                               const KvLayerView& layer) const {
  const std::int64_t element = dtype_bytes(layer.dtype);
  const TokenGuessParams guesses = {
      .attention = params,
      .labels = static_cast<const std::byte*>(layer.labels),
      .heavy_channels = layer.heavy_channels,
      .label_channels = static_cast<std::int32_t>(layer.label_channels),
      .label_page_stride = layer.label_page_stride * element,
      .label_token_stride = layer.label_token_stride * element,
      .label_head_stride = layer.label_head_stride * element,
      .spans_max = static_cast<std::int32_t>(spans_max_),
      .guesses_max = guesses_max_,
      .largest = spans_.as<float>(),
      .totals = spans_.as<float>() + wave_rows_ * params.query_heads * spans_max_,
      .guesses = guesses_.as<float>()};
  STEMMA_RETURN_IF_ERROR(guess_tokens(stream, guesses, kGuessingTeams * multiprocessors_));
  return choose_tokens(
      stream, {.attention = params, .guesses = guesses_.as<float>(), .guesses_max = guesses_max_},
      kChoosingTeams * multiprocessors_);
}

}  // namespace stemma
