#include "cli/replay_progress.h"

#include <fmt/format.h>
#include <unistd.h>

namespace stemma {

namespace {

constexpr std::int64_t kEveryUs = 500'000;
constexpr const char* kEraseLine = "\r\033[K";

}  // namespace

ReplayProgress::Show ReplayProgress::choose(bool wanted) {
  if (isatty(STDERR_FILENO) != 0) return Show::kInPlace;
  return wanted ? Show::kLines : Show::kNever;
}

ReplayProgress::ReplayProgress(const Clock& clock, std::ostream& out, Show show,
                               std::int64_t size_bytes)
    : clock_(clock),
      out_(out),
      show_(show),
      size_bytes_(size_bytes),
      next_us_(clock.now_us() + kEveryUs) {}

ReplayProgress::~ReplayProgress() {
  if (written_ && show_ == Show::kInPlace) out_ << kEraseLine << std::flush;
}

bool ReplayProgress::due() {
  const std::int64_t now_us = clock_.now_us();
  if (now_us < next_us_) return false;
  next_us_ = now_us + kEveryUs;
  return true;
}

void ReplayProgress::write(const State& state) {
  const bool in_place = show_ == Show::kInPlace;
  out_ << (in_place ? kEraseLine : "")
       << fmt::format("stemma: {}: {}{} requests, {:.1f}% hits", state.lane,
                      share_text(state.read_bytes), state.requests, 100 * state.hit_rate)
       << (in_place ? "" : "\n") << std::flush;
  written_ = true;
}

std::string ReplayProgress::share_text(std::int64_t read_bytes) const {
  if (size_bytes_ == 0) return "";
  const double share = static_cast<double>(read_bytes) / static_cast<double>(size_bytes_);
  return fmt::format("{:.0f}% read, ", 100 * share);
}

}  // namespace stemma
