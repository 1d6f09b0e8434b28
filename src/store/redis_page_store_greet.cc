// What a remote store finds at its servers is told when it is opened, not when the first request
// comes: a wrong address is then seen by whoever starts the engine.
#include <string>
#include <string_view>
#include <vector>

#include "stemma/log.h"
#include "store/redis_page_store.h"
#include "store/redis_server_state.h"

namespace stemma {

// Those that do not answer are told by the lane.
void RedisPageStore::greet(std::int64_t deadline_us) {
  const LaneUse use(reader_);
  deadline_us = limited(deadline_us);
  for (const RedisEndpoint& server : reader_.servers.ask_primaries(deadline_us)) {
    const auto state = ask_server_state(reader_.servers, server, deadline_us);
    if (!state) continue;
    const auto where = kv("server", to_string(server));
    STEMMA_LOG(kInfo, "tier.redis.open", where, kv("room_bytes", state->room_bytes.value_or(0)),
               kv("eviction", state->eviction));
    if (state->room_bytes == 0) {
      STEMMA_LOG(kWarning, "tier.redis.no_limit", where, kv("set", "maxmemory"));
    } else if (!state->eviction.empty() && !gives_up_pages(state->eviction)) {
      STEMMA_LOG(kWarning, "tier.redis.keeps_all", where, kv("eviction", state->eviction),
                 kv("set", "maxmemory-policy allkeys-lru"));
    }
  }
}

// Whether a server that is full makes room for pages by giving up others: some give up only what
// has a time to live.
bool RedisPageStore::gives_up_pages(std::string_view eviction) const {
  if (eviction == "noeviction") return false;
  return !ttl_s_.empty() || !eviction.starts_with("volatile-");
}

}  // namespace stemma
