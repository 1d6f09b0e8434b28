// The module stemma._stemma. What it means to a user says the package (bindings/python/stemma).
#include "bindings/python/binding.h"
#include "stemma/version.h"

PYBIND11_MODULE(_stemma, module) {
  namespace parts = stemma::python;
  module.doc() = "The C++ side of stemma.";
  module.attr("__version__") = stemma::kVersion;
  parts::bind_errors(module);
  parts::bind_cache(module);
  parts::bind_slots(module);
  parts::bind_pools(module);
}
