// WallClock: the time of day, for showing it to people and programs.
//
// Nothing is decided by it: it may jump (fault 27). Durations, deadlines, ages come from a Clock.
//
// Thread:     any.
// Memory:     none.
// Cost:       reading the system's clock.
// Not here:   dates as text.
#pragma once

namespace stemma {

// Seconds since 1970 began, UTC, with their fraction.
double wall_clock_seconds();

}  // namespace stemma
