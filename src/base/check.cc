#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace stemma {

void check_failed(const char* file, int line, const char* condition, const char* why) {
  std::fprintf(stderr, "stemma: check failed at %s:%d: %s: %s\n", file, line, condition, why);
  std::abort();
}

void check_op_failed(const char* file, int line, const char* condition, const std::string& left,
                     const std::string& right) {
  std::fprintf(stderr, "stemma: check failed at %s:%d: %s (%s against %s)\n", file, line, condition,
               left.c_str(), right.c_str());
  std::abort();
}

}  // namespace stemma
