#include "ghost/ghost_advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace stemma {

namespace {

// The largest unit in which the size is whole, or one decimal of the largest that it fills.
std::string signed_bytes(std::int64_t bytes) {
  constexpr std::array<std::string_view, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double size = std::abs(static_cast<double>(bytes));
  std::size_t unit = 0;
  for (; size >= 1024 && unit + 1 < kUnits.size(); ++unit) size /= 1024;
  const bool whole = size == std::floor(size);
  return fmt::format("{}{:.{}f} {}", bytes < 0 ? '-' : '+', size, whole ? 0 : 1, kUnits[unit]);
}

// Nothing is "-0.0".
std::string signed_points(double points) {
  const double rounded = std::round(points * 10) / 10;
  return fmt::format("{:+.1f} points", rounded == 0 ? 0.0 : rounded);
}

}  // namespace

std::array<RoomChange, 3> advised_room_changes(const RoomChange& now) {
  const std::int64_t pages = now.capacity_pages;
  std::array<RoomChange, 3> changes = {now, now, now};
  changes[0].extra_bytes = (pages / 2 - pages) * now.page_bytes;
  changes[1].extra_bytes = pages * now.page_bytes;
  changes[2].extra_bytes = (kTimesWatched - 1) * pages * now.page_bytes;
  return changes;
}

std::optional<double> try_points_of(const GhostCurve& curve, const RoomChange& change) {
  STEMMA_CHECK(change.page_bytes >= 1, "a page has bytes");
  const std::int64_t then_pages =
      std::max<std::int64_t>(change.capacity_pages + change.extra_bytes / change.page_bytes, 0);
  if (std::max(change.capacity_pages, then_pages) > curve.capacity_pages_max()) {
    return std::nullopt;
  }
  return 100 * (curve.hit_rate(then_pages) - curve.hit_rate(change.capacity_pages));
}

std::string describe_room_change(const GhostCurve& curve, const RoomChange& change) {
  const std::optional<double> points = try_points_of(curve, change);
  return fmt::format("{} {}: {}", change.tier, signed_bytes(change.extra_bytes),
                     points.has_value() ? signed_points(*points) : "not watched");
}

std::string describe_policy_change(std::string_view policy, double hit_rate_now,
                                   double hit_rate_then) {
  return fmt::format("policy {}: {}", policy, signed_points(100 * (hit_rate_then - hit_rate_now)));
}

}  // namespace stemma
