// EventFollower: a subscriber's end of an event stream: the batches as they come, and what the
// publisher still has when some are missing.
//
// It reads what vLLM, SGLang and Stemma publish. A replay is asked for on a connection of its own
// each time, so that what is left of an earlier answer never gets into the next.
//
// Thread:     one.
// Memory:     up to `queued_batches_max` batches that came and were not received yet.
// Cost:       a copy of each batch.
// Not here:   order, gaps (event_stream), what batches say (event_wire).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "events/event_stream.h"
#include "stemma/result.h"

namespace stemma {

struct EventFollowerOptions {
  std::string endpoint;         // tcp://host:port or ipc://path
  std::string replay_endpoint;  // empty: what is missing is lost
  std::string topic;            // only batches whose topic begins so
  int queued_batches_max = 100'000;
  std::int64_t replay_wait_us = 5'000'000;  // for each batch of a replay, at most
};

class EventFollower final : public ReplaySource {
 public:
  // kInvalidArgument or kIo naming the endpoint. That nobody listens there is no error: whoever
  // comes to listen there is followed.
  static Result<std::unique_ptr<EventFollower>> open(const EventFollowerOptions& options);
  ~EventFollower() override;

  // The next batch; nullopt if none came in that time. What is no batch is counted and passed over,
  // and so is what came through a connection that broke and was not received by then.
  Result<std::optional<EventMessage>> receive(std::int64_t wait_us);
  // Whether the publisher was connected to anew since the last call: what it said meanwhile is
  // missing, and it may be another, with the same numbers.
  bool take_reconnected() noexcept { return std::exchange(reconnected_, false); }

  // Receives one batch, if there is one in that time, and gives it to the stream, which catches up
  // after a new connection. Whether there was one.
  Result<bool> follow(EventStream& stream, std::int64_t wait_us);

  Status replay(std::uint64_t first, FunctionRef<void(const EventMessage&)> visit) override;

  std::int64_t malformed_messages() const noexcept { return malformed_messages_; }

 private:
  struct Sockets;
  static Status connect(const EventFollowerOptions& options, Sockets& sockets);
  bool connected_again();
  explicit EventFollower(const EventFollowerOptions& options, std::unique_ptr<Sockets> sockets);

  EventFollowerOptions options_;
  std::unique_ptr<Sockets> sockets_;
  std::int64_t connections_ = 0;  // of the socket there is now
  bool reconnected_ = false;
  std::int64_t malformed_messages_ = 0;
};

}  // namespace stemma
