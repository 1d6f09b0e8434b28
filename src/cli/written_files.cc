#include "cli/written_files.h"

#include <filesystem>
#include <system_error>
#include <vector>

namespace stemma {
namespace {

namespace fs = std::filesystem;

// Of files that are not there yet the names tell.
bool is_same_file(const std::string& one, const std::string& other) {
  std::error_code unknown;
  const fs::file_status there = fs::status(one, unknown);
  if (fs::exists(there)) {
    return fs::is_regular_file(there) && fs::equivalent(one, other, unknown);
  }
  const fs::path name = fs::weakly_canonical(fs::absolute(one), unknown);
  return !unknown && name == fs::weakly_canonical(fs::absolute(other), unknown);
}

}  // namespace

std::vector<NamedFile> files_of_model(const std::string& flag, const std::string& directory) {
  std::vector<NamedFile> files;
  if (directory.empty()) return files;
  for (const char* const name :
       {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
        "chat_template.jinja", "model.safetensors", "model.safetensors.index.json"}) {
    files.push_back({flag, (fs::path(directory) / name).string()});
  }
  std::error_code end;
  for (fs::directory_iterator at(directory, end); !end && at != fs::directory_iterator();
       at.increment(end)) {
    const std::string name = at->path().filename().string();
    const bool is_shard = name.starts_with("model-") && name.ends_with(".safetensors");
    if (is_shard) files.push_back({flag, at->path().string()});
  }
  return files;
}

Status check_apart(const CommandFiles& files) {
  std::vector<NamedFile> others = files.read;
  for (const NamedFile& file : files.written) {
    if (file.path.empty()) continue;
    for (const NamedFile& other : others) {
      if (other.path.empty() || !is_same_file(file.path, other.path)) continue;
      return Error{ErrorCode::kInvalidArgument,
                   file.flag + ": " + file.path + " is the file of " + other.flag};
    }
    others.push_back(file);
  }
  return {};
}

}  // namespace stemma
