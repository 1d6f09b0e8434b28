// Check: programmer errors stop the program, with values, before corrupt state serves another
// user's tokens.
//
// Thread:     any.
// Memory:     none until it fails.
// Cost:       STEMMA_CHECK is one branch and always on; STEMMA_DCHECK is on in all but release
// builds. Not here:   failures of files, models or requests (Result), ordinary outcomes (bool,
// optional, enums).
#pragma once

#include <cstdint>
#include <string>

namespace stemma {

// Prints where, what and why to standard error and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const char* why);

// As above, with the two sides of a comparison.
[[noreturn]] void check_op_failed(const char* file, int line, const char* condition,
                                  const std::string& left, const std::string& right);

template <typename A, typename B>
[[noreturn]] void check_op_failed_values(const char* file, int line, const char* condition,
                                         const A& left, const B& right) {
  check_op_failed(file, line, condition, std::to_string(left), std::to_string(right));
}

}  // namespace stemma

// Aborts unless `condition` holds. `why` states the rule that would be broken.
#define STEMMA_CHECK(condition, why)                               \
  do {                                                             \
    if (!(condition)) [[unlikely]] {                               \
      ::stemma::check_failed(__FILE__, __LINE__, #condition, why); \
    }                                                              \
  } while (false)

#define STEMMA_CHECK_OP(a, op, b)                                                          \
  do {                                                                                     \
    const auto& stemma_left = (a);                                                         \
    const auto& stemma_right = (b);                                                        \
    if (!(stemma_left op stemma_right)) [[unlikely]] {                                     \
      ::stemma::check_op_failed_values(__FILE__, __LINE__, #a " " #op " " #b, stemma_left, \
                                       stemma_right);                                      \
    }                                                                                      \
  } while (false)

// Comparisons of numbers, printing both sides.
#define STEMMA_CHECK_EQ(a, b) STEMMA_CHECK_OP(a, ==, b)
#define STEMMA_CHECK_NE(a, b) STEMMA_CHECK_OP(a, !=, b)
#define STEMMA_CHECK_LT(a, b) STEMMA_CHECK_OP(a, <, b)
#define STEMMA_CHECK_LE(a, b) STEMMA_CHECK_OP(a, <=, b)
#define STEMMA_CHECK_GE(a, b) STEMMA_CHECK_OP(a, >=, b)
#define STEMMA_CHECK_GT(a, b) STEMMA_CHECK_OP(a, >, b)

#ifdef STEMMA_DEBUG_CHECKS
#define STEMMA_DCHECK(condition, why) STEMMA_CHECK(condition, why)
#else
#define STEMMA_DCHECK(condition, why) static_cast<void>(sizeof(!(condition)))
#endif
