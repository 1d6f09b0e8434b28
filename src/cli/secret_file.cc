#include "cli/secret_file.h"

#include <cstdint>
#include <utility>

#include "base/file.h"
#include "cli/flag_errors.h"

namespace stemma {

Result<std::string> read_secret_file(const std::string& path, std::string_view flag) {
  constexpr std::int64_t kSecretBytesMax = 4096;
  PosixFiles files;
  Result<std::string> read = read_file(files, path, kSecretBytesMax);
  if (!read.ok()) return of_file(flag, read.error());
  std::string secret = std::move(read).value();
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
  if (secret.empty()) {
    return Error{ErrorCode::kInvalidArgument, std::string(flag) + ": " + path + " is empty"};
  }
  return secret;
}

}  // namespace stemma
