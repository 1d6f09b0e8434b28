// stemma.replay: traces through the cache, for their hit rates.
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/python/binding.h"
#include "replay/replayer.h"
#include "replay/trace_merge.h"

namespace stemma::python {

namespace {

// Requests from one look to the next whether a handler of signals, Ctrl-C's, ends the replay.
constexpr std::int64_t kRequestsALook = 1024;

struct Lane {
  std::string policy;
  std::unique_ptr<Replayer> replayer;
};

// Of a thread that has given the interpreter's lock up. Throws what a handler of signals raises.
void heed_signals() {
  const PythonHeld python;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

// Feeds the whole trace to every lane; the tokens of its pages.
std::int64_t feed_all(const std::vector<std::string>& traces, const TraceOptions& options,
                      const std::vector<Lane>& lanes) {
  TraceMerge trace = value_of(TraceMerge::open(traces, options));
  TraceRequest request;
  for (std::int64_t requests = 1; value_of(trace.next(request)); ++requests) {
    for (const Lane& lane : lanes) lane.replayer->feed(request);
    if (requests % kRequestsALook == 0) heed_signals();
  }
  return trace.page_tokens();
}

py::list replay(const std::vector<std::string>& traces, const std::string& format,
                const std::vector<std::pair<std::string, std::int64_t>>& wanted,
                std::int64_t page_tokens, bool skip_bad) {
  for (const std::string& trace : traces) check_zero_free(trace, "traces");
  TraceOptions options;
  options.format = value_of(find_trace_format(format));
  options.page_tokens = page_tokens;
  options.skip_bad = skip_bad;
  std::vector<Lane> lanes;
  lanes.reserve(wanted.size());
  for (const auto& [policy, capacity_pages] : wanted) {
    lanes.push_back({policy, value_of(Replayer::open({policy, capacity_pages}))});
  }
  std::int64_t tokens_a_page = 0;
  {
    const OthersRun others_run;
    check(check_trace_options(options));
    tokens_a_page = feed_all(traces, options, lanes);
  }
  py::list out;
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const ReplayReport& report = lanes[i].replayer->report();
    py::dict line;
    line["policy"] = lanes[i].policy;
    line["capacity_pages"] = wanted[i].second;
    line["page_tokens"] = tokens_a_page;
    line["requests"] = report.requests;
    line["lookup_pages"] = report.lookup_pages;
    line["hit_pages"] = report.hit_pages;
    line["hit_rate"] = report.hit_rate();
    line["evicted_pages"] = report.evicted_pages;
    out.append(line);
  }
  return out;
}

}  // namespace

void bind_replay(py::module_& module) {
  module.def("replay", &replay, py::arg("traces"), py::arg("format"), py::arg("lanes"),
             py::arg("page_tokens"), py::arg("skip_bad"));
}

}  // namespace stemma::python
