// RawClient: an HTTP client for tests that writes and reads plain bytes, so that it can be as
// wrong, as slow or as gone as a test wants.
//
// Thread:     one thread.
// Memory:     what was received and not yet read.
// Cost:       a system call each.
// Not here:   waiting for anything longer than kPatience; sleeping.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace stemma {

constexpr std::chrono::seconds kPatience(20);  // sanitizers on a busy machine

// What came back for one request.
struct RawAnswer {
  int status = 0;  // 0: the connection ended, or nothing came in time
  std::string head;
  std::string body;
  bool has(std::string_view line) const {
    return head.find("\r\n" + std::string(line) + "\r\n") != std::string::npos;
  }
};

// A plain socket with deadlines.
class RawClient {
 public:
  // Not connected yet.
  explicit RawClient(int receive_buffer_bytes = 0)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_buffer_bytes > 0) set(SO_RCVBUF, receive_buffer_bytes);
    const timeval time = {kPatience.count(), 0};
    set(SO_RCVTIMEO, time);
    set(SO_SNDTIMEO, time);
  }
  RawClient(RawClient&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)), unread_(std::move(other.unread_)) {}
  RawClient& operator=(RawClient&&) = delete;
  ~RawClient() { close(); }

  // Whether the server's system accepts.
  bool connect(std::uint16_t port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }

  // Whether all of it was taken.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  // No more will be sent; reading goes on.
  void end_sending() { ::shutdown(socket_, SHUT_WR); }
  void close() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }
  // Closes so that the server sees a reset.
  void reset() {
    set(SO_LINGER, linger{1, 0});
    close();
  }

  // Whether something has come, without waiting.
  bool has_received() {
    char byte = 0;
    return ::recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
  }
  // Takes at most `bytes_max` of what has come, without waiting, and forgets it; whether there was
  // any. REQUIRES: nothing else is read from it, and bytes_max <= 64.
  bool drop(std::size_t bytes_max) {
    char bytes[64];
    return ::recv(socket_, bytes, std::min(bytes_max, sizeof(bytes)), MSG_DONTWAIT) > 0;
  }
  // Waits, without reading, until the connection is broken; then how many bytes had come before.
  std::size_t read_after_end() {
    pollfd broken = {socket_, 0, 0};
    ::poll(&broken, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count()));
    return read_to_end().size();
  }

  // The next answer; `without_body`: to a HEAD.
  RawAnswer read_answer(bool without_body = false) {
    RawAnswer answer;
    const auto head = read_until("\r\n\r\n");
    if (!head) return answer;
    answer.head = *head;
    answer.status = static_cast<int>(std::strtol(answer.head.c_str() + 9, nullptr, 10));
    const bool is_empty = answer.status < 200 || answer.status == 204 || answer.status == 304;
    if (without_body || is_empty) return answer;
    if (answer.has("Transfer-Encoding: chunked")) {
      while (const auto piece = read_piece()) answer.body += *piece;
    } else if (const auto at = answer.head.find("Content-Length: "); at != std::string::npos) {
      answer.body = read_bytes(std::strtoul(answer.head.c_str() + at + 16, nullptr, 10));
    } else {
      answer.body = read_to_end();
    }
    return answer;
  }
  // The next piece of a chunked answer; nullopt at its end, or at the connection's.
  std::optional<std::string> read_piece() {
    const auto line = read_until("\r\n");
    if (!line) return std::nullopt;
    const std::size_t bytes = std::strtoul(line->c_str(), nullptr, 16);
    const std::string piece = read_bytes(bytes + 2);
    if (bytes == 0 || piece.size() < bytes + 2) return std::nullopt;
    return piece.substr(0, bytes);
  }
  // Up to and with `mark`; nullopt if the connection ends before.
  std::optional<std::string> read_until(std::string_view mark) {
    std::size_t at = unread_.find(mark);
    while (at == std::string::npos) {
      if (!receive()) return std::nullopt;
      at = unread_.find(mark);
    }
    return take(at + mark.size());
  }
  std::string read_bytes(std::size_t bytes) {
    while (unread_.size() < bytes && receive()) {
    }
    return take(std::min(bytes, unread_.size()));
  }
  std::string read_to_end() {
    while (receive()) {
    }
    return take(unread_.size());
  }
  // Whether the server ends the connection, with nothing more said.
  bool is_ended() { return !receive() && ended_ && unread_.empty(); }

 private:
  template <typename Value>
  void set(int option, const Value& value) {
    ::setsockopt(socket_, SOL_SOCKET, option, &value, sizeof(value));
  }
  bool receive() {
    char bytes[16 << 10];
    const ssize_t received = ::recv(socket_, bytes, sizeof(bytes), 0);
    ended_ = received == 0 || (received < 0 && errno == ECONNRESET);
    if (received <= 0) return false;
    unread_.append(bytes, static_cast<std::size_t>(received));
    return true;
  }
  std::string take(std::size_t bytes) {
    std::string taken = unread_.substr(0, bytes);
    unread_.erase(0, bytes);
    return taken;
  }

  int socket_ = -1;
  bool ended_ = false;
  std::string unread_;
};

}  // namespace stemma
