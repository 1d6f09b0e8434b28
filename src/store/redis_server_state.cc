#include "store/redis_server_state.h"

namespace stemma {

namespace {

// Of a line `name:value`; nothing where there is none.
std::string_view value_of(std::string_view info, const std::string& name) {
  const std::string line = "\n" + name + ":";
  const std::size_t at = info.find(line);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = info.substr(at + line.size());
  return rest.substr(0, rest.find('\r'));
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
  return state;
}

std::optional<RedisServerState> ask_server_state(RedisLane& servers, const RedisEndpoint& server,
                                                 std::int64_t deadline_us) {
  RedisCommand question = server_state_question();
  servers.run_at(server, {&question, 1}, deadline_us);
  return server_state(question);
}

}  // namespace stemma
