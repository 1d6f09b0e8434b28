// Ghost advice: what ghosts found, as sentences for people and numbers for metrics.
//
// Thread:     pure functions.
// Memory:     what they return.
// Cost:       O(watches) a point of a curve.
// Not here:   where sentences are shown (cli/, server/).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ghost/ghost_curve.h"

namespace stemma {

// More room, or less, for one tier of lru pages.
struct RoomChange {
  std::string_view tier;            // "device"
  std::int64_t capacity_pages = 0;  // now, that of the tiers above it included
  std::int64_t page_bytes = 0;      // of keys and values; >= 1
  std::int64_t extra_bytes = 0;     // negative: less room
};

// The changes that advice is about: half of the room less, as much again, and three times as much.
// `now` is the room as it is: its extra_bytes are not looked at.
std::array<RoomChange, 3> advised_room_changes(const RoomChange& now);

// What a curve has to watch for them, as a multiple of the present capacity.
inline constexpr std::int64_t kTimesWatched = 4;

// Percentage points of hit rate that the change is worth; nullopt where it leads beyond what is
// watched. REQUIRES: page_bytes >= 1.
std::optional<double> try_points_of(const GhostCurve& curve, const RoomChange& change);

// "device +2 GiB: +6.1 points"; "device +64 GiB: not watched".
std::string describe_room_change(const GhostCurve& curve, const RoomChange& change);

// "policy slru: -3.4 points".
std::string describe_policy_change(std::string_view policy, double hit_rate_now,
                                   double hit_rate_then);

}  // namespace stemma
