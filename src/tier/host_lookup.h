// HostLookup: the addresses of an endpoint, by a deadline.
//
// The C library's resolver cannot be told when to stop, so a name is looked up on a thread of the
// library (getaddrinfo_a). A look-up that misses its deadline goes on there; whoever asks for the
// same name again finds its answer. Addresses and paths need no look-up.
//
// Thread:     one thread.
// Memory:     one look-up.
// Cost:       an address: none. A name: the resolver's time.
// Not here:   caching (the system's resolver), connections (stream_socket).
#pragma once

#include <netdb.h>
#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "stemma/result.h"
#include "tier/redis_url.h"

namespace stemma {

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size_bytes = 0;
};

class HostLookup {
 public:
  HostLookup() = default;
  // Waits for a look-up that cannot be cancelled, as long as the system's resolver does.
  ~HostLookup();
  HostLookup(const HostLookup&) = delete;
  HostLookup& operator=(const HostLookup&) = delete;

  // At least one address. kNotFound: there is no such host; kDeadline, also while the look-up of
  // another name cannot be given up.
  Result<std::vector<SocketAddress>> resolve(const RedisEndpoint& endpoint, const Clock& clock,
                                             std::int64_t deadline_us);

 private:
  struct Pending {
    std::string host;
    std::string port;
    addrinfo hints = {};
    gaicb control = {};
  };

  Status start(const std::string& host, const std::string& port);
  Result<std::vector<SocketAddress>> finish(const Clock& clock, std::int64_t deadline_us);
  // Whether no look-up is left: its answer is dropped, or it was cancelled.
  bool try_forget();

  std::unique_ptr<Pending> pending_;
};

}  // namespace stemma
