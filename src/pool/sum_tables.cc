#include "pool/sum_tables.h"

#include <algorithm>
#include <array>

#include "base/crc32c.h"

namespace stemma {

namespace {

constexpr std::uint32_t kOne = 0x80000000;  // x^0, reflected

std::uint32_t times_x(std::uint32_t state) {
  return (state >> 1) ^ ((state & 1) != 0 ? kSumPolynomial : 0);
}

// The polynomial has a one below x^32, so whatever has the top bit set was reduced last.
std::uint32_t divided_by_x(std::uint32_t state) {
  return (state & kOne) != 0 ? ((state ^ kSumPolynomial) << 1) | 1 : state << 1;
}

std::uint32_t followed_by_zeros(std::uint32_t state, int bytes) {
  for (int bit = 0; bit < 8 * bytes; ++bit) state = times_x(state);
  return state;
}

// What each byte leaves, `bits` being what each of its bits leaves.
void write_sums_of_bits(const std::array<std::uint32_t, 8>& bits, std::uint32_t* table) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    table[byte] = 0;
    for (unsigned bit = 0; bit < 8; ++bit) {
      if ((byte >> bit & 1) != 0) table[byte] ^= bits[bit];
    }
  }
}

}  // namespace

// A byte that was added to a state of zero leaves itself, eight bits on.
std::vector<std::uint32_t> make_sum_tables() {
  std::vector<std::uint32_t> tables(kSumTableWords);
  std::array<std::uint32_t, 8> bits = {};
  for (unsigned bit = 0; bit < 8; ++bit) {
    bits[bit] = followed_by_zeros(1u << bit, kSumStrideBytes - kSumWordBytes + 1);
  }
  for (int place = kSumWordBytes - 1; place >= 0; --place) {
    write_sums_of_bits(bits, tables.data() + place * 256);
    for (std::uint32_t& bit : bits) bit = followed_by_zeros(bit, 1);
  }
  std::uint32_t weight = kOne;
  for (std::size_t thread = 0; thread < kSumThreads; ++thread) {
    tables[kSumAdvanceWords + thread] = weight;
    for (int bit = 0; bit < 8 * kSumWordBytes; ++bit) weight = divided_by_x(weight);
  }
  return tables;
}

std::uint32_t sum_product(std::uint32_t a, std::uint32_t b) {
  std::uint32_t sum = 0;
  for (; a != 0; a <<= 1) {
    if ((a & kOne) != 0) sum ^= b;
    b = times_x(b);
  }
  return sum;
}

std::uint32_t sum_advance(std::size_t size_bytes) {
  std::uint32_t advance = kOne;
  std::uint32_t power = followed_by_zeros(kOne, 1);  // x^8, then its squares
  for (; size_bytes != 0; size_bytes /= 2) {
    if (size_bytes % 2 != 0) advance = sum_product(advance, power);
    power = sum_product(power, power);
  }
  return advance;
}

std::uint32_t sum_of_zeros(std::size_t size_bytes) {
  static constexpr std::array<std::byte, 4096> kZeros = {};
  std::uint32_t sum = 0;
  while (size_bytes > 0) {
    const std::size_t some = std::min(size_bytes, kZeros.size());
    sum = crc32c({kZeros.data(), some}, sum);
    size_bytes -= some;
  }
  return sum;
}

}  // namespace stemma
