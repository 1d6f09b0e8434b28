// HostLookup: the addresses of an endpoint, by a deadline.
//
// The system's resolver cannot be told when to stop, so a name is looked up on a thread of its own.
// A look-up that misses its deadline goes on there; whoever asks for the same name again finds its
// answer. Addresses and paths need no look-up and no thread.
//
// Thread:     one thread; another one while a name is looked up.
// Memory:     one look-up.
// Cost:       an address: none. A name: the resolver's time.
// Not here:   caching (the system's resolver), connections (stream_socket).
#pragma once

#include <sys/socket.h>

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "stemma/result.h"
#include "store/redis_url.h"

namespace stemma {

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size_bytes = 0;
};

class HostLookup {
 public:
  // At least one address. kNotFound: there is no such host; kDeadline, also while the look-up of
  // another name goes on; kIo: the system has no thread for it now. Its destructor waits for a
  // look-up as long as the resolver does.
  Result<std::vector<SocketAddress>> resolve(const RedisEndpoint& endpoint, const Clock& clock,
                                             std::int64_t deadline_us);

 private:
  // What the two threads share.
  struct Pending {
    std::mutex mutex;
    std::condition_variable ended;
    bool is_done = false;
    int error = 0;  // of getaddrinfo
    std::vector<SocketAddress> addresses;
  };

  // kDeadline while another look-up goes on.
  Status start(const RedisEndpoint& endpoint);

  RedisEndpoint asked_;  // what pending_ is for
  std::unique_ptr<Pending> pending_;
  std::jthread thread_;  // behind what it uses: it is joined first
};

}  // namespace stemma
