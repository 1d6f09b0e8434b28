// Tiles of products with rounded weights whose x is f32: as gemm_tiles_cuda.h has them, 16 × 16
// threads with 4 × 4 values each; groups are added as rounded_tiles_cuda.h says.
//
// Included by *_cuda.cu alone.
//
// Thread:     code of kernels; all threads of the team take part.
// Memory:     shared memory of the team: kPlainSharedBytes.
// Cost:       that of f32 products: models of f32 weights are for trials.
// Not here:   x of 16 bits (rounded_tiles_cuda.h).
#pragma once

#include <cstdint>

#include "device/cuda_dialect.h"
#include "device/gemm_tiles_cuda.h"
#include "device/plain_tiles_cuda.h"
#include "device/rounded_codes_cuda.h"
#include "device/rounded_stage_cuda.h"
#include "device/rounded_strips.h"

namespace stemma {

// Codes of inputs from k0 on of the tile's output that the thread copies, transposed.
template <CodeForm kForm>
STEMMA_ON_DEVICE void fetch_plain_codes(const RoundedOperands<float>& from, std::int64_t k0,
                                        float* to) {
  const int output = plain_copied_row();
  for (int i = 0; i < 4; ++i) {
    const int input = thread_index() % 4 * 4 + i;
    const bool wanted = output < from.outputs && k0 + input < from.k;
    to[input * kPlainStride + output] =
        wanted ? code_at<kForm>(from.strips, from.k, output, k0 + input) : 0.0f;
  }
}

// The scale of one of the tile's outputs: that of a group, or of the whole of it.
template <CodeForm kForm>
STEMMA_ON_DEVICE float plain_scale(const RoundedOperands<float>& from, int output,
                                   std::int64_t group) {
  if (output >= from.outputs) return 0;
  if constexpr (kForm == CodeForm::kInt8) return scale_of(from.strips, from.k, output);
  const std::byte* const strip = strip_of<kForm>(from, output / RoundedStrips::kOutputs);
  return int4_scale(strip + group * RoundedStrips::group_bytes(kForm),
                    output % RoundedStrips::kOutputs);
}

// The tile's values. x_row: where the row that the thread copies lies in x; below 0: nowhere.
template <CodeForm kForm>
STEMMA_ON_DEVICE void sum_rounded_plain(const RoundedOperands<float>& from, std::int64_t x_row,
                                        float (&sums)[4][4]) {
  float* const x = reinterpret_cast<float*>(shared_memory());
  float* const w = x + kPlainK * kPlainStride;
  const float* const own_x = x_row >= 0 ? from.x + x_row * from.x_stride : nullptr;
  const int across = thread_index() % 16 * 4;
  const std::int64_t groups = RoundedStrips::groups(from.k);
  for (std::int64_t group = 0; group < groups; ++group) {
    float own[4][4] = {};
    const std::int64_t end = (group + 1) * RoundedStrips::kGroup;
    for (std::int64_t k0 = group * RoundedStrips::kGroup; k0 < end; k0 += kPlainK) {
      team_barrier();
      fetch_plain(own_x, k0, from.k, x);
      fetch_plain_codes<kForm>(from, k0, w);
      team_barrier();
      add_plain(x, w, own);
    }
    for (int j = 0; j < 4; ++j) {
      const float scale =
          kForm != CodeForm::kInt8 ? plain_scale<kForm>(from, across + j, group) : 1.0f;
      for (int i = 0; i < 4; ++i) sums[i][j] = with_group<kForm>(sums[i][j], own[i][j], scale);
    }
  }
  if constexpr (kForm == CodeForm::kInt8) {
    for (int j = 0; j < 4; ++j) {
      const float scale = plain_scale<kForm>(from, across + j, 0);
      for (int i = 0; i < 4; ++i) sums[i][j] *= scale;
    }
  }
}

}  // namespace stemma
