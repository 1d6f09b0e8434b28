#include "cli/json_lines.h"

#include <nlohmann/json.hpp>

namespace stemma {

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
  if (wanted()) file_ << object.dump() << '\n';
}

Status JsonLines::close() {
  if (!wanted()) return {};
  file_.close();
  if (!file_) return Error{ErrorCode::kIo, "cannot write " + path_};
  return {};
}

}  // namespace stemma
