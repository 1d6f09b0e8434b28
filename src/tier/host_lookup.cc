#include "tier/host_lookup.h"

#include <sys/un.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <utility>

namespace stemma {

namespace {

struct FreeAddresses {
  void operator()(addrinfo* first) const noexcept { ::freeaddrinfo(first); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

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

addrinfo stream_hints(int flags) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  return hints;
}

timespec timespec_of(std::int64_t time_us) {
  return {static_cast<time_t>(time_us / 1'000'000), static_cast<long>(time_us % 1'000'000 * 1000)};
}

}  // namespace

HostLookup::~HostLookup() {
  while (!try_forget()) {
    const gaicb* const list[] = {&pending_->control};
    ::gai_suspend(list, 1, nullptr);
  }
}

bool HostLookup::try_forget() {
  if (pending_ == nullptr) return true;
  ::gai_cancel(&pending_->control);
  if (::gai_error(&pending_->control) == EAI_INPROGRESS) return false;
  const Addresses answer(pending_->control.ar_result);
  pending_.reset();
  return true;
}

Result<std::vector<SocketAddress>> HostLookup::resolve(const RedisEndpoint& endpoint,
                                                       const Clock& clock,
                                                       std::int64_t deadline_us) {
  if (endpoint.port == 0) return std::vector{unix_address(endpoint.host)};
  const std::string port = std::to_string(endpoint.port);
  addrinfo* found = nullptr;
  const addrinfo numeric = stream_hints(AI_NUMERICHOST);
  if (::getaddrinfo(endpoint.host.c_str(), port.c_str(), &numeric, &found) == 0) {
    const Addresses answer(found);
    return copied(found);
  }
  const bool same =
      pending_ != nullptr && pending_->host == endpoint.host && pending_->port == port;
  if (!same) STEMMA_RETURN_IF_ERROR(start(endpoint.host, port));
  return finish(clock, deadline_us);
}

Status HostLookup::start(const std::string& host, const std::string& port) {
  if (!try_forget()) return Error{ErrorCode::kDeadline, host + ": the resolver is busy"};
  pending_ = std::make_unique<Pending>();
  pending_->host = host;
  pending_->port = port;
  pending_->hints = stream_hints(AI_ADDRCONFIG);
  pending_->control.ar_name = pending_->host.c_str();
  pending_->control.ar_service = pending_->port.c_str();
  pending_->control.ar_request = &pending_->hints;
  gaicb* list[] = {&pending_->control};
  if (::getaddrinfo_a(GAI_NOWAIT, list, 1, nullptr) == 0) return {};
  pending_.reset();
  return Error{ErrorCode::kInternal, host + ": the resolver does not start"};
}

Result<std::vector<SocketAddress>> HostLookup::finish(const Clock& clock,
                                                      std::int64_t deadline_us) {
  while (::gai_error(&pending_->control) == EAI_INPROGRESS) {
    const std::int64_t left_us = deadline_us - clock.now_us();
    const gaicb* const list[] = {&pending_->control};
    const timespec limit = timespec_of(std::max<std::int64_t>(left_us, 0));
    if (left_us <= 0 || ::gai_suspend(list, 1, &limit) == EAI_AGAIN) {
      return Error{ErrorCode::kDeadline, pending_->host + ": the resolver does not answer"};
    }
  }
  const std::unique_ptr<Pending> done = std::move(pending_);
  const Addresses answer(done->control.ar_result);
  const int error = ::gai_error(&done->control);
  std::vector<SocketAddress> addresses = copied(answer.get());
  if (error == 0 && !addresses.empty()) return addresses;
  return Error{ErrorCode::kNotFound, done->host + ": " + ::gai_strerror(error)};
}

}  // namespace stemma
