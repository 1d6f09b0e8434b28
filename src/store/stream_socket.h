// StreamSocket: a TCP or Unix socket none of whose waits is longer than its caller allows.
//
// Thread:     one thread.
// Memory:     a descriptor.
// Cost:       a system call each.
// Not here:   names (host_lookup), what the bytes mean (redis_connection).
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "base/clock.h"
#include "stemma/result.h"
#include "store/host_lookup.h"

namespace stemma {

class StreamSocket {
 public:
  // kDeadline: nobody answered in time; kIo with errno: refused, unreachable.
  static Result<StreamSocket> connect(const SocketAddress& address, const Clock& clock,
                                      std::int64_t deadline_us);
  // To the first of these where somebody answers: one that is silent leaves the others their share
  // of the time. Else the last one's error. REQUIRES: there is one.
  static Result<StreamSocket> connect_any(std::span<const SocketAddress> addresses,
                                          const Clock& clock, std::int64_t deadline_us);
  StreamSocket(StreamSocket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  StreamSocket& operator=(StreamSocket&& other) noexcept;
  // Of a TCP connection what has not left yet never does.
  ~StreamSocket();

  // Sends from the front of `pieces` what the system takes now; how many bytes, perhaps none.
  Result<std::size_t> try_send(std::span<const iovec> pieces);
  // Receives what is there now; how many bytes, perhaps none. The end of the stream is kIo.
  // REQUIRES: target is not empty.
  Result<std::size_t> try_receive(std::span<std::byte> target);

  enum class Wait : std::uint8_t { kReadable, kReadableOrWritable, kWritable };
  // Until one of the two will do something, if only fail. kDeadline.
  Status wait(Wait what, const Clock& clock, std::int64_t deadline_us);

  // Whether the peer is there and has sent nothing that is not received.
  bool quiet() const;

 private:
  explicit StreamSocket(int descriptor) noexcept : descriptor_(descriptor) {}
  Status finish_connect(const Clock& clock, std::int64_t deadline_us);

  int descriptor_ = -1;
};

}  // namespace stemma
