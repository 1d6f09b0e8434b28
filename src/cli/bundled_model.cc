#include "cli/bundled_model.h"

#include <filesystem>
#include <system_error>

namespace stemma {

std::string find_bundled_model() {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path at = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (int levels = 0; levels < 4 && !at.empty(); ++levels, at = at.parent_path()) {
    for (const char* const place : {"models/scribe-3m", "share/stemma/models/scribe-3m"}) {
      if (fs::exists(at / place / "config.json", error)) return (at / place).string();
    }
  }
  return "";
}

}  // namespace stemma
