// LineReader: the lines of a file, one after another, none longer than a limit.
//
// Thread:     one thread a reader.
// Memory:     64 KiB and the longest line so far, at most the limit.
// Cost:       reading; about 1 GB/s.
// Not here:   what a line says (trace_parser).
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "stemma/result.h"

namespace stemma {

class LineReader {
 public:
  enum class Outcome : std::uint8_t { kLine, kTooLong, kEnd };

  // kNotFound if there is no such file.
  static Result<LineReader> open(const std::string& path, std::size_t line_bytes_max);

  // The next line that holds more than blanks, without its end, valid until the next call. One of
  // line_bytes_max or more is passed over to its end: kTooLong, and `line` is empty.
  Result<Outcome> next(std::string_view& line);

  // Of the last line, from 1.
  std::int64_t line_number() const noexcept { return line_number_; }
  // Of the file, up to the end of the last line.
  std::int64_t read_bytes() const noexcept { return read_bytes_; }
  const std::string& path() const noexcept { return path_; }

 private:
  LineReader(std::string path, std::ifstream file, std::size_t line_bytes_max);

  // Appends to `line_` up to the end of the line or of the file. False: nothing was left.
  Result<bool> read_line();
  Status fill();

  std::string path_;
  std::ifstream file_;
  std::size_t line_bytes_max_;
  std::vector<char> chunk_;
  std::string_view unread_;  // of the chunk
  std::string line_;
  bool too_long_ = false;
  std::int64_t line_number_ = 0;
  std::int64_t read_bytes_ = 0;
};

}  // namespace stemma
