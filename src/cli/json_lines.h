// JsonLines: JSON objects, one a line, and a file of them that somebody asked for, or did not.
//
// Thread:     main.
// Memory:     a stream's.
// Cost:       that of writing.
// Not here:   what the objects say.
#pragma once

#include <fstream>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "stemma/result.h"

namespace stemma {

// An object as a line without its end. Names of files, and what others send, may be any bytes: what
// is no UTF-8 of them becomes U+FFFD.
std::string json_line(const nlohmann::ordered_json& object);

class JsonLines {
 public:
  // kInvalidArgument if the file cannot be written. An empty path: nothing is written. What the
  // file holds stays there until the first line takes its place, or close() where there was none:
  // whatever goes wrong before costs nothing that an earlier run wrote.
  static Result<JsonLines> open(const std::string& path, const std::string& flag);

  // Whether writing has an effect.
  bool wanted() const { return !path_.empty(); }
  void write(const nlohmann::ordered_json& object);
  // kIo if anything could not be written. To be called at the end.
  Status close();

 private:
  // Empties the file, the first time.
  void begin();

  std::string path_;
  std::ofstream file_;
  bool begun_ = false;
};

}  // namespace stemma
