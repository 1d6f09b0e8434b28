// RedisConnection: one connection to one server, on which commands and replies keep their places.
//
// Commands are pipelined in a window that slides: the next ones are sent while replies come, and
// never so many that the server must hold more than a few values for us. Behind them goes a PING
// with a word of its own: only if that word comes back in its place do all replies count, so that
// one reply too many, of this exchange or of the one before, shifts nothing. One deadline covers a
// whole exchange. After any error (the system's, a deadline, bytes that are not replies, a value
// longer than its frame, a reply of a kind that the command cannot have, one reply too many) the
// connection must be dropped: where the next reply begins is then unknown. Between two exchanges
// nothing may arrive; a connection on which something did is not `usable`.
//
// Thread:     one thread.
// Memory:     what its reader and writer hold (resp_reader, resp_writer).
// Cost:       one round trip an exchange, if the window is wide enough; no copy of values that are
//             sent, none of most bytes of those received.
// Not here:   which server, redirects, breakers (redis_lane), what commands mean.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "stemma/result.h"
#include "store/host_lookup.h"
#include "store/redis_url.h"
#include "store/resp_reader.h"
#include "store/resp_writer.h"
#include "store/stream_socket.h"

namespace stemma {

// What kind of reply a command may get. Any may get an error.
enum class RedisExpects : std::uint8_t { kStatusOrNil, kInteger, kBulkOrNil, kArrayOrNil };

struct RedisCommand {
  std::array<std::string_view, 6> words;
  std::size_t words_used = 0;
  std::size_t key_at = 1;  // which word is the key
  // One more word behind the key, if it is not empty.
  std::span<const std::byte> value = {};
  std::span<const std::byte> value_tail = {};
  RedisExpects expects = RedisExpects::kStatusOrNil;
  RespTarget target = {};
  std::size_t reply_bytes_max = kRespReplyBytesMax;  // of memory, without a target
  bool asking = false;                               // ASKING goes before it

  bool answered = false;
  RespReply reply = {};

  std::string_view key() const { return words[key_at]; }
};

// Who logs in, and what is made sure of.
struct RedisLogin {
  std::string user;
  std::string password;  // empty: no AUTH
  int database = 0;
  bool primary_only = false;  // kIo unless the server says that it is a primary
};

class RedisConnection final : private ByteSource {
 public:
  // Connects, logs in, chooses the database. kInvalidArgument: the server refuses the login or the
  // database, in its words; otherwise as StreamSocket and HostLookup.
  static Result<std::unique_ptr<RedisConnection>> open(const RedisEndpoint& endpoint,
                                                       const RedisLogin& login, HostLookup& lookup,
                                                       const Clock& clock,
                                                       std::int64_t deadline_us);

  // Whether an exchange may begin on it.
  bool usable() const { return !reader_.has_unread() && !writer_.pending() && socket_.quiet(); }

  // Sends the commands and sets `reply` and `answered` on each, in their order. On an error those
  // that were answered before it stay so, unless replies and commands did not match: then none is.
  // kTooLarge: the value of the first command that is not answered is longer than its target.
  Status exchange(std::span<RedisCommand* const> commands, std::int64_t deadline_us);
  // Of the last exchange: no more bytes were sent, or to be sent, before they were answered.
  std::size_t unanswered_bytes_max() const noexcept;

 private:
  RedisConnection(StreamSocket socket, const Clock& clock)
      : socket_(std::move(socket)), clock_(clock) {}

  static Result<StreamSocket> connect(const RedisEndpoint& endpoint, HostLookup& lookup,
                                      const Clock& clock, std::int64_t deadline_us);
  Status log_in(const RedisLogin& login, std::int64_t deadline_us);
  // Whether the reply to the PING is in its place.
  bool is_in_step(const RedisCommand& ping, std::span<RedisCommand* const> commands) const;
  Status exchange_in_order(std::span<RedisCommand* const> commands);
  Status read_reply(RedisCommand& command);
  void queue(const RedisCommand& command);
  Status flush();
  Result<std::size_t> read_some(std::span<std::byte> target) override;

  StreamSocket socket_;
  const Clock& clock_;
  std::int64_t deadline_us_ = 0;  // of the exchange
  std::int64_t exchanges_ = 0;
  std::size_t unanswered_bytes_max_ = 0;
  RespReader reader_{*this};
  RespWriter writer_;
};

}  // namespace stemma
