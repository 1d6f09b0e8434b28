// FakeRedis: a server on 127.0.0.1 that says what a test tells it to, to the byte.
//
// Thread:     one of its own; the script is called there. Construction, destruction and `commands`
//             from the test's thread.
// Memory:     what was said to it.
// Cost:       a loopback connection.
// Not here:   real servers (redis_process).
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"

namespace stemma {

class FakeRedis {
 public:
  using Words = std::vector<std::string>;
  struct Answer {
    std::string bytes;
    bool close = false;  // afterwards
  };
  using Script = std::function<Answer(const Words& command)>;

  explicit FakeRedis(Script script) : script_(std::move(script)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size_bytes = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    STEMMA_CHECK(::bind(listener_, any, size_bytes) == 0 && ::listen(listener_, 64) == 0 &&
                     ::getsockname(listener_, any, &size_bytes) == 0,
                 "a port of 127.0.0.1 can be had");
    port_ = ntohs(address.sin_port);
    stop_ = ::eventfd(0, EFD_CLOEXEC);
    thread_ = std::jthread([this] { serve(); });
  }
  ~FakeRedis() {
    const std::uint64_t one = 1;
    STEMMA_CHECK(::write(stop_, &one, sizeof(one)) == sizeof(one), "an eventfd takes a number");
    thread_.join();
    ::close(listener_);
    ::close(stop_);
  }
  FakeRedis(const FakeRedis&) = delete;
  FakeRedis& operator=(const FakeRedis&) = delete;

  std::uint16_t port() const { return port_; }
  std::string authority() const { return "127.0.0.1:" + std::to_string(port_); }
  std::string url() const { return "redis://" + authority(); }
  int connections() const { return connections_; }
  int commands() const { return commands_; }

  // Answers PING itself, as a server does that is well.
  static Script with_pong(Script script) {
    return [script = std::move(script)](const Words& command) -> Answer {
      return command[0] == "PING" ? Answer{bulk(command[1])} : script(command);
    };
  }

  // "$3\r\nabc\r\n"
  static std::string bulk(std::string_view bytes) {
    return "$" + std::to_string(bytes.size()) + "\r\n" + std::string(bytes) + "\r\n";
  }

 private:
  struct Connection {
    int descriptor;
    std::string received;
  };

  void serve() {
    std::vector<Connection> open;
    while (true) {
      std::vector<pollfd> entries = {{stop_, POLLIN, 0}, {listener_, POLLIN, 0}};
      for (const Connection& connection : open)
        entries.push_back({connection.descriptor, POLLIN, 0});
      ::poll(entries.data(), entries.size(), -1);
      if (entries[0].revents != 0) break;
      for (std::size_t i = open.size(); i-- > 0;) {
        if (entries[2 + i].revents == 0 || go_on(open[i])) continue;
        ::close(open[i].descriptor);
        open.erase(open.begin() + static_cast<std::ptrdiff_t>(i));
      }
      if (entries[1].revents != 0) {
        open.push_back({::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC), ""});
        const int on = 1;
        ::setsockopt(open.back().descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        ++connections_;
      }
    }
    for (const Connection& connection : open) ::close(connection.descriptor);
  }

  // Whether the connection stays open.
  bool go_on(Connection& connection) {
    char piece[65536];
    const ssize_t bytes = ::recv(connection.descriptor, piece, sizeof(piece), 0);
    if (bytes <= 0) return false;
    connection.received.append(piece, static_cast<std::size_t>(bytes));
    while (const std::optional<Words> command = take_command(connection.received)) {
      ++commands_;
      const Answer answer = script_(*command);
      std::string_view rest = answer.bytes;
      while (!rest.empty()) {
        const ssize_t sent = ::send(connection.descriptor, rest.data(), rest.size(), MSG_NOSIGNAL);
        if (sent < 0) return false;
        rest.remove_prefix(static_cast<std::size_t>(sent));
      }
      if (answer.close) return false;
    }
    return true;
  }

  // The first whole command, taken off the front.
  static std::optional<Words> take_command(std::string& received) {
    std::size_t at = 0;
    const auto number = [&]() -> std::optional<std::size_t> {
      const std::size_t end = received.find("\r\n", at);
      if (end == std::string::npos) return std::nullopt;
      const std::size_t value = std::strtoul(received.c_str() + at + 1, nullptr, 10);
      at = end + 2;
      return value;
    };
    const auto words = number();
    if (!words) return std::nullopt;
    Words command;
    for (std::size_t i = 0; i < *words; ++i) {
      const auto length = number();
      if (!length || received.size() < at + *length + 2) return std::nullopt;
      command.push_back(received.substr(at, *length));
      at += *length + 2;
    }
    received.erase(0, at);
    return command;
  }

  Script script_;
  int listener_ = -1;
  int stop_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<int> connections_ = 0;
  std::atomic<int> commands_ = 0;
  std::jthread thread_;
};

}  // namespace stemma
