#include "store/redis_server_state.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace stemma {

namespace {

// Servers look ten times a second whose time is over.
constexpr std::string_view kWaitMs = "50";
constexpr std::int64_t kWaitUsMax = 250'000;
constexpr int kWaitsMax = 5;

// Of a line `name:value`; nothing where there is none.
std::string_view value_of(std::string_view info, const std::string& name) {
  const std::string line = "\n" + name + ":";
  const std::size_t at = info.find(line);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = info.substr(at + line.size());
  return rest.substr(0, rest.find('\r'));
}

std::int64_t number_of(std::string_view digits) {
  std::int64_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

// How far a replica has come: "ip=10.0.0.7,port=6379,state=online,offset=1234,lag=0". One that is
// given its first copy, or is not told of, has nothing.
std::int64_t offset_of(std::string_view replica) {
  constexpr std::string_view kOffset = ",offset=";
  const std::size_t at = replica.find(kOffset);
  if (at == std::string_view::npos || replica.find(",state=online,") == std::string_view::npos) {
    return -1;
  }
  return number_of(replica.substr(at + kOffset.size()));
}

// The state when `replicas` of them have what was last written on the connection, or the time is
// over. A server wakes its replicas for whoever waits for more of them than have answered.
std::optional<RedisServerState> wait_and_ask(RedisLane& servers, const RedisEndpoint& server,
                                             std::int64_t replicas, std::int64_t deadline_us) {
  const std::string replicas_text = std::to_string(replicas);
  RedisCommand wait;
  wait.words = {"WAIT", replicas_text, kWaitMs};
  wait.words_used = 3;
  wait.expects = RedisExpects::kInteger;
  std::array<RedisCommand, 2> commands = {wait, server_state_question()};
  servers.run_at(server, commands, deadline_us);
  return server_state(commands[1]);
}

}  // namespace

RedisCommand server_state_question() {
  RedisCommand command;
  command.words = {"INFO"};
  command.words_used = 1;
  command.expects = RedisExpects::kBulkOrNil;
  return command;
}

std::optional<RedisServerState> server_state(const RedisCommand& answered) {
  if (!answered.answered || answered.reply.kind != RespKind::kBulk) return std::nullopt;
  const std::string_view info = answered.reply.text;
  RedisServerState state;
  state.life = value_of(info, "run_id");
  state.life += value_of(info, "master_replid");
  state.written = number_of(value_of(info, "master_repl_offset"));
  state.replicas = number_of(value_of(info, "connected_slaves"));
  state.replicas_have = state.written;
  const std::string_view room = value_of(info, "maxmemory");
  if (!room.empty()) state.room_bytes = number_of(room);
  state.eviction = value_of(info, "maxmemory_policy");
  for (std::int64_t i = 0; i < state.replicas; ++i) {
    const std::int64_t offset = offset_of(value_of(info, "slave" + std::to_string(i)));
    state.replicas_have = std::min(state.replicas_have, offset);
    if (offset < 0) break;
  }
  return state;
}

std::optional<RedisServerState> ask_server_state(RedisLane& servers, const RedisEndpoint& server,
                                                 std::int64_t deadline_us) {
  RedisCommand question = server_state_question();
  servers.run_at(server, {&question, 1}, deadline_us);
  return server_state(question);
}

bool wait_for_replicas(RedisLane& servers, const RedisEndpoint& server, const Clock& clock,
                       std::int64_t deadline_us) {
  const auto begin = ask_server_state(servers, server, deadline_us);
  if (!begin) return false;
  if (begin->replicas_follow(begin->written)) return true;
  for (int waits = 0; waits < kWaitsMax; ++waits) {
    if (clock.now_us() + kWaitUsMax >= deadline_us) return false;
    // The first wait ends early where all was written here; one for more than there are never does.
    const std::int64_t replicas = begin->replicas + (waits == 0 ? 0 : 1);
    const auto now = wait_and_ask(servers, server, replicas, deadline_us);
    if (!now || now->life != begin->life) return false;
    if (now->replicas_follow(begin->written)) return true;
  }
  return false;
}

}  // namespace stemma
