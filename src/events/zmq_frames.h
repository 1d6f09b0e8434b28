// What both ends of an event stream do with ZeroMQ: errors as values, sequence numbers as bytes.
//
// Thread:     pure.
// Memory:     none.
// Cost:       that of the call.
// Not here:   which sockets there are (event_publisher, event_follower).
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "events/event_endpoint.h"
#include "stemma/result.h"

namespace stemma {

// Runs `call`, which uses the library; what it throws is an error that names `what`.
template <typename Call>
Status zmq_call(std::string_view what, Call&& call) {
  try {
    call();
  } catch (const zmq::error_t& error) {
    const std::string detail = "events: " + std::string(what);
    // Of its own numbers the system, which says the others in a line, knows nothing.
    if (error.num() < ZMQ_HAUSNUMERO) return Error{ErrorCode::kIo, detail, error.num()};
    return Error{ErrorCode::kIo, detail + ": " + error.what()};
  }
  return {};
}

// The same for one call of the library's that a signal ends before it has done anything: it is made
// again. A message of several frames takes as many calls: given up between two of them it would
// begin the next one's.
template <typename Call>
Status zmq_call_repeated(std::string_view what, Call&& call) {
  for (;;) {
    Status done = zmq_call(what, call);
    if (done.ok() || done.error().sys_errno != EINTR) return done;
  }
}

// `frame`: a message_t, which is empty afterwards, or a const_buffer.
template <typename Frame>
Status send_frame(std::string_view what, zmq::socket_t& socket, Frame&& frame,
                  zmq::send_flags flags) {
  return zmq_call_repeated(what, [&] { socket.send(frame, flags); });
}

// More than any message has that is understood.
inline constexpr std::size_t kFramesMax = 5;

// The frames of the message that has come, the first kFramesMax of them; none: there is no message.
inline Status receive_frames(std::string_view what, zmq::socket_t& socket,
                             std::vector<zmq::message_t>& frames) {
  frames.clear();
  for (bool more = true; more;) {
    zmq::message_t frame;
    bool some = false;
    STEMMA_RETURN_IF_ERROR(zmq_call_repeated(
        what, [&] { some = socket.recv(frame, zmq::recv_flags::dontwait).has_value(); }));
    if (!some) return {};
    more = frame.more();
    if (frames.size() < kFramesMax) frames.push_back(std::move(frame));
  }
  return {};
}

// check_event_endpoint, as errors of events are said.
inline Status check_address(std::string_view endpoint) {
  const Status known = check_event_endpoint(endpoint);
  if (known.ok()) return {};
  return Error{known.error().code, "events: " + known.error().detail};
}

// Before it is bound or connected. To the library an address of IPv6, which stands in brackets, is
// none unless it is asked for; names and "*" mean IPv4 as long as it is not.
inline void set_address_family(zmq::socket_t& socket, std::string_view endpoint) {
  socket.set(zmq::sockopt::ipv6, endpoint.starts_with("tcp://["));
}

// 8 bytes, most significant first.
using SequenceFrame = std::array<std::uint8_t, 8>;

inline SequenceFrame sequence_frame(std::uint64_t sequence) noexcept {
  SequenceFrame frame;
  for (std::size_t i = 0; i < frame.size(); ++i) {
    frame[i] = static_cast<std::uint8_t>(sequence >> (8 * (frame.size() - 1 - i)));
  }
  return frame;
}

// What stands behind the last batch of a replay: -1, with an empty batch.
inline constexpr std::uint64_t kReplayEnd = ~std::uint64_t{0};

// nullopt: not 8 bytes.
inline std::optional<std::uint64_t> try_sequence(const zmq::message_t& frame) noexcept {
  if (frame.size() != sizeof(std::uint64_t)) return std::nullopt;
  std::uint64_t sequence = 0;
  for (const std::uint8_t byte :
       std::span(static_cast<const std::uint8_t*>(frame.data()), frame.size())) {
    sequence = sequence << 8 | byte;
  }
  return sequence;
}

}  // namespace stemma
