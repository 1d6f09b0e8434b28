// WrittenFiles: that what a command writes is nothing else that it writes or reads.
//
// Thread:     main.
// Memory:     none.
// Cost:       a look at each file.
// Not here:   writing (json_lines, replay_plot, model/safetensors).
#pragma once

#include <string>
#include <vector>

#include "stemma/result.h"

namespace stemma {

// As it was typed.
struct NamedFile {
  std::string flag;
  std::string path;  // empty: none was named
};

// Those that a model, or its tokenizer, is read from, which lies in the directory of that flag.
// None of an empty name.
std::vector<NamedFile> files_of_model(const std::string& flag, const std::string& directory);

struct CommandFiles {
  std::vector<NamedFile> written;
  std::vector<NamedFile> read = {};
};

// kInvalidArgument that names both flags if one that is written is another that is written or read,
// whatever its name is there. Devices and pipes may be named twice.
Status check_apart(const CommandFiles& files);

}  // namespace stemma
