#include "model/config_file.h"

#include <cstdint>
#include <span>

#include "base/digest.h"

namespace stemma {

Result<ConfigFile> load_config(Files& files, const std::string& directory) {
  constexpr std::int64_t kBytesMax = std::int64_t{1} << 20;
  ConfigFile file;
  file.path = join_path(directory, "config.json");
  STEMMA_ASSIGN_OR_RETURN(const std::string text, read_file(files, file.path, kBytesMax));
  STEMMA_ASSIGN_OR_RETURN(file.config, parse_config(text, file.path));
  file.sha256 = to_hex(sha256(std::as_bytes(std::span(text))));
  return file;
}

}  // namespace stemma
