// The flags that say what an answer has to be.
//
// Thread:     the main thread.
// Memory:     a few strings, and what a file says when it is read.
// Cost:       none.
// Not here:   what forms there are (grammar/text_form).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/flags.h"
#include "cli/written_files.h"
#include "grammar/text_form.h"
#include "stemma/result.h"

namespace stemma {

class FormFlags {
 public:
  void add_to(Flags& command);
  // Reads the file of a schema, grammar or structural tag. Errors name it, or the flag.
  Result<TextForm> form() const;
  // Those that form reads.
  std::vector<NamedFile> files() const;

 private:
  // The text of a file, whose errors will stand behind its flag.
  static Result<std::string> read(const std::string& file, std::string_view flag,
                                  std::int64_t bytes_max, TextForm& form);
  // The same, read as JSON into the form.
  static Status read_json(const std::string& file, std::string_view flag, TextForm& form);

  std::string schema_file_;
  std::string tag_file_;
  std::string grammar_file_;
  std::optional<std::string> expression_;
};

}  // namespace stemma
