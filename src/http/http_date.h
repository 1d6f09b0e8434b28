// HttpDate: the time of day as HTTP's headers say it (RFC 9110, 5.6.7), written once a second.
//
// Thread:     one at a time.
// Memory:     29 bytes.
// Cost:       a comparison; the text once a second.
// Not here:   reading a clock (base/wall_clock), other headers (response_head).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace stemma {

class HttpDate {
 public:
  // Of so many seconds since 1970 began, UTC: "Sun, 06 Nov 1994 08:49:37 GMT". Good until the next
  // call.
  std::string_view at(std::int64_t seconds);

 private:
  std::int64_t seconds_ = 0;
  std::string text_;  // of seconds_; empty: none yet
};

}  // namespace stemma
