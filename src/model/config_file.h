// ConfigFile: the config.json of a model's directory, read and checked.
//
// Thread:     a value; load_config by any thread.
// Memory:     the text while it is read (at most 1 MiB), then a few hundred bytes.
// Cost:       one read and one parse.
// Not here:   what the fields mean (config), the model's other files (weight_files, tokenizer,
//             generation_config).
#pragma once

#include <string>

#include "base/file.h"
#include "model/config.h"
#include "stemma/result.h"

namespace stemma {

struct ConfigFile {
  std::string path;
  std::string sha256;  // of the whole text, in hexadecimal: two models with equal ones agree in it
  ModelConfig config;
};

// Errors are one line that names the file, and the field where one is wrong.
Result<ConfigFile> load_config(Files& files, const std::string& directory);

}  // namespace stemma
