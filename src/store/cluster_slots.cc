#include "store/cluster_slots.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace stemma {

namespace {

// CRC-16/XMODEM: polynomial 0x1021, most significant bit first.
constexpr std::array<std::uint16_t, 256> kCrcTable = [] {
  std::array<std::uint16_t, 256> table = {};
  for (unsigned byte = 0; byte < 256; ++byte) {
    unsigned crc = byte << 8;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc << 1) ^ ((crc & 0x8000u) != 0 ? 0x1021u : 0u);
    }
    table[byte] = static_cast<std::uint16_t>(crc);
  }
  return table;
}();

Error corrupt() {
  return {ErrorCode::kCorrupt, "reply: not a map of slots"};
}

// One range: its first slot, its last, then the primary, then replicas.
struct SlotRange {
  std::size_t first = 0;
  std::size_t last = 0;
  RedisEndpoint primary;
};

std::optional<SlotRange> parse_range(const RespReply& reply, const RedisEndpoint& asked) {
  if (reply.kind != RespKind::kArray || reply.items.size() < 3) return std::nullopt;
  const RespReply& first = reply.items[0];
  const RespReply& last = reply.items[1];
  const std::vector<RespReply>& node = reply.items[2].items;
  constexpr auto kLast = static_cast<std::int64_t>(kRedisSlots) - 1;
  if (first.kind != RespKind::kInteger || last.kind != RespKind::kInteger || first.number < 0 ||
      first.number > last.number || last.number > kLast) {
    return std::nullopt;
  }
  if (node.size() < 2 || (node[0].kind != RespKind::kBulk && node[0].kind != RespKind::kNil) ||
      node[1].kind != RespKind::kInteger || node[1].number < 1 || node[1].number > 65535) {
    return std::nullopt;
  }
  const std::string& host = node[0].text.empty() ? asked.host : node[0].text;
  return SlotRange{static_cast<std::size_t>(first.number),
                   static_cast<std::size_t>(last.number),
                   {host, static_cast<std::uint16_t>(node[1].number)}};
}

}  // namespace

std::uint16_t redis_slot(std::string_view key) {
  unsigned crc = 0;
  for (const char c : key) {
    crc = ((crc << 8) ^ kCrcTable[((crc >> 8) ^ static_cast<unsigned char>(c)) & 0xFF]) & 0xFFFF;
  }
  return static_cast<std::uint16_t>(crc % kRedisSlots);
}

Result<ClusterMap> parse_cluster_slots(const RespReply& reply, const RedisEndpoint& asked) {
  if (reply.kind != RespKind::kArray) return corrupt();
  ClusterMap map;
  map.primary_of_slot.assign(kRedisSlots, -1);
  for (const RespReply& item : reply.items) {
    const std::optional<SlotRange> range = parse_range(item, asked);
    if (!range) return corrupt();
    if (range->primary.host == "?") continue;
    auto known = std::find(map.primaries.begin(), map.primaries.end(), range->primary);
    if (known == map.primaries.end()) {
      if (map.primaries.size() == kClusterNodesMax) {
        return Error{ErrorCode::kTooLarge, "reply: a cluster of too many nodes"};
      }
      known = map.primaries.insert(known, range->primary);
    }
    std::fill(map.primary_of_slot.begin() + static_cast<std::ptrdiff_t>(range->first),
              map.primary_of_slot.begin() + static_cast<std::ptrdiff_t>(range->last) + 1,
              static_cast<std::int16_t>(known - map.primaries.begin()));
  }
  return map;
}

}  // namespace stemma
