#include "device/simt_warp.h"

#include <array>
#include <cmath>
#include <cstring>

#include "device/simt_races.h"

namespace stemma::simt {

namespace {

constexpr int kRows = 16;     // of a and d
constexpr int kDepth = 16;    // what is summed over
constexpr int kColumns = 8;   // of b and d
constexpr int kElements = 8;  // of a row of a matrix that is loaded

using Matrices = std::array<std::array<std::uint16_t, kElements>, kWarp>;

std::uint32_t pair_of(std::uint16_t low, std::uint16_t high) {
  return low | std::uint32_t{high} << 16;
}

// As if one of the lanes that get of a row read it, another for each of the four matrices.
void note_read(const void* row, int line, int first_thread, const void* code) {
  RaceTrace* const races = running_trace();
  if (races == nullptr) return;
  races->set_thread(first_thread + line % 8 * 4 + line / 8);
  races->touch(row, sizeof(Matrices::value_type), Access::kRead, code);
}

// What lies in shared memory is read as if by lanes from `first_thread` on, at `code`.
void load(const Slot* slots, int first_thread, const void* code) {
  Matrices rows;
  for (int line = 0; line < kWarp; ++line) {
    const void* const row = slot_as<WarpLoad>(slots[line]).row;
    note_read(row, line, first_thread, code);
    std::memcpy(&rows[static_cast<std::size_t>(line)], row, sizeof(rows[0]));
  }
  for (int lane = 0; lane < kWarp; ++lane) {
    const auto part = slot_as<WarpLoad>(slots[lane]);
    const auto eighth = static_cast<std::size_t>(lane / 4);
    const auto pair = static_cast<std::size_t>(lane % 4 * 2);
    for (std::size_t j = 0; j < 4; ++j) {
      const auto* const matrix = &rows[j * 8];
      part.words[j] = part.transposed ? pair_of(matrix[pair][eighth], matrix[pair + 1][eighth])
                                      : pair_of(matrix[eighth][pair], matrix[eighth][pair + 1]);
    }
  }
}

// Each sum is added up over k from 0 on, rounded once a product.
void multiply(const Slot* slots, float (*widen)(std::uint16_t)) {
  float a[kRows][kDepth];
  float b[kDepth][kColumns];
  float d[kRows][kColumns];
  const auto low = [&](std::uint32_t pair) { return widen(static_cast<std::uint16_t>(pair)); };
  const auto high = [&](std::uint32_t pair) {
    return widen(static_cast<std::uint16_t>(pair >> 16));
  };
  for (int lane = 0; lane < kWarp; ++lane) {
    const auto product = slot_as<WarpProduct>(slots[lane]);
    const int line = lane / 4;
    const int pair = lane % 4 * 2;
    for (int i = 0; i < 4; ++i) {
      const int row = line + i % 2 * 8;
      const int k = pair + i / 2 * 8;
      a[row][k] = low(product.a[i]);
      a[row][k + 1] = high(product.a[i]);
      d[line + i / 2 * 8][pair + i % 2] = product.d[i];
    }
    for (int i = 0; i < 2; ++i) {
      b[pair + i * 8][line] = low(product.b[i]);
      b[pair + i * 8 + 1][line] = high(product.b[i]);
    }
  }
  for (auto& row : d) {
    const auto& left = a[&row - d];
    for (int k = 0; k < kDepth; ++k) {
      for (int column = 0; column < kColumns; ++column) {
        row[column] = std::fma(left[k], b[k][column], row[column]);
      }
    }
  }
  for (int lane = 0; lane < kWarp; ++lane) {
    float* const sums = slot_as<WarpProduct>(slots[lane]).d;
    for (int i = 0; i < 4; ++i) sums[i] = d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
  }
}

}  // namespace

// What the rows hold may change when all have come.
void load_matrices(const WarpLoad& part, const Site& site) {
  check_matrix_row(part.row);
  const Slot* const slots = show(part);
  const int thread = here().thread;
  const int first = thread / kWarp * kWarp;
  const void* const code = __builtin_return_address(0);
  gather_warp(site, [&] {
    load(slots, first, code);
    RaceTrace* const races = running_trace();
    if (races == nullptr) return;
    races->set_thread(thread);
    races->meet(first, kWarp);
  });
}

void multiply_matrices(const WarpProduct& part, float (*widen)(std::uint16_t), const Site& site) {
  const Slot* const slots = show(part);
  gather_warp(site, [&] { multiply(slots, widen); });
}

}  // namespace stemma::simt
