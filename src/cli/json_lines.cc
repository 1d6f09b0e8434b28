#include "cli/json_lines.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

namespace stemma {

std::string json_line(const nlohmann::ordered_json& object) {
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Result<JsonLines> JsonLines::open(const std::string& path, const std::string& flag) {
  JsonLines lines;
  if (path.empty()) return lines;
  lines.path_ = path;
  lines.file_.open(path, std::ios::binary | std::ios::app);
  if (!lines.file_) {
    return Error{ErrorCode::kInvalidArgument, flag + ": cannot write " + path};
  }
  return lines;
}

void JsonLines::write(const nlohmann::ordered_json& object) {
  if (!wanted()) return;
  begin();
  file_ << json_line(object) << '\n';
}

// Of a pipe whoever reads it would see the end.
void JsonLines::begin() {
  std::error_code unknown;
  if (std::exchange(begun_, true) || !std::filesystem::is_regular_file(path_, unknown)) return;
  file_.close();
  file_.open(path_, std::ios::binary | std::ios::trunc);
}

Status JsonLines::close() {
  if (!wanted()) return {};
  begin();
  file_.close();
  if (!file_) return Error{ErrorCode::kIo, "cannot write " + path_};
  return {};
}

}  // namespace stemma
