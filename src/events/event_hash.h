// EventHash: what names a page in events.
//
// Routers take a number of 64 bits, signed or not, or some bytes. Stemma's numbers are the first
// eight bytes of the page's key, most significant first: as good a hash as any eight of a SHA-256,
// and the eight that SGLang takes of its own. Bytes are the whole key, and nothing is lost.
//
// Thread:     values.
// Memory:     33 bytes.
// Cost:       a copy.
// Not here:   how a key comes about (prefix/page_key).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "stemma/prefix_cache.h"

namespace stemma {

// How a sender writes them.
enum class HashForm : std::uint8_t {
  kUnsigned,  // 0 … 2^64 - 1, as vLLM
  kSigned,    // the same bits as -2^63 … 2^63 - 1, as SGLang
  kBytes,     // the 32 bytes of the key
};

// Numbers, signed or not, are their eight bytes, so that both forms of one are equal.
class EventHash {
 public:
  static constexpr std::size_t kBytesMax = 32;

  EventHash() noexcept = default;
  static EventHash of(const PageKey& key, HashForm form) noexcept {
    return of_prefix(key.bytes, form == HashForm::kBytes ? kBytesMax : sizeof(std::uint64_t));
  }
  static EventHash of(std::uint64_t number) noexcept {
    EventHash hash;
    hash.used_ = sizeof(number);
    for (std::size_t i = 0; i < sizeof(number); ++i) {
      hash.bytes_[i] = static_cast<std::uint8_t>(number >> (8 * (sizeof(number) - 1 - i)));
    }
    return hash;
  }
  // nullopt: none, or too many.
  static std::optional<EventHash> try_of(std::span<const std::uint8_t> bytes) noexcept {
    if (bytes.empty() || bytes.size() > kBytesMax) return std::nullopt;
    return of_prefix(bytes, bytes.size());
  }

  // The first eight bytes as a number.
  std::uint64_t number() const noexcept {
    std::uint64_t number = 0;
    for (std::size_t i = 0; i < sizeof(number); ++i) number = number << 8 | bytes_[i];
    return number;
  }
  std::span<const std::uint8_t> bytes() const noexcept { return std::span(bytes_).first(used_); }

  friend auto operator<=>(const EventHash&, const EventHash&) = default;

 private:
  static EventHash of_prefix(std::span<const std::uint8_t> bytes, std::size_t used) noexcept {
    EventHash hash;
    hash.used_ = static_cast<std::uint8_t>(used);
    std::copy_n(bytes.begin(), used, hash.bytes_.begin());
    return hash;
  }

  std::array<std::uint8_t, kBytesMax> bytes_ = {};  // 0 behind those used
  std::uint8_t used_ = 0;
};

// Hashes of pages are digests: any bytes of one will do.
struct EventHashHash {
  std::size_t operator()(const EventHash& hash) const noexcept {
    return static_cast<std::size_t>(hash.number());
  }
};

}  // namespace stemma
