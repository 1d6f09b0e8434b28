// Ranks are taken before any page of the request moves: that is when the request looks them up.
#include "ghost/ghost_curve.h"

#include <algorithm>
#include <optional>
#include <ranges>
#include <string>

#include "base/check.h"

namespace stemma {

namespace {

// Samples vary in number: a quarter more than fit on average.
std::int64_t watches_max(const GhostCurveOptions& options) {
  constexpr std::int64_t kSpare = 64;
  const std::int64_t fitting = options.capacity_pages_max / options.pages_per_sample;
  return fitting + fitting / 4 + kSpare;
}

Error out_of_range(const std::string& name, std::int64_t most, std::int64_t got) {
  return {ErrorCode::kInvalidArgument, name + " must be from 1 to " + std::to_string(most) +
                                           " (got " + std::to_string(got) + ")"};
}

}  // namespace

Status GhostCurve::check(const GhostCurveOptions& options) {
  if (options.capacity_pages_max < 1 || options.capacity_pages_max > kCapacityPagesMax) {
    return out_of_range("capacity_pages_max", kCapacityPagesMax, options.capacity_pages_max);
  }
  if (options.pages_per_sample < 1 || options.pages_per_sample > kPagesPerSampleMax) {
    return out_of_range("pages_per_sample", kPagesPerSampleMax, options.pages_per_sample);
  }
  return {};
}

GhostCurve::GhostCurve(const GhostCurveOptions& options)
    : options_(options),
      stack_(watches_max(options)),
      random_(options.seed),
      hits_by_rank_(static_cast<std::size_t>(watches_max(options))) {
  STEMMA_CHECK(check(options).ok(), "options were checked");
  seen_.reserve(static_cast<std::size_t>(options.request_pages_max));
  drawn_.reserve(static_cast<std::size_t>(options.request_pages_max));
}

void GhostCurve::feed(const GhostRequest& request) {
  look_up(request.page_hashes);
  if (request.output_page_hashes.empty()) return;
  text_.assign(request.page_hashes.begin(), request.page_hashes.end());
  text_.insert(text_.end(), request.output_page_hashes.begin(), request.output_page_hashes.end());
  insert(text_);
}

void GhostCurve::use(std::span<const std::int64_t> page_hashes, bool counts) {
  seen_.clear();
  drawn_.clear();
  for (const std::int64_t hash : page_hashes) {
    if (draws_next_page()) drawn_.push_back(hash);
    const std::optional<std::int64_t> rank = stack_.try_rank(hash);
    if (!rank.has_value()) continue;
    seen_.push_back(hash);
    if (counts) hits_by_rank_[static_cast<std::size_t>(*rank)] += 1;
  }
  if (counts) lookup_pages_ += static_cast<double>(page_hashes.size());
  for (const std::int64_t hash : seen_) stack_.remove(hash);
  for (const std::int64_t hash : std::views::reverse(drawn_)) {
    stack_.remove(hash);  // of a page that the request names twice, the first place counts
    stack_.push(hash);
  }
}

bool GhostCurve::draws_next_page() {
  if (stride_left_pages_ == 0) {
    stride_left_pages_ = options_.pages_per_sample;
    until_sample_pages_ = random_.below(options_.pages_per_sample);
  }
  --stride_left_pages_;
  return until_sample_pages_-- == 0;
}

void GhostCurve::fade(double share) {
  STEMMA_CHECK(share >= 0 && share <= 1, "a share");
  for (double& hits : hits_by_rank_) hits *= share;
  lookup_pages_ *= share;
}

// A watched page of rank r stands for pages that had from r to r + 1 strides above them.
double GhostCurve::hit_rate(std::int64_t capacity_pages) const {
  if (lookup_pages_ <= 0) return 0;
  const auto stride = static_cast<double>(options_.pages_per_sample);
  const std::int64_t within = std::min(capacity_pages, options_.capacity_pages_max);
  const double watches = static_cast<double>(std::max<std::int64_t>(within, 0)) / stride;
  const auto whole = std::min(static_cast<std::size_t>(watches), hits_by_rank_.size());
  double hits = 0;
  for (std::size_t rank = 0; rank < whole; ++rank) hits += hits_by_rank_[rank];
  if (whole < hits_by_rank_.size()) {
    hits += hits_by_rank_[whole] * (watches - static_cast<double>(whole));
  }
  return std::min(1.0, hits * stride / lookup_pages_);
}

}  // namespace stemma
