#include "store/redis_connection.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"

namespace stemma {

namespace {

// The window: commands that are sent and not answered, and bytes of values on their way. A server
// keeps its replies in memory until we take them; the value in hand always fits.
constexpr std::size_t kWindowCommands = 128;
constexpr std::size_t kWindowBytes = std::size_t{4} << 20;
constexpr std::size_t kPiecesOfASend = 64;
// Names, numbers and scripts of one command: values are counted besides.
constexpr std::size_t kWordsBytesMax = 1 << 10;

std::size_t bytes_moved(const RedisCommand& command) {
  return command.target.size_bytes() + command.value.size() + command.value_tail.size();
}

bool is_expected(RespKind kind, RedisExpects expects) {
  switch (expects) {
    case RedisExpects::kStatusOrNil:
      return kind == RespKind::kStatus || kind == RespKind::kNil;
    case RedisExpects::kInteger:
      return kind == RespKind::kInteger;
    case RedisExpects::kBulkOrNil:
      return kind == RespKind::kBulk || kind == RespKind::kNil;
    case RedisExpects::kArrayOrNil:
      return kind == RespKind::kArray || kind == RespKind::kNil;
  }
  return false;
}

template <typename... Words>
RedisCommand command_of(RedisExpects expects, const Words&... words) {
  RedisCommand command;
  command.words = {std::string_view(words)...};
  command.words_used = sizeof...(words);
  command.expects = expects;
  return command;
}

}  // namespace

Result<std::unique_ptr<RedisConnection>> RedisConnection::open(const RedisEndpoint& endpoint,
                                                               const RedisLogin& login,
                                                               HostLookup& lookup,
                                                               const Clock& clock,
                                                               std::int64_t deadline_us) {
  STEMMA_ASSIGN_OR_RETURN(StreamSocket socket, connect(endpoint, lookup, clock, deadline_us));
  std::unique_ptr<RedisConnection> connection(new RedisConnection(std::move(socket), clock));
  STEMMA_RETURN_IF_ERROR(connection->log_in(login, deadline_us));
  return connection;
}

Result<StreamSocket> RedisConnection::connect(const RedisEndpoint& endpoint, HostLookup& lookup,
                                              const Clock& clock, std::int64_t deadline_us) {
  STEMMA_ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses,
                          lookup.resolve(endpoint, clock, deadline_us));
  // "localhost" has two, and servers listen at one of them; elsewhere IPv6 may lead nowhere.
  return StreamSocket::connect_any(addresses, clock, deadline_us);
}

Status RedisConnection::log_in(const RedisLogin& login, std::int64_t deadline_us) {
  const std::string database = std::to_string(login.database);
  std::vector<RedisCommand> commands;
  if (!login.password.empty()) {
    commands.push_back(
        login.user.empty()
            ? command_of(RedisExpects::kStatusOrNil, "AUTH", login.password)
            : command_of(RedisExpects::kStatusOrNil, "AUTH", login.user, login.password));
  }
  if (login.database != 0) {
    commands.push_back(command_of(RedisExpects::kStatusOrNil, "SELECT", database));
  }
  if (login.primary_only) commands.push_back(command_of(RedisExpects::kArrayOrNil, "ROLE"));
  std::vector<RedisCommand*> order;
  order.reserve(commands.size());
  for (RedisCommand& command : commands) order.push_back(&command);
  STEMMA_RETURN_IF_ERROR(exchange(order, deadline_us));
  for (const RedisCommand& command : commands) {
    if (command.reply.kind == RespKind::kError) {
      // A server that is loading or busy says so here already; only the others are for a person.
      const bool refused = !command.reply.text.starts_with("LOADING");
      return Error{refused ? ErrorCode::kInvalidArgument : ErrorCode::kIo,
                   std::string(command.words[0]) + ": " + command.reply.text};
    }
  }
  if (login.primary_only) {
    const std::vector<RespReply>& role = commands.back().reply.items;
    if (role.empty() || role[0].text != "master") {
      return Error{ErrorCode::kIo, "the server is no primary"};
    }
  }
  return {};
}

Status RedisConnection::exchange(std::span<RedisCommand* const> commands,
                                 std::int64_t deadline_us) {
  if (commands.empty()) return {};
  deadline_us_ = deadline_us;
  for (RedisCommand* const command : commands) command->answered = false;
  const std::string word = "stemma-" + std::to_string(++exchanges_);
  RedisCommand ping = command_of(RedisExpects::kBulkOrNil, "PING", word);
  std::vector<RedisCommand*> order(commands.begin(), commands.end());
  order.push_back(&ping);
  STEMMA_RETURN_IF_ERROR(exchange_in_order(order));
  if (is_in_step(ping, commands)) return {};
  for (RedisCommand* const command : commands) command->answered = false;
  return Error{ErrorCode::kCorrupt, "reply: not as many as commands"};
}

std::size_t RedisConnection::unanswered_bytes_max() const noexcept {
  return unanswered_bytes_max_ + kWindowCommands * kWordsBytesMax;
}

bool RedisConnection::is_in_step(const RedisCommand& ping,
                                 std::span<RedisCommand* const> commands) const {
  if (reader_.has_unread() || writer_.pending()) return false;
  if (ping.reply.kind != RespKind::kError) return ping.reply.text == ping.words[1];
  // A server that is loading, or wants a password, says so to every command.
  return std::all_of(commands.begin(), commands.end(), [](const RedisCommand* command) {
    return command->reply.kind == RespKind::kError;
  });
}

Status RedisConnection::exchange_in_order(std::span<RedisCommand* const> commands) {
  std::size_t queued = 0;
  std::size_t window_bytes = 0;
  unanswered_bytes_max_ = 0;
  for (std::size_t i = 0; i < commands.size(); ++i) {
    // Half a window at a time, so that a system call sends several commands.
    if (queued - i <= kWindowCommands / 2 && window_bytes <= kWindowBytes / 2) {
      while (queued < commands.size() && queued - i < kWindowCommands &&
             (queued == i || window_bytes + bytes_moved(*commands[queued]) <= kWindowBytes)) {
        window_bytes += bytes_moved(*commands[queued]);
        queue(*commands[queued++]);
        unanswered_bytes_max_ = std::max(unanswered_bytes_max_, window_bytes);
      }
    }
    STEMMA_RETURN_IF_ERROR(read_reply(*commands[i]));
    window_bytes -= bytes_moved(*commands[i]);
  }
  return {};
}

void RedisConnection::queue(const RedisCommand& command) {
  if (command.asking) {
    writer_.begin(1);
    writer_.add("ASKING");
  }
  const bool has_value = !command.value.empty();
  writer_.begin(command.words_used + (has_value ? 1 : 0));
  for (std::size_t i = 0; i < command.words_used; ++i) {
    writer_.add(command.words[i]);
    if (has_value && i == command.key_at) writer_.add_pointed(command.value, command.value_tail);
  }
}

Status RedisConnection::read_reply(RedisCommand& command) {
  if (command.asking) {
    RespReply asking;
    STEMMA_RETURN_IF_ERROR(reader_.read({}, asking));
    if (asking.kind != RespKind::kStatus) return Error{ErrorCode::kCorrupt, "reply: to ASKING"};
  }
  command.reply = RespReply();
  STEMMA_RETURN_IF_ERROR(reader_.read(command.target, command.reply, command.reply_bytes_max));
  if (command.reply.kind != RespKind::kError && !is_expected(command.reply.kind, command.expects)) {
    return Error{ErrorCode::kCorrupt,
                 "reply: of another kind than " + std::string(command.words[0]) + " has"};
  }
  command.answered = true;
  return {};
}

Status RedisConnection::flush() {
  while (writer_.pending()) {
    iovec pieces[kPiecesOfASend];
    const std::size_t filled = writer_.gather(pieces);
    STEMMA_ASSIGN_OR_RETURN(const std::size_t sent,
                            socket_.try_send(std::span(pieces).first(filled)));
    if (sent == 0) return {};
    writer_.sent(sent);
  }
  return {};
}

Result<std::size_t> RedisConnection::read_some(std::span<std::byte> target) {
  while (true) {
    STEMMA_RETURN_IF_ERROR(flush());
    STEMMA_ASSIGN_OR_RETURN(const std::size_t received, socket_.try_receive(target));
    if (received != 0) {
      // A peer that keeps sending must not keep us beyond the deadline.
      if (clock_.now_us() >= deadline_us_) return Error{ErrorCode::kDeadline, "no answer in time"};
      return received;
    }
    const auto what =
        writer_.pending() ? StreamSocket::Wait::kReadableOrWritable : StreamSocket::Wait::kReadable;
    STEMMA_RETURN_IF_ERROR(socket_.wait(what, clock_, deadline_us_));
  }
}

}  // namespace stemma
