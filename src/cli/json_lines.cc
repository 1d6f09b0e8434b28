#include "cli/json_lines.h"

#include <nlohmann/json.hpp>

namespace stemma {

std::string json_line(const nlohmann::ordered_json& object) {
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Result<JsonLines> JsonLines::open(const std::string& path, const std::string& flag) {
  JsonLines lines;
  if (path.empty()) return lines;
  lines.path_ = path;
  lines.file_.open(path, std::ios::binary | std::ios::trunc);
  if (!lines.file_) {
    return Error{ErrorCode::kInvalidArgument, flag + ": cannot write " + path};
  }
  return lines;
}

void JsonLines::write(const nlohmann::ordered_json& object) {
  if (wanted()) file_ << json_line(object) << '\n';
}

Status JsonLines::close() {
  if (!wanted()) return {};
  file_.close();
  if (!file_) return Error{ErrorCode::kIo, "cannot write " + path_};
  return {};
}

}  // namespace stemma
