#include "store/stream_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <string>

#include "base/check.h"

namespace stemma {

namespace {

Error system_error(const char* what, int number) {
  return {ErrorCode::kIo, what, number};
}

bool is_not_now(int number) {
  return number == EAGAIN || number == EWOULDBLOCK || number == EINTR;
}

}  // namespace

Result<StreamSocket> StreamSocket::connect(const SocketAddress& address, const Clock& clock,
                                           std::int64_t deadline_us) {
  const int family = address.storage.ss_family;
  StreamSocket socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.descriptor_ < 0) return system_error("socket", errno);
  if (family != AF_UNIX) {
    // Commands are small and wait for their answers.
    const int on = 1;
    ::setsockopt(socket.descriptor_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    // Closed is closed: what the system still held to send would arrive whenever the peer reads on,
    // and a page that was given up be stored behind the purge that was to forget it. What the
    // peer's system has already is outlasted there (redis_given_up).
    const linger nothing = {.l_onoff = 1, .l_linger = 0};
    ::setsockopt(socket.descriptor_, SOL_SOCKET, SO_LINGER, &nothing, sizeof(nothing));
  }
  const auto* const peer = reinterpret_cast<const sockaddr*>(&address.storage);
  if (::connect(socket.descriptor_, peer, address.size_bytes) != 0) {
    // A Unix socket whose queue is full says EAGAIN and cannot be waited for.
    if (errno != EINPROGRESS && errno != EINTR) return system_error("connect", errno);
    STEMMA_RETURN_IF_ERROR(socket.finish_connect(clock, deadline_us));
  }
  return socket;
}

Result<StreamSocket> StreamSocket::connect_any(std::span<const SocketAddress> addresses,
                                               const Clock& clock, std::int64_t deadline_us) {
  STEMMA_CHECK(!addresses.empty(), "there is somewhere to connect to");
  for (; addresses.size() > 1; addresses = addresses.subspan(1)) {
    const std::int64_t now_us = clock.now_us();
    const std::int64_t share_us = (deadline_us - now_us) / std::ssize(addresses);
    auto socket = connect(addresses.front(), clock, now_us + share_us);
    if (socket.ok()) return socket;
  }
  return connect(addresses.front(), clock, deadline_us);
}

Status StreamSocket::finish_connect(const Clock& clock, std::int64_t deadline_us) {
  STEMMA_RETURN_IF_ERROR(wait(Wait::kWritable, clock, deadline_us));
  int error = 0;
  socklen_t size_bytes = sizeof(error);
  if (::getsockopt(descriptor_, SOL_SOCKET, SO_ERROR, &error, &size_bytes) != 0) error = errno;
  if (error != 0) return system_error("connect", error);
  return {};
}

StreamSocket& StreamSocket::operator=(StreamSocket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

StreamSocket::~StreamSocket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<std::size_t> StreamSocket::try_send(std::span<const iovec> pieces) {
  msghdr message = {};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  const ssize_t sent = ::sendmsg(descriptor_, &message, MSG_NOSIGNAL);
  if (sent >= 0) return static_cast<std::size_t>(sent);
  if (is_not_now(errno)) return std::size_t{0};
  return system_error("send", errno);
}

Result<std::size_t> StreamSocket::try_receive(std::span<std::byte> target) {
  STEMMA_DCHECK(!target.empty(), "there is room for a byte");
  const ssize_t received = ::recv(descriptor_, target.data(), target.size(), 0);
  if (received > 0) return static_cast<std::size_t>(received);
  if (received == 0) return Error{ErrorCode::kIo, "receive: the server closed the connection"};
  if (is_not_now(errno)) return std::size_t{0};
  return system_error("receive", errno);
}

Status StreamSocket::wait(Wait what, const Clock& clock, std::int64_t deadline_us) {
  pollfd entry = {descriptor_, 0, 0};
  if (what != Wait::kWritable) entry.events |= POLLIN;
  if (what != Wait::kReadable) entry.events |= POLLOUT;
  while (true) {
    const std::int64_t left_us = deadline_us - clock.now_us();
    if (left_us <= 0) return Error{ErrorCode::kDeadline, "no answer in time"};
    const timespec limit = {static_cast<time_t>(left_us / 1'000'000),
                            static_cast<long>(left_us % 1'000'000 * 1000)};
    const int ready = ::ppoll(&entry, 1, &limit, nullptr);
    if (ready > 0) return {};
    if (ready == 0) return Error{ErrorCode::kDeadline, "no answer in time"};
    if (errno != EINTR) return system_error("poll", errno);
  }
}

bool StreamSocket::quiet() const {
  pollfd entry = {descriptor_, POLLIN | POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) == 0;
}

}  // namespace stemma
