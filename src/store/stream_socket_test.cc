// A socket to Redis: where it connects to, and what becomes of bytes whose sender has given up.
#include "store/stream_socket.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

namespace stemma {
namespace {

constexpr std::int64_t kSecondUs = 1'000'000;

// Listens on a port of its own, and reads when it is told to.
class SlowPeer {
 public:
  explicit SlowPeer(int waiting_max = 1)
      : listening_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in here = {};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(here);
    EXPECT_EQ(::bind(listening_, reinterpret_cast<const sockaddr*>(&here), size), 0);
    EXPECT_EQ(::listen(listening_, waiting_max), 0);
    EXPECT_EQ(::getsockname(listening_, reinterpret_cast<sockaddr*>(&here), &size), 0);
    std::memcpy(&address_.storage, &here, sizeof(here));
    address_.size_bytes = size;
  }
  ~SlowPeer() {
    ::close(accepted_);
    ::close(listening_);
  }

  const SocketAddress& address() const { return address_; }
  void accept() { accepted_ = ::accept(listening_, nullptr, nullptr); }
  // Until there is nothing more.
  std::size_t read_all() const {
    std::vector<std::byte> target(1 << 20);
    std::size_t bytes = 0;
    for (;;) {
      const ssize_t received = ::recv(accepted_, target.data(), target.size(), 0);
      if (received <= 0) return bytes;
      bytes += static_cast<std::size_t>(received);
    }
  }

 private:
  int listening_;
  int accepted_ = -1;
  SocketAddress address_ = {};
};

TEST(StreamSocket, WhatHasNotLeftWhenItIsClosedNeverArrives) {
  SlowPeer peer;
  const MonotonicClock clock;
  std::size_t taken = 0;
  {
    auto socket = StreamSocket::connect(peer.address(), clock, clock.now_us() + kSecondUs);
    ASSERT_TRUE(socket.ok());
    peer.accept();
    std::vector<std::byte> page(1 << 20);
    const std::array<iovec, 1> pieces = {{{page.data(), page.size()}}};
    for (std::size_t sent = 1; sent > 0; taken += sent) {
      const auto now = socket->try_send(pieces);
      ASSERT_TRUE(now.ok());
      sent = *now;
    }
  }
  EXPECT_LT(peer.read_all(), taken) << "the system has not sent the rest";
}

// To whom the system says nothing any more: as many wait as may.
class SilentPeer {
 public:
  SilentPeer() {
    for (int& waiting : waiting_) {
      waiting = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
      const auto* const there = reinterpret_cast<const sockaddr*>(&address().storage);
      static_cast<void>(::connect(waiting, there, address().size_bytes));
    }
  }
  ~SilentPeer() {
    for (const int waiting : waiting_) ::close(waiting);
  }
  SilentPeer(const SilentPeer&) = delete;
  SilentPeer& operator=(const SilentPeer&) = delete;

  const SocketAddress& address() const { return peer_.address(); }

 private:
  SlowPeer peer_{0};
  std::array<int, 4> waiting_ = {};
};

TEST(StreamSocket, OneAddressThatIsSilentLeavesTheOthersTheirShareOfTheTime) {
  const SilentPeer silent;
  const SlowPeer peer;
  const std::array addresses = {silent.address(), silent.address(), peer.address()};
  const MonotonicClock clock;
  const auto socket = StreamSocket::connect_any(addresses, clock, clock.now_us() + kSecondUs / 5);
  EXPECT_TRUE(socket.ok()) << to_string(socket.error());
}

TEST(StreamSocket, OfSeveralThatAreSilentNobodyIsWaitedForBeyondTheDeadline) {
  const SilentPeer silent;
  const std::array addresses = {silent.address(), silent.address()};
  const MonotonicClock clock;
  const std::int64_t start_us = clock.now_us();
  const auto socket = StreamSocket::connect_any(addresses, clock, start_us + kSecondUs / 20);
  ASSERT_FALSE(socket.ok());
  EXPECT_EQ(socket.error().code, ErrorCode::kDeadline);
  EXPECT_GE(clock.now_us() - start_us, kSecondUs / 20);
}

TEST(StreamSocket, SaysThatNobodyListens) {
  SocketAddress address;
  {
    const SlowPeer peer;
    address = peer.address();
  }
  const MonotonicClock clock;
  const auto socket = StreamSocket::connect(address, clock, clock.now_us() + kSecondUs);
  ASSERT_FALSE(socket.ok());
  EXPECT_EQ(socket.error().code, ErrorCode::kIo);
  EXPECT_EQ(socket.error().sys_errno, ECONNREFUSED);
}

}  // namespace
}  // namespace stemma
