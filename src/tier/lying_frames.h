// For tests: frames whose checksum is right and whose header says what is not so.
//
// Thread:     pure functions.
// Memory:     that of a file of them.
// Cost:       a CRC32C of the header.
// Not here:   anything that serves; bodies that are wrong (base/flip_bit).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "base/file.h"
#include "base/prng.h"

namespace stemma {

// The checksum at byte 12 covers all of the header but itself, up to the body, whose place is at
// byte 24. Nothing where the body would begin outside the frame.
inline void put_checksum_right(std::span<std::byte> frame) {
  std::uint64_t body_offset = 0;
  std::memcpy(&body_offset, frame.data() + 24, sizeof(body_offset));
  if (body_offset < 16 || body_offset > frame.size()) return;
  const std::uint32_t sum = crc32c(frame.subspan(16, body_offset - 16), crc32c(frame.first(12)));
  std::memcpy(frame.data() + 12, &sum, sizeof(sum));
}

// Somewhere in the first 400 bytes, where small pages have all but zeros: what another frame has
// there, or a number.
inline void lie(std::span<std::byte> frame, std::span<const std::byte> another, Prng& prng) {
  constexpr std::array<std::int32_t, 7> kNumbers = {-1,
                                                    0,
                                                    1,
                                                    2,
                                                    1'000'000,
                                                    std::numeric_limits<std::int32_t>::max(),
                                                    std::numeric_limits<std::int32_t>::min()};
  const auto place = static_cast<std::size_t>(16 + 4 * prng.below(96));
  if (prng.below(2) == 0) {
    const auto bytes = static_cast<std::size_t>(4 << prng.below(4));
    std::memcpy(frame.data() + place, another.data() + place, bytes);
  } else {
    const std::int32_t number = kNumbers[static_cast<std::size_t>(prng.below(kNumbers.size()))];
    std::memcpy(frame.data() + place, &number, sizeof(number));
  }
  put_checksum_right(frame);
}

// Frames in a file, behind `header_bytes` of something else.
struct FramesInFile {
  std::vector<std::byte> bytes;
  std::size_t header_bytes = 0;
  std::size_t frame_bytes = 0;

  static FramesInFile read(const std::string& path, std::size_t header_bytes,
                           std::size_t frame_bytes) {
    PosixFiles files;
    const std::string text = read_file(files, path, std::int64_t{1} << 30).value();
    const auto bytes = std::as_bytes(std::span(text));
    return {{bytes.begin(), bytes.end()}, header_bytes, frame_bytes};
  }
  void write(const std::string& path) const {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  }
  std::int64_t frames() const {
    return static_cast<std::int64_t>((bytes.size() - header_bytes) / frame_bytes);
  }
  std::span<std::byte> frame(std::int64_t number) {
    return std::span(bytes).subspan(header_bytes + static_cast<std::size_t>(number) * frame_bytes,
                                    frame_bytes);
  }
  // One to three lies in it.
  FramesInFile with_lies(Prng& prng) const {
    FramesInFile other = *this;
    for (std::int64_t more = prng.below(3); more >= 0; --more) {
      lie(other.frame(prng.below(frames())), other.frame(prng.below(frames())), prng);
    }
    return other;
  }
};

}  // namespace stemma
