#include "bindings/python/forks.h"

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "bindings/python/interpreter.h"

namespace stemma::python {

namespace {

struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  std::int64_t calls = 0;
  bool forking = false;
  std::thread::id ended_by;  // none: the interpreter goes on

  bool is_open() const {
    if (ended_by != std::thread::id()) return ended_by == std::this_thread::get_id();
    return !forking;
  }
};

// Never destroyed: threads that nobody waits for pass it to the end.
Gate& gate() {
  static Gate* const only = std::make_unique<Gate>().release();
  return *only;
}

// Who calls with the interpreter's lock needs no gate: the thread that forks has it.
void close_gate() {
  const OthersRun others_run;
  std::unique_lock lock(gate().mutex);
  gate().changed.wait(lock, [] { return gate().is_open(); });
  gate().forking = true;
  gate().changed.wait(lock, [] { return gate().calls == 0; });
}

void open_gate() {
  {
    const std::lock_guard lock(gate().mutex);
    gate().forking = false;
  }
  gate().changed.notify_all();
}

// Of the gate's own lock others may have been amid a use.
void renew_gate() {
  std::construct_at(&gate());
}

}  // namespace

CallBeforeFork::CallBeforeFork(bool is_waited_for) : is_waited_for_(is_waited_for) {
  if (!is_waited_for_) return;
  std::unique_lock lock(gate().mutex);
  gate().changed.wait(lock, [] { return gate().is_open(); });
  ++gate().calls;
}

CallBeforeFork::~CallBeforeFork() {
  if (!is_waited_for_) return;
  {
    const std::lock_guard lock(gate().mutex);
    --gate().calls;
  }
  gate().changed.notify_all();
}

void end_calls() {
  std::unique_lock lock(gate().mutex);
  gate().ended_by = std::this_thread::get_id();
  gate().changed.wait(lock, [] { return gate().calls == 0; });
}

void bind_forks(pybind11::module_&) {
  using namespace pybind11::literals;
  pybind11::module_::import("os").attr("register_at_fork")(
      "before"_a = pybind11::cpp_function(&close_gate),
      "after_in_parent"_a = pybind11::cpp_function(&open_gate),
      "after_in_child"_a = pybind11::cpp_function(&renew_gate));
}

}  // namespace stemma::python
