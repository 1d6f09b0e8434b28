// The interpreter's lock, given up and taken again by threads that may still run when it ends:
// those that Python calls daemons.
//
// Python ends such a thread where it asks for the lock, amid destructors, which may not be left:
// the process would abort. Here it stays where it is for good, and holds nothing that others wait
// for.
//
// Thread:     any.
// Memory:     none.
// Cost:       that of the lock.
// Not here:   whose turn it is in an object (binding.h).
#pragma once

#include <pybind11/pybind11.h>

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

namespace stemma::python {

// Takes the interpreter's lock again, for the thread that PyEval_SaveThread named. Does not return
// where the interpreter has ended: `turn_or_null` is then given up.
void retake_python(PyThreadState* thread,
                   std::unique_lock<std::mutex>* turn_or_null = nullptr) noexcept;

// As long as it lives other threads of Python run. REQUIRES: this one holds the interpreter's lock.
class [[nodiscard]] OthersRun {
 public:
  OthersRun() : thread_(PyEval_SaveThread()) {}
  ~OthersRun() { retake_python(thread_); }
  OthersRun(const OthersRun&) = delete;
  OthersRun& operator=(const OthersRun&) = delete;

 private:
  PyThreadState* thread_;
};

// As long as it lives this thread holds the interpreter's lock, which it may have held before.
class [[nodiscard]] PythonHeld {
 public:
  PythonHeld() noexcept;
  ~PythonHeld() { PyGILState_Release(before_); }
  PythonHeld(const PythonHeld&) = delete;
  PythonHeld& operator=(const PythonHeld&) = delete;

 private:
  PyGILState_STATE before_;
};

// Ends the calling thread, as Python's sys.exit does: without a word.
class ThreadEnds : public std::exception {};

// Work of many steps, which the end of the interpreter waits for. `thread` names the calling thread
// as long as this lives.
class [[nodiscard]] LongWork {
 public:
  explicit LongWork(std::atomic<std::thread::id>& thread);
  ~LongWork();
  LongWork(const LongWork&) = delete;
  LongWork& operator=(const LongWork&) = delete;

  // Whether to end the thread before the next step: another one is about to end the interpreter.
  static bool must_end() noexcept;

 private:
  std::atomic<std::thread::id>& thread_;
};

// Has Python call us before it ends.
void bind_interpreter(pybind11::module_& module);

}  // namespace stemma::python
