#include "device/rounded_strips.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace stemma {
namespace {

constexpr std::int64_t kColumns = PackedWeights::kPanelColumns;
constexpr std::int64_t kGroup = PackedWeights::kGroupInputs;
static_assert(kGroup == RoundedStrips::kGroup && kColumns % RoundedStrips::kOutputs == 0);

// One group of the strip whose outputs are columns from `column` on of the panel's codes.
void write_int8(const std::byte* panel_codes, std::int64_t column, std::byte* to) {
  for (std::int64_t output = 0; output < RoundedStrips::kOutputs; ++output, to += kGroup) {
    const std::byte* const from = panel_codes + (column + output) * 2;
    for (int input = 0; input < kGroup; ++input) {
      to[RoundedStrips::int8_place(input)] = from[input / 2 * kColumns * 2 + input % 2];
    }
  }
}

void write_int4(const std::byte* panel_codes, std::int64_t column, std::byte* to) {
  for (std::int64_t output = 0; output < RoundedStrips::kOutputs; ++output, to += kGroup / 2) {
    std::fill_n(to, kGroup / 2, std::byte{0});
    for (int input = 0; input < kGroup; ++input) {
      std::uint16_t four = 0;  // of inputs that are all even or all odd
      std::memcpy(&four, panel_codes + (input / 8 * kColumns + column + output) * 4 + input % 2 * 2,
                  sizeof(four));
      const int code = (four >> (input % 8 / 2 * 4) & 0xF) ^ 8;  // 8 more than it is
      const int place = RoundedStrips::int4_place(input);
      to[place / 2] |= static_cast<std::byte>(code << place % 2 * 4);
    }
  }
}

void write_zeros(const std::byte* shifts, std::byte* to) {
  for (int output = 0; output < RoundedStrips::kOutputs; ++output) {
    to[output] = static_cast<std::byte>(8 - static_cast<std::int8_t>(shifts[output]));
  }
}

// The strip of columns from `column` on of a panel.
void write_strip(const PackedWeights& matrix, const std::byte* panel, std::int64_t column,
                 std::byte* to) {
  const bool wide = matrix.format() == WeightFormat::kInt8;
  const CodeForm form = code_form(matrix.format());
  if (wide) std::memcpy(to, panel + column * 4, RoundedStrips::kInt8ScaleBytes);
  to += RoundedStrips::begin_bytes(form);
  for (std::int64_t group = 0; group < matrix.groups(); ++group) {
    const std::byte* const codes = panel + QuantisedPanel::codes_at(matrix.format(), group);
    if (wide) {
      write_int8(codes, column, to);
    } else {
      write_int4(codes, column, to);
      std::memcpy(to + RoundedStrips::code_bytes(form),
                  panel + QuantisedPanel::scales_at(matrix.format(), group) + column * 2,
                  2 * RoundedStrips::kOutputs);
    }
    if (form == CodeForm::kInt4Shifted) {
      write_zeros(panel + QuantisedPanel::shifts_at(matrix.format(), group) + column,
                  to + RoundedStrips::zeros_at());
    }
    to += RoundedStrips::group_bytes(form);
  }
}

}  // namespace

std::vector<std::byte> strips_of(const PackedWeights& matrix, ThreadPool& threads) {
  STEMMA_CHECK(is_quantised(matrix.format()), "rounded weights");
  const CodeForm form = code_form(matrix.format());
  const std::int64_t strip_bytes = RoundedStrips::strip_bytes(form, matrix.k());
  std::vector<std::byte> strips(
      static_cast<std::size_t>(RoundedStrips::matrix_bytes(form, matrix.n(), matrix.k())));
  threads.run(matrix.panels(), [&](std::int64_t panel, int) {
    const std::int64_t end = std::min(matrix.n(), (panel + 1) * kColumns);
    for (std::int64_t output = panel * kColumns; output < end; output += RoundedStrips::kOutputs) {
      write_strip(matrix, matrix.panel(panel), output % kColumns,
                  strips.data() + output / RoundedStrips::kOutputs * strip_bytes);
    }
  });
  return strips;
}

}  // namespace stemma
