#include "cli/replay_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>

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

std::string script_of(const std::string& path, const std::string& title,
                      std::span<const HitRateCurve> curves) {
  std::string script = fmt::format(
      "set terminal svg size 800,500 noenhanced\nset output {}\nset title {}\n"
      "set xlabel 'capacity, pages'\nset ylabel 'hit rate'\nset logscale x\nset key left top\n"
      "set grid\nset yrange [0:*]\nplot",
      quoted(path), quoted(title));
  for (std::size_t i = 0; i < curves.size(); ++i) {
    script += fmt::format("{} '-' using 1:2 with linespoints title {}", i == 0 ? "" : ",",
                          quoted(curves[i].policy));
  }
  script += '\n';
  for (const HitRateCurve& curve : curves) {
    for (const auto& [capacity_pages, hit_rate] : curve.points) {
      script += fmt::format("{} {:.6f}\n", capacity_pages, hit_rate);
    }
    script += "e\n";
  }
  return script;
}

// Runs gnuplot on `script`; its exit status, or −1 with errno.
int run_gnuplot(const std::string& script) {
  FILE* const pipe = popen("exec gnuplot >/dev/null 2>&1", "w");
  if (pipe == nullptr) return -1;
  fwrite(script.data(), 1, script.size(), pipe);
  const int status = pclose(pipe);
  return status < 0 ? -1 : (status >> 8) & 0xFF;
}

}  // namespace

Status plot_hit_rates(const std::string& path, const std::string& title,
                      std::span<const HitRateCurve> curves) {
  const bool any = std::any_of(curves.begin(), curves.end(),
                               [](const HitRateCurve& curve) { return !curve.points.empty(); });
  if (!any) {
    return Error{ErrorCode::kInvalidArgument, "--plot: wants capacities in pages, not 'unlimited'"};
  }
  constexpr int kNoSuchCommand = 127;
  const int status = run_gnuplot(script_of(path, title, curves));
  if (status == kNoSuchCommand) {
    return Error{ErrorCode::kUnsupported, "--plot: needs gnuplot (Debian's gnuplot-nox)"};
  }
  if (status != 0) {
    return Error{ErrorCode::kIo, "--plot: gnuplot could not write " + path};
  }
  return {};
}

}  // namespace stemma
