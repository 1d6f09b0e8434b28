// SendBuffer: bytes on their way out of one connection, of which the front leaves in parts.
//
// Thread:     one thread.
// Memory:     what waits, and at most as much again that has left.
// Cost:       a byte is moved once at most for each byte that leaves, however small the parts.
// Not here:   the socket (connection), how the bytes are framed (response_head).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/check.h"

namespace stemma {

class SendBuffer {
 public:
  // What is appended to it leaves behind all that waits. Valid until the next call; nothing but its
  // end may be changed.
  std::string& end() { return bytes_; }

  std::string_view waiting() const { return std::string_view(bytes_).substr(left_bytes_); }
  std::size_t waiting_bytes() const { return bytes_.size() - left_bytes_; }

  // So many of what waits have left. Only where more has left than waits does the rest move to the
  // front: a slow reader, which takes a little at a time, costs no more than a fast one.
  void leave(std::size_t bytes) {
    STEMMA_CHECK_LE(bytes, waiting_bytes());
    left_bytes_ += bytes;
    if (left_bytes_ <= waiting_bytes()) return;
    bytes_.erase(0, left_bytes_);
    left_bytes_ = 0;
  }

  // Forgets all, and gives the memory back.
  void release() {
    std::string().swap(bytes_);
    left_bytes_ = 0;
  }

 private:
  std::string bytes_;
  std::size_t left_bytes_ = 0;  // of them, at the front
};

}  // namespace stemma
