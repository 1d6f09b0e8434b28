#include "store/redis_given_up.h"

#include <algorithm>
#include <utility>

namespace stemma {

namespace {

constexpr std::int64_t kBytesARound = 8 << 10;
constexpr std::int64_t kRoundsBesides = 64;
// What systems keep for one connection, mostly at most.
constexpr std::size_t kBytesOfBefore = std::size_t{6} << 20;

}  // namespace

void RedisGivenUp::add(const RedisEndpoint& server, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  std::int64_t& left = find_or_add(server).rounds_left;
  left = std::max(left, static_cast<std::int64_t>(bytes) / kBytesARound + kRoundsBesides);
}

void RedisGivenUp::add_of_before(const RedisEndpoint& server) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(find_or_add(server).before_counted, true)) return;
  }
  add(server, kBytesOfBefore);
}

std::int64_t RedisGivenUp::rounds_left(const RedisEndpoint& server) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(servers_, server, &Server::endpoint);
  return found == servers_.end() ? 0 : found->rounds_left;
}

void RedisGivenUp::note_round(const RedisEndpoint& server) {
  const std::lock_guard lock(mutex_);
  std::int64_t& left = find_or_add(server).rounds_left;
  left = std::max<std::int64_t>(left - 1, 0);
}

RedisGivenUp::Server& RedisGivenUp::find_or_add(const RedisEndpoint& endpoint) {
  const auto found = std::ranges::find(servers_, endpoint, &Server::endpoint);
  return found == servers_.end() ? servers_.emplace_back(Server{.endpoint = endpoint}) : *found;
}

}  // namespace stemma
