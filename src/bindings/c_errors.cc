// Errors, the log and the version of the C ABI.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>

#include "bindings/c_handles.h"
#include "stemma/log.h"
#include "stemma/version.h"

namespace stemma {

namespace {

// Kept without allocating: an error may be that there is no memory.
thread_local std::array<char, 512> last_error = {};

}  // namespace

}  // namespace stemma

int32_t stemma_abi_version() {
  return STEMMA_ABI_VERSION;
}

const char* stemma_version() {
  return stemma::kVersion.data();
}

const char* stemma_status_name(stemma_status status) {
  static constexpr std::array kOutcomes = {"ok", "no_row", "no_pages", "no_namespace", "nothing"};
  if (status >= 0) {
    return status < std::ssize(kOutcomes) ? kOutcomes[static_cast<std::size_t>(status)] : "unknown";
  }
  if (status < STEMMA_INTERNAL) return "unknown";
  return stemma::error_code_name(static_cast<stemma::ErrorCode>(-1 - status)).data();
}

const char* stemma_last_error() {
  return stemma::last_error.data();
}

stemma_status stemma_set_last_error(stemma_status status, const char* message) {
  const std::string_view line = message == nullptr ? "" : message;
  const std::size_t bytes = std::min(line.size(), stemma::last_error.size() - 1);
  std::memcpy(stemma::last_error.data(), line.data(), bytes);
  stemma::last_error[bytes] = '\0';
  return status;
}

void stemma_set_log(stemma_log_sink sink, void* context, int32_t level) {
  stemma::guarded([&] {
    stemma::LogLevel least = stemma::LogLevel::kInfo;
    if (stemma::read_enum(level, stemma::LogLevel::kError, least)) stemma::set_log_level(least);
    if (sink == nullptr) {
      stemma::set_log_sink({});
    } else {
      stemma::set_log_sink([=](stemma::LogLevel of, std::string_view line) {
        sink(context, static_cast<int32_t>(of), line.data(), line.size());
      });
    }
    return STEMMA_OK;
  });
}
