// ReplayProgress: one line that says how far a long replay is, at most twice a second. On a
// terminal it stays in its place and goes when the replay ends.
//
// Thread:     main.
// Memory:     a few words.
// Cost:       a look at the clock for every 64th call.
// Not here:   results.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "base/clock.h"

namespace stemma {

class ReplayProgress {
 public:
  enum class Show { kNever, kLines, kInPlace };
  // Lines move only every so many calls, which are as many as requests or steps.
  static constexpr std::int64_t kCallsPerLook = 64;

  // How far a replay is.
  struct State {
    std::int64_t read_bytes = 0;
    std::int64_t requests = 0;
    double hit_rate = 0;
    std::string lane;  // which of several replays
  };

  // In place where standard error is a terminal; otherwise lines if they are `wanted`.
  static Show choose(bool wanted);

  // Writes to `out`; the share read is of `size_bytes`, 0 if that is not known. Both references
  // must outlive this.
  ReplayProgress(const Clock& clock, std::ostream& out, Show show, std::int64_t size_bytes);
  ~ReplayProgress();
  ReplayProgress(const ReplayProgress&) = delete;
  ReplayProgress& operator=(const ReplayProgress&) = delete;

  // Shows `state()`, which is asked for only then, if it is time.
  template <typename MakeState>
  void update(MakeState&& state) {
    if (show_ != Show::kNever && ++calls_ % kCallsPerLook == 0 && due()) write(state());
  }

 private:
  bool due();
  void write(const State& state);
  std::string share_text(std::int64_t read_bytes) const;

  const Clock& clock_;
  std::ostream& out_;
  Show show_;
  std::int64_t size_bytes_;
  bool written_ = false;
  std::int64_t calls_ = 0;
  std::int64_t next_us_;
};

}  // namespace stemma
