// What every part of the Python module needs: errors as exceptions, tokens out of Python's arrays,
// and one thread at a time in an object that belongs to an engine thread.
//
// Thread:     any that holds the interpreter's lock, unless a method says otherwise.
// Memory:     arrays of 32-bit tokens are read where they lie; others are copied.
// Cost:       a few hundred nanoseconds a call.
// Not here:   what the objects are (one file each), how Python sees them (bindings/python/stemma).
//
// No Python object is made, and no exception of Python's raised, while a Turn is held: either may
// run a collection that destroys a Sequence, which wants its turn too.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/python/forks.h"
#include "bindings/python/interpreter.h"
#include "stemma/ids.h"
#include "stemma/result.h"

namespace stemma::python {

namespace py = pybind11;

// An Error on its way to Python, where it becomes an exception of stemma.errors.
class Failure : public std::exception {
 public:
  explicit Failure(Error error) : error_(std::move(error)) {}
  const Error& error() const noexcept { return error_; }
  const char* what() const noexcept override { return error_.detail.c_str(); }

 private:
  Error error_;
};

// Ends the call with the exception of this error.
[[noreturn]] void fail(Error error);
// The same of a wrong argument.
[[noreturn]] void refuse(std::string detail);

// The same of what another process opened, in a child of it.
[[noreturn]] void refuse_child(const std::string& what);

template <typename T>
T value_of(Result<T> result) {
  if (!result.ok()) fail(std::move(result).error());
  return std::move(result).value();
}
void check(Status status);
// Refuses a text of Python's, named so, that systems would take for a shorter one: a path, a URL.
void check_zero_free(std::string_view text, const char* name);

// Of a key or a digest.
template <typename Name>
py::bytes bytes_of(const Name& name) {
  return {reinterpret_cast<const char*>(name.bytes.data()), name.bytes.size()};
}

// Calls with more tokens than this let other threads of Python run meanwhile.
inline constexpr std::int64_t kLongCallTokens = 16'384;

// The value of that name, which is named where it is of another type or out of range.
template <typename T>
T value_as(const py::handle& value, const std::string& name) {
  try {
    return value.cast<T>();
  } catch (const py::cast_error&) {
    refuse(name + ": of a wrong type, or out of its range");
  }
}

// What a mapping has by that name. REQUIRES: it has something.
template <typename T>
T field(const py::dict& from, const char* name) {
  return value_as<T>(from[name], name);
}

// Whether a child of fork() may use what a call is about, and so must not have it amid one.
enum class InChild : std::uint8_t { kIsUsed, kIsNot };

// One thread at a time. Taken with the interpreter's lock held, which is given up while it waits.
class [[nodiscard]] Turn {
 public:
  Turn(std::mutex& mutex, InChild in_child) : lock_(mutex, std::try_to_lock) {
    if (lock_.owns_lock()) return;
    PyThreadState* const thread = PyEval_SaveThread();
    call_.emplace(in_child == InChild::kIsUsed);
    lock_.lock();
    retake_python(thread, &lock_);
  }

 private:
  std::optional<CallBeforeFork> call_;
  std::unique_lock<std::mutex> lock_;
};

// What `work` gives, in turn; others run meanwhile where it is long.
template <typename Work>
auto in_turn(std::mutex& mutex, bool is_long, Work&& work, InChild in_child = InChild::kIsUsed) {
  if (!is_long) {
    const Turn turn(mutex, in_child);
    return work();
  }
  const OthersRun others_run;
  const CallBeforeFork call(in_child == InChild::kIsUsed);
  const std::lock_guard turn(mutex);  // given up before the interpreter's lock is waited for
  return work();
}

// What `work`, which is nobody's turn, gives; others run meanwhile where it is long. Forks and the
// end of the interpreter wait for it then, as for calls in turn: libraries below have locks, too.
template <typename Work>
auto beside_others(bool is_long, Work&& work) {
  if (!is_long) return work();
  const OthersRun others_run;
  const CallBeforeFork call(/*is_waited_for=*/true);
  return work();
}

// One-dimensional whole numbers of Python: an array of 32 bits, read where it lies as long as this
// lives, or anything else that is a sequence of whole numbers, copied.
class NumberText {
 public:
  // Takes what has the buffer protocol (numpy, array, memoryview), torch's CPU tensors, and
  // sequences. Fails for numbers that do not fit 32 bits, and names `what` then.
  NumberText(py::handle source, const char* what);
  ~NumberText();
  NumberText(const NumberText&) = delete;
  NumberText& operator=(const NumberText&) = delete;

  std::span<const std::int32_t> numbers() const noexcept { return numbers_; }
  std::int64_t size() const noexcept { return static_cast<std::int64_t>(numbers_.size()); }
  // Whether a call with so many should let others run.
  bool is_long() const noexcept { return size() > kLongCallTokens; }

 private:
  void take_buffer(py::handle source);
  void take_sequence(py::handle source);
  template <typename Wide>
  void copy_narrowed();

  const char* what_;
  Py_buffer buffer_ = {};
  bool has_buffer_ = false;
  std::vector<std::int32_t> copied_;
  std::span<const std::int32_t> numbers_;
};

// 32-bit numbers that Python takes over: an object with the buffer protocol.
struct NumberList {
  std::vector<std::int32_t> numbers;
};

// From here on an object that no __init__ has made is refused wherever it is used, and one of a
// class without __init__ is not made but by the module. To be called when the module has all its
// classes. REQUIRES: none with an __init__ has the buffer protocol.
void refuse_unmade_objects(py::module_& module);

// The parts of the module, one a file.
void bind_errors(py::module_& module);
void bind_cache(py::module_& module);
void bind_slots(py::module_& module);
void bind_pools(py::module_& module);
void bind_tiers(py::module_& module);
void bind_llm(py::module_& module);
void bind_replay(py::module_& module);
void bind_stores(py::module_& module);

}  // namespace stemma::python
