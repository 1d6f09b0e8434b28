// Result: the value of an operation that can fail for reasons outside the program (a file, a model,
// a request).
//
// Thread:     values; as safe as any value type.
// Memory:     one Error holds one string; success allocates nothing.
// Cost:       a std::variant.
// Not here:   programmer errors (STEMMA_CHECK aborts), ordinary outcomes (bool try_…,
// std::optional, enums).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace stemma {

// What kind of failure it was. At most ten, so that callers can act on each.
enum class ErrorCode : std::uint8_t {
  kInvalidArgument,  // the caller's value is wrong: a flag, a request, an option
  kNotFound,         // a named thing does not exist: a file, a tensor, a policy
  kUnsupported,      // well-formed, but not something this build can do
  kCorrupt,          // bytes contradict their own format or checksum
  kIo,               // the operating system refused; sys_errno says why
  kOutOfMemory,      // memory that was asked for at start-up cannot be had
  kTooLarge,         // exceeds a limit of Options: context, pool, request rows
  kCancelled,        // the caller gave up
  kDeadline,         // the time allowed ran out
  kInternal,         // a third-party library failed in a way it does not explain
};

// One failure: its kind, one line for a person (naming file and field), and errno where there was
// one.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string detail;
  int sys_errno = 0;
};

// The code's name in snake_case, for logs and JSON.
std::string_view error_code_name(ErrorCode code);

// "invalid_argument: --page-size must be at least 1 (got 0)": the line that a person reads.
std::string to_string(const Error& error);

// A T or an Error. Discarding one is a compile error; `ignore_error` says so out loud.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit on purpose
  Result(Error error)
      : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit on purpose

  bool ok() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return ok(); }

  // REQUIRES: ok().
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  // REQUIRES: !ok().
  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

// Success without a value, or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit on purpose

  bool ok() const noexcept { return !error_.has_value(); }
  explicit operator bool() const noexcept { return ok(); }

  // REQUIRES: !ok().
  const Error& error() const& { return *error_; }
  Error&& error() && { return *std::move(error_); }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

// Drops a result on purpose; `why` is for the reader.
template <typename T>
void ignore_error(const Result<T>&, [[maybe_unused]] std::string_view why) {}

}  // namespace stemma

// Returns the error of `expr` (a Result) from the enclosing function, if it is one.
#define STEMMA_RETURN_IF_ERROR(expr)                        \
  do {                                                      \
    if (auto stemma_status = (expr); !stemma_status.ok()) { \
      return std::move(stemma_status).error();              \
    }                                                       \
  } while (false)

#define STEMMA_CONCAT_INNER(a, b) a##b
#define STEMMA_CONCAT(a, b) STEMMA_CONCAT_INNER(a, b)

// STEMMA_ASSIGN_OR_RETURN(auto x, f()): x is the value of f(), or the enclosing function returns
// f()'s error.
#define STEMMA_ASSIGN_OR_RETURN(lhs, expr)                             \
  auto STEMMA_CONCAT(stemma_result_, __LINE__) = (expr);               \
  if (!STEMMA_CONCAT(stemma_result_, __LINE__).ok()) {                 \
    return std::move(STEMMA_CONCAT(stemma_result_, __LINE__)).error(); \
  }                                                                    \
  lhs = std::move(STEMMA_CONCAT(stemma_result_, __LINE__)).value()
