// What capture_writer writes and capture_parser wants in the first line of a capture.
//
// Thread:     constants.
// Memory:     none.
// Cost:       none.
// Not here:   the lines (capture_writer).
#pragma once

#include <cstdint>
#include <string_view>

namespace stemma {

inline constexpr std::string_view kCaptureFormat = "stemma-capture";
inline constexpr std::int64_t kCaptureVersion = 1;

}  // namespace stemma
