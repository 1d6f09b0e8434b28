// GhostRequest: a whole request as ghosts see it, from its look-up to its end.
//
// Thread:     a value.
// Memory:     that of its owner: it refers to hashes.
// Cost:       none.
// Not here:   where requests come from (engine/, replay/).
#pragma once

#include <cstdint>
#include <span>

#include "stemma/prefix_cache.h"

namespace stemma {

struct GhostRequest {
  std::span<const std::int64_t> page_hashes;         // looked up, in order
  std::span<const std::int64_t> output_page_hashes;  // follow them once it has ended
  std::int64_t now_us = 0;                           // on a clock of the requests' own
  RequestEnd end;
};

}  // namespace stemma
