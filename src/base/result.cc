#include "stemma/result.h"

#include <array>
#include <cstring>

#include "base/check.h"

namespace stemma {

std::string_view error_code_name(ErrorCode code) {
  static constexpr std::array<std::string_view, 10> kNames = {
      "invalid_argument", "not_found", "unsupported", "corrupt",  "io",
      "out_of_memory",    "too_large", "cancelled",   "deadline", "internal"};
  const auto position = static_cast<std::size_t>(code);
  STEMMA_CHECK(position < kNames.size(), "every error code has a name");
  return kNames[position];
}

std::string to_string(const Error& error) {
  std::string line(error_code_name(error.code));
  line += ": ";
  line += error.detail;
  if (error.sys_errno != 0) {
    line += " (";
    line += std::strerror(error.sys_errno);
    line += ")";
  }
  return line;
}

}  // namespace stemma
