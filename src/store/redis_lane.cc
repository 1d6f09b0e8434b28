#include "store/redis_lane.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include "base/check.h"
#include "stemma/log.h"

namespace stemma {

namespace {

// A slot on the move takes an ASK; a map that is behind takes a MOVED and then perhaps an ASK.
constexpr int kRedirectsMax = 4;
constexpr std::int64_t kReportUs = 10'000'000;
// For a map in which each slot is a range by itself, with a primary and several replicas.
constexpr std::size_t kMapBytesMax = std::size_t{64} << 20;

bool is_error(const RedisCommand& command, RedisErrorKind kind) {
  return command.answered && command.reply.kind == RespKind::kError &&
         redis_error_kind(command.reply.text) == kind;
}

RedisCommand question(const RedisUrl& url) {
  RedisCommand command;
  command.expects = RedisExpects::kArrayOrNil;
  if (url.kind == RedisTopologyKind::kCluster) {
    command.words = {"CLUSTER", "SLOTS"};
    command.words_used = 2;
    command.reply_bytes_max = kMapBytesMax;
  } else {
    command.words = {"SENTINEL", "GET-MASTER-ADDR-BY-NAME", url.primary_name};
    command.words_used = 3;
  }
  return command;
}

}  // namespace

RedisLane::RedisLane(RedisLaneOptions options, RedisCounters& counters, RedisGivenUp& given_up,
                     const Clock& clock)
    : options_(std::move(options)), counters_(counters), given_up_(given_up), clock_(clock) {
  STEMMA_CHECK(!options_.url.endpoints.empty(), "a URL names a server");
  for (const RedisEndpoint& endpoint : options_.url.endpoints) find_or_add(endpoint);
  named_nodes_ = nodes_.size();
  login_ = {options_.url.user, options_.url.password, options_.url.database,
            options_.url.kind == RedisTopologyKind::kSentinel};
  if (options_.url.kind == RedisTopologyKind::kSingle) primary_ = nodes_.front().get();
  if (options_.url.kind == RedisTopologyKind::kCluster) node_of_slot_.resize(kRedisSlots);
  stale_ = true;
}

RedisCommand* RedisLane::run(std::span<RedisCommand> commands, std::int64_t deadline_us) {
  too_long_ = nullptr;
  std::vector<Errand> errands;
  errands.reserve(commands.size());
  for (RedisCommand& command : commands) {
    command.answered = false;
    command.asking = false;
    errands.push_back({&command, nullptr});
  }
  if (errands.empty()) return nullptr;
  const bool has_sentinels = options_.url.kind == RedisTopologyKind::kSentinel;
  for (int round = 0; round <= kRedirectsMax && !errands.empty(); ++round) {
    // In a cluster a redirect says where to go; asking for the whole map can wait.
    if (round == 0 || has_sentinels) refresh_if_stale(deadline_us);
    for (Errand& errand : errands) {
      if (errand.node == nullptr) errand.node = node_of(*errand.command);
      stale_ |= errand.node == nullptr;  // somebody may have its key by the next time
    }
    run_round(errands, deadline_us);
    std::erase_if(errands, [this](Errand& errand) { return !try_redirect(errand); });
  }
  count_open_breakers();
  return too_long_;
}

void RedisLane::count_open_breakers() {
  const auto open = std::count_if(nodes_.begin(), nodes_.end(), [](const auto& node) {
    return node->breaker.state() != Breaker::State::kClosed;
  });
  open_breakers_.store(open);
}

std::vector<RedisEndpoint> RedisLane::ask_primaries(std::int64_t deadline_us) {
  const bool is_single = options_.url.kind == RedisTopologyKind::kSingle;
  stale_ = true;
  refresh_at_us_ = INT64_MIN;
  refresh_if_stale(deadline_us);
  std::vector<RedisEndpoint> found;
  if (stale_ && !is_single) return found;
  if (primary_ != nullptr) found.push_back(primary_->endpoint);
  for (const Node* const node : node_of_slot_) {
    if (node == nullptr) {
      report(options_.url.endpoints.front(), "the cluster names no primary of some slots");
      return {};
    }
    if (std::find(found.begin(), found.end(), node->endpoint) == found.end()) {
      found.push_back(node->endpoint);
    }
  }
  return found;
}

void RedisLane::run_at(const RedisEndpoint& server, std::span<RedisCommand> commands,
                       std::int64_t deadline_us) {
  std::vector<RedisCommand*> all;
  for (RedisCommand& command : commands) {
    command.answered = false;
    command.asking = false;
    all.push_back(&command);
  }
  Node* const node = find_or_add(server);
  if (node != nullptr && !all.empty()) serve(*node, all, deadline_us);
  count_open_breakers();
}

bool RedisLane::outlast_given_up(const RedisEndpoint& server, std::int64_t deadline_us) {
  while (given_up_.rounds_left(server) > 0) {
    RedisCommand ping;
    ping.words = {"PING", "stemma"};
    ping.words_used = 2;
    ping.expects = RedisExpects::kBulkOrNil;
    run_at(server, {&ping, 1}, deadline_us);
    if (!ping.answered) return false;
    given_up_.note_round(server);
  }
  return true;
}

RedisLane::Node* RedisLane::node_of(const RedisCommand& command) {
  if (options_.url.kind != RedisTopologyKind::kCluster) return primary_;
  return node_of_slot_[redis_slot(command.key())];
}

RedisLane::Node* RedisLane::find_or_add(const RedisEndpoint& endpoint) {
  for (const auto& node : nodes_) {
    if (node->endpoint == endpoint) return node.get();
  }
  if (nodes_.size() == kRedisEndpointsMax + kClusterNodesMax) return nullptr;
  BreakerOptions breaker = options_.breaker;
  breaker.seed = mix64(breaker.seed + nodes_.size());
  return nodes_.emplace_back(std::make_unique<Node>(endpoint, clock_, breaker)).get();
}

void RedisLane::run_round(std::span<Errand> errands, std::int64_t deadline_us) {
  std::vector<Node*> asked;
  for (const Errand& errand : errands) {
    const bool known = std::find(asked.begin(), asked.end(), errand.node) != asked.end();
    if (errand.node != nullptr && !known) asked.push_back(errand.node);
  }
  // A node that does not answer must not use up the time of those that do.
  std::stable_partition(asked.begin(), asked.end(),
                        [](const Node* node) { return node->connection != nullptr; });
  std::vector<RedisCommand*> commands;
  for (Node* const node : asked) {
    commands.clear();
    for (const Errand& errand : errands) {
      if (errand.node == node) commands.push_back(errand.command);
    }
    serve(*node, commands, deadline_us);
  }
}

void RedisLane::serve(Node& node, std::span<RedisCommand* const> commands,
                      std::int64_t deadline_us) {
  // A caller without time teaches nothing about the server.
  if (clock_.now_us() >= deadline_us) return;
  if (!node.breaker.try_enter()) {
    count(counters_.breaker_refusals, static_cast<std::int64_t>(commands.size()));
    stale_ = true;
    return;
  }
  if (!try_exchange(node, login_, commands, deadline_us)) {
    stale_ = true;
    return;
  }
  for (const RedisCommand* const command : commands) {
    if (command->reply.kind != RespKind::kError) continue;
    const bool is_cluster = options_.url.kind == RedisTopologyKind::kCluster;
    if (is_cluster && is_error(*command, RedisErrorKind::kMoved)) continue;
    report(node.endpoint, command->reply.text);
    count(counters_.error_replies);
    if (is_error(*command, RedisErrorKind::kUnavailable)) {
      stale_ = true;
      note_failure(node, {ErrorCode::kIo, command->reply.text}, false);
      return;
    }
  }
  node.breaker.succeeded();
}

bool RedisLane::try_exchange(Node& node, const RedisLogin& login,
                             std::span<RedisCommand* const> commands, std::int64_t deadline_us) {
  if (!try_connect(node, login, deadline_us)) return false;
  const Status status = node.connection->exchange(commands, deadline_us);
  if (status.ok()) return true;
  const bool writes = std::any_of(commands.begin(), commands.end(), [](const auto* command) {
    return !command->answered && !command->value.empty();
  });
  if (writes) given_up_.add(node.endpoint, node.connection->unanswered_bytes_max());
  const ErrorCode code = status.error().code;
  if (code == ErrorCode::kDeadline) {
    count(counters_.missed_deadlines);
  } else if (code == ErrorCode::kCorrupt || code == ErrorCode::kTooLarge) {
    count(counters_.protocol_errors);
  } else {
    count(counters_.lost_connections);
  }
  if (code == ErrorCode::kTooLarge && too_long_ == nullptr) {
    const auto first = std::find_if(commands.begin(), commands.end(),
                                    [](const RedisCommand* command) { return !command->answered; });
    if (first != commands.end()) too_long_ = *first;
  }
  note_failure(node, status.error(), false);
  return false;
}

bool RedisLane::try_connect(Node& node, const RedisLogin& login, std::int64_t deadline_us) {
  if (node.connection != nullptr && node.connection->usable()) return true;
  node.connection.reset();
  const std::int64_t start_us = clock_.now_us();
  const std::int64_t limit_us = std::min(deadline_us, start_us + options_.connect_us_max);
  auto connection = RedisConnection::open(node.endpoint, login, lookup_, clock_, limit_us);
  if (connection.ok()) {
    count(counters_.connects);
    node.connection = std::move(*connection);
    return true;
  }
  count(counters_.connect_failures);
  // Only if it had its time: a caller in a hurry says nothing about the server.
  const bool had_time = connection.error().code != ErrorCode::kDeadline ||
                        clock_.now_us() - start_us >= options_.connect_us_max / 2;
  note_failure(node, connection.error(), had_time);
  return false;
}

void RedisLane::note_failure(Node& node, const Error& error, bool trip) {
  node.connection.reset();
  const std::int64_t before = node.breaker.counters().opened;
  trip ? node.breaker.trip() : node.breaker.failed();
  count(counters_.breaker_openings, node.breaker.counters().opened - before);
  report(node.endpoint, to_string(error));
}

bool RedisLane::try_redirect(Errand& errand) {
  RedisCommand& command = *errand.command;
  if (is_error(command, RedisErrorKind::kReadOnly)) {
    stale_ = true;
    if (options_.url.kind != RedisTopologyKind::kSentinel) return false;
    errand.node->connection.reset();
    errand.node = nullptr;
  } else if (options_.url.kind == RedisTopologyKind::kCluster &&
             is_error(command, RedisErrorKind::kMoved)) {
    auto redirect = parse_redis_redirect(command.reply.text);
    if (!redirect) return false;
    if (redirect->endpoint.host.empty()) redirect->endpoint.host = errand.node->endpoint.host;
    errand.node = find_or_add(redirect->endpoint);
    command.asking = redirect->ask;
    if (errand.node == nullptr) return false;
    if (!redirect->ask) {
      ++map_changes_;
      node_of_slot_[redis_slot(command.key())] = errand.node;
      stale_ = true;
    }
  } else {
    return false;
  }
  command.answered = false;
  count(counters_.redirects);
  return true;
}

void RedisLane::refresh_if_stale(std::int64_t deadline_us) {
  const std::int64_t now_us = clock_.now_us();
  const bool is_single = options_.url.kind == RedisTopologyKind::kSingle;
  if (is_single || !stale_ || now_us < refresh_at_us_ || now_us >= deadline_us) return;
  refresh_at_us_ = now_us + options_.refresh_us;
  // Those that do not answer share one connect timeout, and the next time their breakers are open.
  const std::int64_t limit_us = std::min(deadline_us, now_us + options_.connect_us_max);
  const std::size_t nodes_asked =
      options_.url.kind == RedisTopologyKind::kSentinel ? named_nodes_ : nodes_.size();
  std::vector<Node*> asked;
  asked.reserve(nodes_asked);
  for (std::size_t i = 0; i < nodes_asked; ++i) asked.push_back(nodes_[i].get());
  std::stable_partition(asked.begin(), asked.end(),
                        [](const Node* node) { return node->connection != nullptr; });
  for (Node* const node : asked) {
    if (clock_.now_us() >= limit_us) return;
    if (node->breaker.try_enter() && try_ask(*node, limit_us)) {
      count(counters_.topology_refreshes);
      stale_ = false;
      return;
    }
  }
}

bool RedisLane::try_ask(Node& node, std::int64_t deadline_us) {
  const bool has_sentinels = options_.url.kind == RedisTopologyKind::kSentinel;
  RedisCommand command = question(options_.url);
  RedisCommand* const commands[] = {&command};
  if (!try_exchange(node, has_sentinels ? RedisLogin() : login_, commands, deadline_us)) {
    return false;
  }
  node.breaker.succeeded();
  const RedisEndpoint endpoint = node.endpoint;  // the node may go with the old map
  const Status status =
      has_sentinels ? adopt_primary(command.reply) : adopt_map(command.reply, endpoint);
  if (!status.ok()) report(endpoint, to_string(status.error()));
  return status.ok();
}

Status RedisLane::adopt_primary(const RespReply& reply) {
  if (reply.kind == RespKind::kError) return Error{ErrorCode::kIo, reply.text};
  std::uint16_t port = 0;
  if (reply.items.size() == 2) {
    const std::string& digits = reply.items[1].text;
    std::from_chars(digits.data(), digits.data() + digits.size(), port);
  }
  if (port == 0 || reply.items[0].text.empty()) {
    return Error{ErrorCode::kNotFound, "sentinels do not know " + options_.url.primary_name};
  }
  const Node* const before = std::exchange(primary_, nullptr);
  Node* const found = find_or_add({reply.items[0].text, port});
  if (found == nullptr) return Error{ErrorCode::kTooLarge, "too many servers"};
  primary_ = found;
  map_changes_ += found == before ? 0 : 1;
  prune({found});
  return {};
}

Status RedisLane::adopt_map(const RespReply& reply, const RedisEndpoint& asked) {
  if (reply.kind == RespKind::kError) return Error{ErrorCode::kIo, reply.text};
  STEMMA_ASSIGN_OR_RETURN(const ClusterMap map, parse_cluster_slots(reply, asked));
  // It has not met the others yet, or not any more: these may know.
  if (map.primaries.empty()) return Error{ErrorCode::kNotFound, "the node knows of no primary"};
  map_changes_ += is_as_before(map) ? 0 : 1;
  node_of_slot_.assign(kRedisSlots, nullptr);
  std::vector<Node*> kept;
  for (const auto& node : nodes_) {
    const auto& primaries = map.primaries;
    if (std::find(primaries.begin(), primaries.end(), node->endpoint) != primaries.end()) {
      kept.push_back(node.get());
    }
  }
  prune(kept);
  std::vector<Node*> primaries;
  primaries.reserve(map.primaries.size());
  for (const RedisEndpoint& endpoint : map.primaries) primaries.push_back(find_or_add(endpoint));
  for (std::size_t slot = 0; slot < kRedisSlots; ++slot) {
    const std::int16_t primary = map.primary_of_slot[slot];
    if (primary >= 0) node_of_slot_[slot] = primaries[static_cast<std::size_t>(primary)];
  }
  return {};
}

// By names: where one node went, another may lie in its place of memory.
bool RedisLane::is_as_before(const ClusterMap& map) const {
  for (std::size_t slot = 0; slot < kRedisSlots; ++slot) {
    const Node* const node = node_of_slot_[slot];
    const std::int16_t primary = map.primary_of_slot[slot];
    if ((node == nullptr) != (primary < 0)) return false;
    if (node == nullptr) continue;
    if (node->endpoint != map.primaries[static_cast<std::size_t>(primary)]) return false;
  }
  return true;
}

void RedisLane::prune(const std::vector<Node*>& kept) {
  const auto named = static_cast<std::ptrdiff_t>(named_nodes_);
  const auto gone = std::remove_if(nodes_.begin() + named, nodes_.end(), [&](const auto& node) {
    return std::find(kept.begin(), kept.end(), node.get()) == kept.end();
  });
  nodes_.erase(gone, nodes_.end());
}

void RedisLane::report(const RedisEndpoint& endpoint, std::string_view error) {
  const std::int64_t now_us = clock_.now_us();
  if (now_us < report_at_us_) return;
  report_at_us_ = now_us + kReportUs;
  STEMMA_LOG(kWarning, "tier.redis_failed", kv("server", to_string(endpoint)), kv("error", error));
}

}  // namespace stemma
