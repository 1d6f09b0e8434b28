// RespWriter: commands on their way to a Redis server. Words are copied, values are pointed at.
//
// Thread:     one thread.
// Memory:     the words of the commands that are not sent yet, and 24 bytes a piece.
// Cost:       a copy of the words; nothing a value's byte.
// Not here:   sockets (stream_socket), when to send (redis_connection).
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stemma {

class RespWriter {
 public:
  // A command of `words` words follows.
  void begin(std::size_t words);
  void add(std::string_view word);
  // One word of two pieces, which must live until they are sent.
  void add_pointed(std::span<const std::byte> first, std::span<const std::byte> second);

  // Whether anything is left to send.
  bool pending() const noexcept { return next_ != pieces_.size(); }
  // What is to be sent next, as much as fits into `target`; how many entries. Valid until the next
  // call that adds.
  std::size_t gather(std::span<iovec> target) const;
  // That many bytes of it are on their way.
  void sent(std::size_t bytes);

 private:
  struct Piece {
    const std::byte* value = nullptr;  // nullptr: it lies in words_
    std::size_t offset = 0;            // in words_
    std::size_t size_bytes = 0;
  };

  void append(std::string_view text);

  std::string words_;
  std::vector<Piece> pieces_;
  std::size_t next_ = 0;         // the first piece that is not wholly sent
  std::size_t next_offset_ = 0;  // what is sent of it
};

}  // namespace stemma
