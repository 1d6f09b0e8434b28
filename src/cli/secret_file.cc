#include "cli/secret_file.h"

#include <cstdint>

#include "base/file.h"

namespace stemma {

Result<std::string> read_secret_file(const std::string& path, std::string_view flag) {
  constexpr std::int64_t kSecretBytesMax = 4096;
  PosixFiles files;
  STEMMA_ASSIGN_OR_RETURN(std::string secret, read_file(files, path, kSecretBytesMax));
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
  if (secret.empty()) {
    return Error{ErrorCode::kInvalidArgument, std::string(flag) + ": " + path + " is empty"};
  }
  return secret;
}

}  // namespace stemma
