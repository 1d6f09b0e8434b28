#include "store/host_lookup.h"

#include <netdb.h>
#include <sys/un.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/or_no_thread.h"

namespace stemma {

namespace {

std::vector<SocketAddress> copied(const addrinfo* first) {
  std::vector<SocketAddress> addresses;
  for (const addrinfo* entry = first; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_addrlen > sizeof(sockaddr_storage)) continue;
    SocketAddress& address = addresses.emplace_back();
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.size_bytes = entry->ai_addrlen;
  }
  return addresses;
}

SocketAddress unix_address(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof(address.sun_path) - 1));
  SocketAddress result;
  std::memcpy(&result.storage, &address, sizeof(address));
  result.size_bytes = sizeof(address);
  return result;
}

// Fills `addresses`; the error of getaddrinfo.
int look_up(const RedisEndpoint& endpoint, int flags, std::vector<SocketAddress>& addresses) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(endpoint.port);
  const int error = ::getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) return error;
  addresses = copied(found);
  ::freeaddrinfo(found);
  return addresses.empty() ? EAI_NONAME : 0;
}

}  // namespace

Result<std::vector<SocketAddress>> HostLookup::resolve(const RedisEndpoint& endpoint,
                                                       const Clock& clock,
                                                       std::int64_t deadline_us) {
  if (endpoint.port == 0) return std::vector{unix_address(endpoint.host)};
  std::vector<SocketAddress> addresses;
  if (look_up(endpoint, AI_NUMERICHOST, addresses) == 0) return addresses;
  const bool is_asked = pending_ != nullptr && asked_ == endpoint;
  if (!is_asked) STEMMA_RETURN_IF_ERROR(start(endpoint));
  int error = 0;
  {
    std::unique_lock lock(pending_->mutex);
    const std::chrono::microseconds left(deadline_us - clock.now_us());
    if (!pending_->ended.wait_for(lock, left, [this] { return pending_->is_done; })) {
      return Error{ErrorCode::kDeadline, endpoint.host + ": the resolver does not answer"};
    }
    error = pending_->error;
    addresses = std::move(pending_->addresses);
  }
  thread_.join();
  pending_.reset();
  if (error == 0) return addresses;
  return Error{ErrorCode::kNotFound, endpoint.host + ": " + ::gai_strerror(error)};
}

Status HostLookup::start(const RedisEndpoint& endpoint) {
  if (pending_ != nullptr) {
    const std::lock_guard lock(pending_->mutex);
    if (!pending_->is_done) {
      return Error{ErrorCode::kDeadline, endpoint.host + ": the resolver is busy"};
    }
  }
  if (thread_.joinable()) thread_.join();
  pending_ = std::make_unique<Pending>();
  asked_ = endpoint;
  const auto work = [pending = pending_.get(), endpoint] {
    std::vector<SocketAddress> addresses;
    const int error = look_up(endpoint, AI_ADDRCONFIG, addresses);
    const std::lock_guard lock(pending->mutex);
    pending->error = error;
    pending->addresses = std::move(addresses);
    pending->is_done = true;
    pending->ended.notify_all();
  };
  const Status started = or_no_thread([&]() -> Status {
    thread_ = std::jthread(work);
    return {};
  });
  if (started.ok()) return {};
  pending_.reset();  // there may be one at the next try
  return Error{started.error().code,
               endpoint.host + ": " + started.error().detail + " that looks it up",
               started.error().sys_errno};
}

}  // namespace stemma
