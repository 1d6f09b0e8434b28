// RedisGivenUp: writes that were given up and that servers may carry out all the same.
//
// A connection that is dropped takes back what this system has not sent yet. What the server's
// system has received by then, and a server that is frozen has not read, is read when it goes on: a
// page may be stored behind a purge that was confirmed. Nothing says which connections a server has
// still to read to their end, but it is known how it reads them: in rounds, in each of which it
// accepts who waits, reads from every connection that has something, and carries that out, 16 KiB
// a connection or, of a long value, the rest of it. Who gets an answer and then asks again is
// answered in a later round. So behind so many questions, one after the other, as it takes rounds
// to read what was sent, all of it has been carried out, or never will be.
//
// Half as many bytes are counted a round, for servers that read with several threads; and some
// rounds more, as new connections are accepted few at a time (10 by later servers, of 511 that
// wait).
//
// Thread:     any.
// Memory:     a few words a server.
// Cost:       none worth noting.
// Not here:   asking (redis_lane), what waits for it (redis_page_store_purge).
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "store/redis_url.h"

namespace stemma {

class RedisGivenUp {
 public:
  // Of a connection that was dropped the server may have so many bytes of writes.
  void add(const RedisEndpoint& server, std::size_t bytes);
  // An engine that ended may have left some too: counted when the server is first named here.
  void add_of_before(const RedisEndpoint& server);

  // How many rounds it may take until the server has none any more.
  std::int64_t rounds_left(const RedisEndpoint& server) const;
  // One of them has passed.
  void note_round(const RedisEndpoint& server);

 private:
  struct Server {
    RedisEndpoint endpoint;
    std::int64_t rounds_left = 0;
    bool before_counted = false;
  };
  Server& find_or_add(const RedisEndpoint& endpoint);

  mutable std::mutex mutex_;
  std::vector<Server> servers_;
};

}  // namespace stemma
