// ReplayPlot: hit rate against capacity above, hits over time below, drawn by gnuplot.
//
// Thread:     main.
// Memory:     the curves, once more as text.
// Cost:       one run of gnuplot.
// Not here:   the rates (replay/).
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stemma/result.h"

namespace stemma {

using RatePoints = std::vector<std::pair<double, double>>;  // place, hit rate

struct PlotCurve {
  std::string title;
  RatePoints points;
};

struct ReplayCurves {
  std::span<const PlotCurve> by_capacity;  // places in pages; may be empty
  std::span<const PlotCurve> by_minute;    // places in minutes; may be empty
};

// Whether plots can be drawn into that file, asked before a long replay: the errors of plot_replay
// but that there are no points; kInvalidArgument where it is something else than a file. Changes
// nothing.
Status check_plot_file(const std::string& path);

// Writes an SVG of what there is. kUnsupported if there is no gnuplot; kInvalidArgument without
// points; kIo if gnuplot cannot write all of the file, which is then as it was. Titles may hold any
// text.
Status plot_replay(const std::string& path, const std::string& title, const ReplayCurves& curves);

}  // namespace stemma
