#include "base/math_library.h"

#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

namespace stemma {

std::string math_library_name() {
#ifdef __GLIBC__
  return std::string("glibc ") + gnu_get_libc_version();
#else
  return "unknown";
#endif
}

}  // namespace stemma
