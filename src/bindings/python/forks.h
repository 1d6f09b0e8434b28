// Forks by Python (os.fork, multiprocessing) and calls of other threads: what a child goes on with
// must not be amid a call then, whose thread is not there to end it.
//
// Thread:     any.
// Memory:     none.
// Cost:       an uncontended lock a call; a fork waits for the calls that are under way.
// Not here:   what a child may not use at all (base/own_process).
#pragma once

#include <pybind11/pybind11.h>

namespace stemma::python {

// A call that a fork waits for, or not. REQUIRES: the thread does not hold the interpreter's lock.
class [[nodiscard]] CallBeforeFork {
 public:
  explicit CallBeforeFork(bool is_waited_for);
  ~CallBeforeFork();
  CallBeforeFork(const CallBeforeFork&) = delete;
  CallBeforeFork& operator=(const CallBeforeFork&) = delete;

 private:
  bool is_waited_for_;
};

// The calling thread is about to end the interpreter: waits for such calls, and holds up all others
// for good. For exit takes from them what libraries below keep for the whole process.
void end_calls();

// Has Python call us around its forks.
void bind_forks(pybind11::module_& module);

}  // namespace stemma::python
