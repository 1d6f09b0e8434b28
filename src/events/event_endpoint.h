// Addresses of event streams, as ZeroMQ has them: tcp://HOST:PORT, ipc://PATH.
//
// Thread:     pure functions.
// Memory:     none.
// Cost:       none worth naming.
// Not here:   sockets (event_publisher, event_follower).
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

#include "stemma/result.h"

namespace stemma {

// kInvalidArgument, which begins with the address, unless it says how it is reached, and one of tcp
// ends in a port, or in * for any that is free. Of "99999" the library would take 16 bits, of "80x"
// the digits.
inline Status check_event_endpoint(std::string_view endpoint) {
  const std::string text(endpoint);
  if (endpoint.find("://") == std::string_view::npos) {
    return Error{ErrorCode::kInvalidArgument, text + ": no address such as tcp://HOST:PORT"};
  }
  if (!endpoint.starts_with("tcp://")) return {};
  const std::string_view port = endpoint.substr(endpoint.rfind(':') + 1);
  std::uint16_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (port == "*" || (error == std::errc() && end == port.data() + port.size())) return {};
  return Error{ErrorCode::kInvalidArgument, text + ": its port must be from 0 to 65535"};
}

}  // namespace stemma
