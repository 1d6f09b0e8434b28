#include "cli/replay_plot.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "base/draft_file.h"

namespace stemma {

namespace {

// As one quoted string of gnuplot, in which nothing but a quote has a meaning. A line break would
// end the command.
std::string quoted(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("''") : std::string(1, c);
  return out + "'";
}

bool has_points(std::span<const PlotCurve> curves) {
  return std::any_of(curves.begin(), curves.end(),
                     [](const PlotCurve& curve) { return !curve.points.empty(); });
}

// One drawing: `style` is gnuplot's, the points follow in place.
std::string drawing_of(std::span<const PlotCurve> curves, const std::string& style) {
  std::string script = "plot";
  for (std::size_t i = 0; i < curves.size(); ++i) {
    script += fmt::format("{} '-' using 1:(100*$2) with {} title {}", i == 0 ? "" : ",", style,
                          quoted(curves[i].title));
  }
  script += '\n';
  for (const PlotCurve& curve : curves) {
    for (const auto& [place, hit_rate] : curve.points) {
      script += fmt::format("{:.0f} {:.6f}\n", place, hit_rate);
    }
    script += "e\n";
  }
  return script;
}

std::string script_of(const std::string& path, const std::string& title,
                      const ReplayCurves& curves) {
  const bool capacities = has_points(curves.by_capacity);
  const bool minutes = has_points(curves.by_minute);
  std::string script = fmt::format(
      "set terminal svg size 900,{} noenhanced background '#ffffff'\nset output {}\n"
      "set multiplot layout {},1 title {}\nset ylabel 'hit rate, %'\nset grid\nset yrange [0:*]\n"
      "set lmargin 9\nset rmargin 27\n"
      "set key outside right top\n",
      capacities && minutes ? 900 : 500, quoted(path), capacities && minutes ? 2 : 1,
      quoted(title));
  if (capacities) {
    script += "set xlabel 'capacity, pages'\nset logscale x\n";
    script += drawing_of(curves.by_capacity, "linespoints");
    script += "unset logscale x\n";
  }
  if (minutes) {
    script += "set xlabel 'minutes since the first request'\nset xrange [0:*]\n";
    script += drawing_of(curves.by_minute, "lines");
  }
  return script + "unset multiplot\n";
}

// Runs gnuplot on `script`; its exit status as a shell says it, or −1 with errno.
int run_gnuplot(const std::string& script) {
  FILE* const pipe = popen("exec gnuplot >/dev/null 2>&1", "w");
  if (pipe == nullptr) return -1;
  // Where it ends before it has read all, or there is none: what its exit status says, not the end.
  const auto before = ::signal(SIGPIPE, SIG_IGN);
  fwrite(script.data(), 1, script.size(), pipe);
  const int status = pclose(pipe);
  ::signal(SIGPIPE, before);
  if (status < 0) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Error unwritten(const std::string& path) {
  return {ErrorCode::kIo, "--plot: gnuplot could not write " + path};
}

Status draw(const std::string& script, const std::string& path) {
  constexpr int kNoSuchCommand = 127;
  const int status = run_gnuplot(script);
  if (status == kNoSuchCommand) {
    return Error{ErrorCode::kUnsupported, "--plot: needs gnuplot (Debian's gnuplot-nox)"};
  }
  return status == 0 ? Status() : unwritten(path);
}

// On a full disk gnuplot ends as if all were well.
bool is_whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string svg(std::istreambuf_iterator<char>(file), {});
  return svg.ends_with("</svg>\n") || svg.ends_with("</svg>\n\n");
}

}  // namespace

Status check_plot_file(const std::string& path) {
  if (!is_replaceable(path)) {
    return Error{ErrorCode::kInvalidArgument, "--plot: " + path + " is no regular file"};
  }
  const DraftFile draft(path);
  return draw("set terminal svg\nset output " + quoted(draft.path()) + "\n", path);
}

Status plot_replay(const std::string& path, const std::string& title, const ReplayCurves& curves) {
  if (!has_points(curves.by_capacity) && !has_points(curves.by_minute)) {
    return Error{ErrorCode::kInvalidArgument, "--plot: there is nothing to draw"};
  }
  const DraftFile draft(path);
  STEMMA_RETURN_IF_ERROR(draw(script_of(draft.path(), title, curves), path));
  return is_whole(draft.path()) && !draft.take_name() ? Status() : unwritten(path);
}

}  // namespace stemma
