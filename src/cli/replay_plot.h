// ReplayPlot: curves of hit rate against capacity, drawn by gnuplot.
//
// Thread:     main.
// Memory:     the curves.
// Cost:       one run of gnuplot.
// Not here:   the rates (replay/).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stemma/result.h"

namespace stemma {

// One policy's hit rates, by capacity in pages.
struct HitRateCurve {
  std::string policy;
  std::vector<std::pair<std::int64_t, double>> points;
};

// Writes an SVG. kUnsupported if there is no gnuplot; kInvalidArgument without points; kIo if
// gnuplot cannot write the file. Titles may hold any text.
Status plot_hit_rates(const std::string& path, const std::string& title,
                      std::span<const HitRateCurve> curves);

}  // namespace stemma
