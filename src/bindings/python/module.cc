// The module stemma._stemma. What it means to a user says the package (bindings/python/stemma).
#include <algorithm>
#include <array>
#include <string>

#include "bindings/python/binding.h"
#include "stemma/log.h"
#include "stemma/version.h"

namespace stemma::python {
namespace {

void set_level(const std::string& name) {
  constexpr std::array kNames = {"debug", "info", "warning", "error"};
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) refuse("level: debug, info, warning or error is wanted");
  set_log_level(static_cast<LogLevel>(found - kNames.begin()));
}

}  // namespace
}  // namespace stemma::python

PYBIND11_MODULE(_stemma, module) {
  namespace parts = stemma::python;
  module.doc() = "The C++ side of stemma.";
  module.attr("__version__") = stemma::kVersion;
  stemma::set_log_level(stemma::LogLevel::kWarning);  // a library is quiet
  module.def("set_log_level", &parts::set_level, pybind11::arg("level"),
             "Events below this level are not written to standard error: \"debug\", \"info\", "
             "\"warning\" (at first) or \"error\".");
  parts::bind_errors(module);
  parts::bind_interpreter(module);
  parts::bind_forks(module);
  parts::bind_pools(module);
  parts::bind_tiers(module);
  parts::bind_cache(module);
  parts::bind_slots(module);
  parts::bind_llm(module);
  parts::bind_replay(module);
  parts::bind_stores(module);
  parts::refuse_unmade_objects(module);
}
