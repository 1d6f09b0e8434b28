// RoundedStrips: how matrices of rounded weights (packed_weights.h) lie in the memory of a GPU.
//
// The n outputs are cut into strips of 8, the inputs into groups of 64, the last of each padded
// with zeros. A strip's codes lie in the order in which tensor cores eat them: thread t of the four
// that have an output reads all that it needs of a group at once.
//   8 bits  a strip is the scales of its outputs (f32), then for each group 512 bytes of codes: for
//           each output four words of 16 bytes, one a thread; 32-bit word s of thread t has the
//           codes of inputs 16 s + 2 t + {0, 8, 1, 9}, from its lowest byte on, as numbers of 8
//           bits with a sign.
//   4 bits  a strip is for each group 256 bytes of codes, for each output four words of 8 bytes,
//           and then the scales of its outputs (bf16). 32-bit word h of thread t has the codes of
//           inputs 16 s + 2 t + {0, 8} for s = 2 h and 2 h + 1, from bit 0 on, and those of the
//           inputs behind them from bit 16 on, each 8 more than it is. Where groups have shifts, 16
//           bytes more, of which the first eight are 8 less the shift of each output.
// Strips of one matrix, and of matrices that one product computes, lie one behind the other; where
// a strip ends another matrix may begin.
//
// Thread:     strips_of on all threads of its pool; the rest are plain functions.
// Memory:     n rounded up to 8, times k rounded up to 64, in 8, 4.25 or 4.5 bits.
// Cost:       strips_of reads and writes every code once.
// Not here:   how weights are rounded (packed_weights), products (rounded_gemm_cuda).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "device/packed_weights.h"
#include "device/weight_type.h"

namespace stemma {

// What codes of a matrix are; none where it is not rounded.
enum class CodeForm : std::uint8_t { kNone, kInt8, kInt4, kInt4Shifted };

constexpr CodeForm code_form(WeightFormat format) {
  switch (format) {
    case WeightFormat::kInt8:
      return CodeForm::kInt8;
    case WeightFormat::kInt4:
      return CodeForm::kInt4;
    case WeightFormat::kInt4Shifted:
      return CodeForm::kInt4Shifted;
    default:
      return CodeForm::kNone;
  }
}
// As weight_format_name. REQUIRES: not kNone.
constexpr std::string_view code_form_name(CodeForm form) {
  if (form == CodeForm::kInt8) return weight_format_name(WeightFormat::kInt8);
  return weight_format_name(form == CodeForm::kInt4 ? WeightFormat::kInt4
                                                    : WeightFormat::kInt4Shifted);
}
// REQUIRES: not kNone.
constexpr int bits_of(CodeForm form) {
  return form == CodeForm::kInt8 ? 8 : 4;
}

struct RoundedStrips {
  static constexpr int kOutputs = 8;  // of a strip
  static constexpr int kGroup = 64;   // inputs
  static constexpr int kThreads = 4;  // that have an output
  static constexpr int kInt8ScaleBytes = 4 * kOutputs;

  // A strip's scales before its groups, and its groups; of these the codes come first, then scales.
  static constexpr int begin_bytes(CodeForm form) {
    return form == CodeForm::kInt8 ? kInt8ScaleBytes : 0;
  }
  static constexpr int code_bytes(CodeForm form) { return kOutputs * kGroup * bits_of(form) / 8; }
  static constexpr int group_bytes(CodeForm form) {
    if (form == CodeForm::kInt8) return code_bytes(form);
    return code_bytes(form) + 2 * kOutputs + (form == CodeForm::kInt4Shifted ? 16 : 0);
  }
  // In a group of kInt4Shifted.
  static constexpr int zeros_at() { return code_bytes(CodeForm::kInt4Shifted) + 2 * kOutputs; }

  static constexpr std::int64_t strips(std::int64_t n) { return (n + kOutputs - 1) / kOutputs; }
  static constexpr std::int64_t groups(std::int64_t k) { return (k + kGroup - 1) / kGroup; }
  static constexpr std::int64_t strip_bytes(CodeForm form, std::int64_t k) {
    return begin_bytes(form) + groups(k) * group_bytes(form);
  }
  static constexpr std::int64_t matrix_bytes(CodeForm form, std::int64_t n, std::int64_t k) {
    return strips(n) * strip_bytes(form, k);
  }

  // Where the 8-bit code of input `input` of a group lies among those of one output.
  static constexpr int int8_place(int input) {
    const int pair = input % 16;  // which four the thread has: 2 t + {0, 8, 1, 9}
    return pair % 8 / 2 * 16 + input / 16 * 4 + pair % 2 * 2 + pair / 8;
  }
  // The same of 4 bits: which half byte, the lower one of a byte first.
  static constexpr int int4_place(int input) {
    const int pair = input % 16;
    return pair % 8 / 2 * 16 + input / 32 * 8 + pair % 2 * 4 + input / 16 % 2 * 2 + pair / 8;
  }
};

// The same codes and scales in strips. REQUIRES: is_quantised(matrix.format()).
std::vector<std::byte> strips_of(const PackedWeights& matrix, ThreadPool& threads);

}  // namespace stemma
