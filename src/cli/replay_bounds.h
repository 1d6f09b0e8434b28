// ReplayBounds: what caches that know the trace would hit at each capacity, one request after
// another, for the policies that do not know it to be seen against. They refuse no request: a
// replay that does may have a higher hit rate; so may one in which a request that waits for a
// prefix finds outputs of those that passed it by. Tiers below the device count as a part of its
// capacity: what they have is found too.
//
// Thread:     main.
// Memory:     the whole trace (TraceFuture) and an oracle at a time; dropped, unless it is wanted
//             by all means, where the trace has more than kBoundedPagesMax pages.
// Cost:       an oracle's run a kind and capacity.
// Not here:   the oracles (replay/oracle).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "cli/replay_flags.h"
#include "replay/oracle.h"
#include "replay/trace_future.h"

namespace stemma {

// Some 400 MB if all are different.
inline constexpr std::int64_t kBoundedPagesMax = std::int64_t{1} << 21;

class ReplayBounds {
 public:
  enum class Wish { kOff, kIfCheap, kOn };
  using HitRates = std::array<double, std::size(kOracleKinds)>;  // in that order

  explicit ReplayBounds(Wish wish, std::int64_t pages_below_device = 0)
      : wish_(wish), pages_below_device_(pages_below_device) {}
  // The wish that --bounds, one of "on", "off" and "auto", stands for.
  static Wish wish_of(const ReplayFlags& flags);

  // The trace is held, for run, and nothing is to stand beside the policies.
  void hide() { hidden_ = true; }

  // The trace's next request.
  void add(const TraceRequest& request);
  // Whether there are any to show.
  bool shown() const { return wish_ != Wish::kOff && !hidden_; }
  // One line on standard error if they were wanted and given up.
  void warn_if_dropped(const std::string& trace) const;
  // The hit rates at a capacity of the device, once the trace is whole; nullopt without bounds.
  std::optional<HitRates> hit_rates(std::int64_t capacity_pages);
  // Appends `bounds` with the rates at a capacity, if there are any, to an object.
  void append_to(nlohmann::ordered_json& line, std::int64_t capacity_pages);
  // One oracle's whole report. REQUIRES: the wish was kOn.
  ReplayReport run(OracleKind kind, std::int64_t capacity_pages) const;

 private:
  Wish wish_;
  std::int64_t pages_below_device_;
  bool hidden_ = false;
  bool dropped_ = false;
  std::int64_t pages_ = 0;  // looked up or put in
  TraceFuture future_;
  std::map<std::int64_t, HitRates> known_;  // by capacity
};

}  // namespace stemma
