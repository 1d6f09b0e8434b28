// ClusterSlots: which node of a Redis cluster has which keys.
//
// A key lies in one of 16,384 slots, CRC16 of the key (the keys of pages hold no braces, which
// would choose a part of it), and each slot on one primary. CLUSTER SLOTS says which.
//
// Thread:     values and pure functions.
// Memory:     32 KiB a map, and its endpoints, at most kClusterNodesMax.
// Cost:       a slot: a table look-up a byte of the key.
// Not here:   when to ask for the map, redirects (redis_lane).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "stemma/result.h"
#include "store/redis_url.h"
#include "store/resp_reader.h"

namespace stemma {

inline constexpr std::size_t kRedisSlots = 16384;
inline constexpr std::size_t kClusterNodesMax = 1024;

// The slot of a key without braces.
std::uint16_t redis_slot(std::string_view key);

struct ClusterMap {
  std::vector<RedisEndpoint> primaries;
  std::vector<std::int16_t> primary_of_slot;  // [kRedisSlots]; -1: no node that is named has it
};

// Reads the reply to CLUSTER SLOTS; a node without a host is at `asked`'s, one at "?", as those are
// that are called by hostnames and have none, is not named. kCorrupt: it is no such
// reply; kTooLarge: more than kClusterNodesMax primaries.
Result<ClusterMap> parse_cluster_slots(const RespReply& reply, const RedisEndpoint& asked);

}  // namespace stemma
