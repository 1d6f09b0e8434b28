// --ghost-rate: the share of page uses that ghosts watch, as it is typed; and ghosts of the
// capacities that were typed.
//
// Thread:     pure functions.
// Memory:     the ghosts'.
// Cost:       none.
// Not here:   what ghosts do (ghost/).
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>

#include "cli/flag_errors.h"
#include "ghost/ghost_curve.h"
#include "ghost/ghost_panel.h"
#include "stemma/result.h"

namespace stemma {

// kInvalidArgument, naming the flag, unless 2^-20 <= rate <= 1.
inline Status check_ghost_rate(double rate) {
  constexpr double kLeast = 1.0 / static_cast<double>(GhostCurve::kPagesPerSampleMax);
  if (rate >= kLeast && rate <= 1) return {};
  return Error{ErrorCode::kInvalidArgument, "--ghost-rate must be from 2^-20 to 1"};
}

// One page in how many. REQUIRES: check_ghost_rate(rate) is ok.
inline std::int64_t pages_per_sample_of(double rate) {
  return std::llround(1 / rate);
}

// The ghosts of policies that are known. What is wrong with them then is their number of pages: the
// error names --capacity-pages.
inline Result<std::unique_ptr<GhostPanel>> open_ghost_panel(const GhostPanelOptions& options) {
  constexpr const char* kFlag = "--capacity-pages";
  return or_too_large(kFlag, "pages", [&]() -> Result<std::unique_ptr<GhostPanel>> {
    auto opened = GhostPanel::open(options);
    if (!opened.ok()) return named(kFlag, opened.error());
    return opened;
  });
}

}  // namespace stemma
