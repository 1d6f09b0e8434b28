// RespReader: replies of a Redis server (RESP2), each length bounded before memory is spent on it.
//
// hiredis 0.14, which Debian has, is not used: its reader keeps a value of any length that a peer
// announces until the whole of it has come (its `maxbuf` only gives back an empty buffer), and it
// allocates an array as announced. Here a value is received into the caller's frame directly, which
// saves two copies as well, and everything else has a budget. After an error the position in the
// stream is unknown: whoever owns the connection drops it.
//
// Thread:     one thread.
// Memory:     a buffer of 16 KiB; at most what the caller allows for a reply without a target.
// Cost:       one look at each byte outside of values; values beyond the buffer are not copied.
// Not here:   sockets (stream_socket), which reply belongs to which command (redis_connection).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stemma/result.h"

namespace stemma {

inline constexpr std::size_t kRespLineBytesMax = 4096;
inline constexpr std::size_t kRespReplyBytesMax = std::size_t{4} << 20;
inline constexpr int kRespDepthMax = 6;

// Where bytes come from.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Waits for bytes and puts them at the front of `target`; how many, at least one. The end of the
  // stream is an error. REQUIRES: target is not empty.
  virtual Result<std::size_t> read_some(std::span<std::byte> target) = 0;
};

enum class RespKind : std::uint8_t { kStatus, kError, kInteger, kNil, kBulk, kArray };

struct RespReply {
  RespKind kind = RespKind::kNil;
  std::int64_t number = 0;  // kInteger: the value; kBulk: how many bytes it has
  std::string text;         // kStatus, kError: the line; kBulk without a target: the bytes
  std::vector<RespReply> items;
};

// Where a value goes: the front of `first`, then of `second`. Empty: into the reply.
struct RespTarget {
  std::span<std::byte> first;
  std::span<std::byte> second;
  std::size_t size_bytes() const noexcept { return first.size() + second.size(); }
};

class RespReader {
 public:
  // `source` must outlive it.
  explicit RespReader(ByteSource& source) : source_(source) {}

  // Reads one reply. A value shorter than the target leaves the rest of it as it was. kTooLarge: a
  // value longer than its target, or a reply beyond its budget; kCorrupt: not RESP2; or an error of
  // the source. What the target then holds is of no use.
  Status read(const RespTarget& target, RespReply& reply,
              std::size_t reply_bytes_max = kRespReplyBytesMax);

  // Whether bytes have been received that no reply has taken.
  bool has_unread() const noexcept { return begin_ != end_; }

 private:
  Status read_nested(const RespTarget& target, int depth, RespReply& reply);
  Status read_bulk(std::int64_t length_bytes, const RespTarget& target, RespReply& reply);
  Status read_array(std::int64_t items, int depth, RespReply& reply);
  // The line up to its CR LF, in the buffer until the next call.
  Result<std::string_view> read_line();
  Status read_exact(std::span<std::byte> target);
  Status spend(std::size_t bytes);

  ByteSource& source_;
  std::array<std::byte, 16384> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t budget_bytes_ = 0;  // what is left of it for this reply
};

}  // namespace stemma
