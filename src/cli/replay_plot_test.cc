// Plots without gnuplot. With it: tests/cli/replay_test.cc.
#include "cli/replay_plot.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/temp_directory.h"

namespace stemma {
namespace {

// Programs are looked for nowhere.
class WithoutPrograms {
 public:
  WithoutPrograms() { ::setenv("PATH", "/nonexistent", 1); }
  ~WithoutPrograms() { ::setenv("PATH", path_.c_str(), 1); }
  WithoutPrograms(const WithoutPrograms&) = delete;
  WithoutPrograms& operator=(const WithoutPrograms&) = delete;

 private:
  std::string path_ = std::getenv("PATH");
};

// More than a pipe holds, so that whoever writes it finds that nobody reads.
TEST(ReplayPlot, WithoutGnuplotIsAnErrorAndNotTheEnd) {
  const TempDirectory directory;
  std::vector<PlotCurve> curves = {{.title = "lru", .points = {}}};
  for (int place = 1; place <= 20'000; ++place) curves[0].points.emplace_back(place, 0.5);
  const WithoutPrograms here;
  const Status drawn =
      plot_replay(directory.file("a.svg"), "hits", {.by_capacity = curves, .by_minute = {}});
  EXPECT_EQ(drawn.error().detail, "--plot: needs gnuplot (Debian's gnuplot-nox)");
}

}  // namespace
}  // namespace stemma
