#include "events/event_follower.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "base/clock.h"
#include "events/zmq_frames.h"

namespace stemma {

namespace {

using Frames = std::vector<zmq::message_t>;

// Whether there is something to receive in that time, whatever signals come in it.
Result<bool> wait_for(zmq::socket_t& socket, std::int64_t wait_us) {
  const MonotonicClock clock;
  const std::int64_t began_us = clock.now_us();
  zmq::pollitem_t item = {socket.handle(), 0, ZMQ_POLLIN, 0};
  for (;;) {
    const std::int64_t left_us = wait_us - (clock.now_us() - began_us);
    const std::chrono::milliseconds left(std::max<std::int64_t>((left_us + 999) / 1000, 0));
    const Status polled = zmq_call("poll", [&] { zmq::poll(&item, 1, left); });
    if (polled.ok()) return (item.revents & ZMQ_POLLIN) != 0;
    if (polled.error().sys_errno != EINTR) return polled.error();
  }
}

Status connect_to(const std::string& what, zmq::socket_t& socket, const std::string& endpoint) {
  return zmq_call_repeated(what, [&] { socket.connect(endpoint); });
}

EventMessage message_of(std::uint64_t sequence, const zmq::message_t& batch) {
  const auto* bytes = static_cast<const std::uint8_t*>(batch.data());
  return {sequence, {bytes, bytes + batch.size()}};
}

}  // namespace

struct EventFollower::Sockets {
  zmq::context_t context;
  zmq::socket_t subscribe;
  zmq::socket_t monitor;  // says when `subscribe` was connected
  int connects = 0;
};

Result<std::unique_ptr<EventFollower>> EventFollower::open(const EventFollowerOptions& options) {
  STEMMA_RETURN_IF_ERROR(check_address(options.endpoint));
  if (!options.replay_endpoint.empty()) {
    STEMMA_RETURN_IF_ERROR(check_address(options.replay_endpoint));
  }
  auto sockets = std::make_unique<Sockets>();
  STEMMA_RETURN_IF_ERROR(connect(options, *sockets));
  return std::unique_ptr<EventFollower>(new EventFollower(options, std::move(sockets)));
}

// With sockets of its own each time: nothing that came before is in them.
Status EventFollower::connect(const EventFollowerOptions& options, Sockets& sockets) {
  const std::string what = "cannot follow " + options.endpoint;
  const std::string monitor = "inproc://connections-" + std::to_string(++sockets.connects);
  STEMMA_RETURN_IF_ERROR(zmq_call(what, [&] {
    zmq::socket_t& socket = sockets.subscribe;
    socket = zmq::socket_t(sockets.context, zmq::socket_type::sub);
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::rcvhwm, options.queued_batches_max);
    socket.set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(kEventBatchBytesMax));
    socket.set(zmq::sockopt::subscribe, options.topic);
    set_address_family(socket, options.endpoint);
  }));
  if (zmq_socket_monitor(sockets.subscribe.handle(), monitor.c_str(), ZMQ_EVENT_CONNECTED) != 0) {
    return Error{ErrorCode::kIo, "events: connections cannot be watched", zmq_errno()};
  }
  STEMMA_RETURN_IF_ERROR(zmq_call(what, [&] {
    sockets.monitor = zmq::socket_t(sockets.context, zmq::socket_type::pair);
    sockets.monitor.set(zmq::sockopt::linger, 0);
  }));
  STEMMA_RETURN_IF_ERROR(connect_to(what, sockets.monitor, monitor));
  return connect_to(what, sockets.subscribe, options.endpoint);
}

EventFollower::EventFollower(const EventFollowerOptions& options, std::unique_ptr<Sockets> sockets)
    : options_(options), sockets_(std::move(sockets)) {}

EventFollower::~EventFollower() = default;

Result<std::optional<EventMessage>> EventFollower::receive(std::int64_t wait_us) {
  STEMMA_ASSIGN_OR_RETURN(const bool some, wait_for(sockets_->subscribe, wait_us));
  Frames frames;  // the topic, the number, the batch
  if (some) STEMMA_RETURN_IF_ERROR(receive_frames("receive", sockets_->subscribe, frames));
  // A connection is told of before the first batch that came through it.
  if (connected_again()) {
    reconnected_ = true;
    connections_ = 0;
    STEMMA_RETURN_IF_ERROR(connect(options_, *sockets_));
    return std::optional<EventMessage>();
  }
  const auto sequence = frames.size() == 3 ? try_sequence(frames[1]) : std::nullopt;
  if (!sequence.has_value() || *sequence > kSequenceMax) {
    if (!frames.empty()) ++malformed_messages_;
    return std::optional<EventMessage>();
  }
  return std::optional(message_of(*sequence, frames[2]));
}

bool EventFollower::connected_again() {
  Frames frames;
  while (receive_frames("receive", sockets_->monitor, frames).ok() && !frames.empty())
    ++connections_;
  return connections_ > 1;
}

Result<bool> EventFollower::follow(EventStream& stream, std::int64_t wait_us) {
  STEMMA_ASSIGN_OR_RETURN(const std::optional<EventMessage> message, receive(wait_us));
  if (take_reconnected()) stream.catch_up_anew();
  if (message.has_value()) stream.take(*message);
  return message.has_value();
}

Status EventFollower::replay(std::uint64_t first, FunctionRef<void(const EventMessage&)> visit) {
  if (options_.replay_endpoint.empty()) {
    return Error{ErrorCode::kUnsupported, "events: no replay endpoint was given"};
  }
  const std::string what = "cannot ask " + options_.replay_endpoint;
  zmq::socket_t socket;
  STEMMA_RETURN_IF_ERROR(zmq_call(what, [&] {
    socket = zmq::socket_t(sockets_->context, zmq::socket_type::dealer);
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(kEventBatchBytesMax));
    set_address_family(socket, options_.replay_endpoint);
  }));
  STEMMA_RETURN_IF_ERROR(connect_to(what, socket, options_.replay_endpoint));
  const SequenceFrame number = sequence_frame(first);
  zmq::message_t none;
  STEMMA_RETURN_IF_ERROR(send_frame(what, socket, none, zmq::send_flags::sndmore));
  STEMMA_RETURN_IF_ERROR(send_frame(what, socket, zmq::buffer(number), zmq::send_flags::none));
  Frames frames;  // an empty one, the topic where the server repeats it, the number, the batch
  for (;;) {
    STEMMA_ASSIGN_OR_RETURN(const bool some, wait_for(socket, options_.replay_wait_us));
    if (!some) {
      return Error{ErrorCode::kDeadline, "events: " + options_.replay_endpoint + ": no answer"};
    }
    STEMMA_RETURN_IF_ERROR(receive_frames("receive", socket, frames));
    const bool known_form = frames.size() == 3 || frames.size() == 4;
    const auto sequence = known_form ? try_sequence(frames[frames.size() - 2]) : std::nullopt;
    if (!sequence.has_value() || (*sequence > kSequenceMax && *sequence != kReplayEnd)) {
      return Error{ErrorCode::kCorrupt, "events: " + options_.replay_endpoint + ": no replay"};
    }
    if (*sequence == kReplayEnd) return {};
    visit(message_of(*sequence, frames.back()));
  }
}

}  // namespace stemma
