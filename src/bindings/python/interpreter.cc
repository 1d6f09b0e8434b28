#include "bindings/python/interpreter.h"

#include <cxxabi.h>
#include <unistd.h>

#include <cstdint>

#include "bindings/python/forks.h"

namespace stemma::python {

namespace {

std::atomic<std::thread::id> ending;  // the thread that is about to end the interpreter
std::atomic<std::int64_t> at_work;    // LongWork, in all threads

// Amid an unwinding, from which nothing can be returned to.
[[noreturn]] void stay_for_good() {
  for (;;) pause();
}

// Once the threads are waited for that Python waits for, before others are ended.
void end_long_work(pid_t imported_by) {
  ending = std::this_thread::get_id();
  if (getpid() != imported_by) return;  // a fork: the threads at work are not here
  const OthersRun others_run;
  for (std::int64_t works = at_work; works > 0; works = at_work) at_work.wait(works);
  end_calls();
}

}  // namespace

void retake_python(PyThreadState* thread, std::unique_lock<std::mutex>* turn_or_null) noexcept {
  try {
    PyEval_RestoreThread(thread);
  } catch (const abi::__forced_unwind&) {
    if (turn_or_null != nullptr) turn_or_null->unlock();
    stay_for_good();
  }
}

PythonHeld::PythonHeld() noexcept {
  try {
    before_ = PyGILState_Ensure();
  } catch (const abi::__forced_unwind&) {
    stay_for_good();
  }
}

LongWork::LongWork(std::atomic<std::thread::id>& thread) : thread_(thread) {
  thread_ = std::this_thread::get_id();
  ++at_work;
}

LongWork::~LongWork() {
  thread_ = std::thread::id();
  --at_work;
  at_work.notify_all();
}

bool LongWork::must_end() noexcept {
  const std::thread::id by = ending;
  return by != std::thread::id() && by != std::this_thread::get_id();
}

void bind_interpreter(pybind11::module_&) {
  pybind11::register_local_exception_translator([](std::exception_ptr raised) {
    try {
      if (raised) std::rethrow_exception(raised);
    } catch (const ThreadEnds&) {
      PyErr_SetNone(PyExc_SystemExit);
    }
  });
  ending = std::thread::id();
  const pybind11::cpp_function end([imported_by = getpid()] { end_long_work(imported_by); });
  pybind11::module_::import("atexit").attr("register")(end);
}

}  // namespace stemma::python
