// Sizes: bytes and page counts as people type them.
//
// Thread:     pure functions.
// Memory:     none.
// Cost:       none worth naming.
// Not here:   what the sizes limit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "stemma/result.h"

namespace stemma {

// "4096", "64KiB", "2GiB", "1.5GiB" → bytes. Units: B KiB MiB GiB TiB, and nothing else: a "GB"
// that means 10^9 to one person and 2^30 to another is refused. `flag` is for the error only.
Result<std::int64_t> parse_bytes(std::string_view text, std::string_view flag);

// 1536 → "1.5 KiB".
std::string format_bytes(std::int64_t bytes);

}  // namespace stemma
