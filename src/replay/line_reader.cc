#include "replay/line_reader.h"

#include <cerrno>
#include <utility>

namespace stemma {

namespace {

constexpr std::size_t kChunkBytes = std::size_t{64} << 10;

}  // namespace

Result<LineReader> LineReader::open(const std::string& path, std::size_t line_bytes_max) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error{ErrorCode::kNotFound, "cannot open trace " + path, errno};
  return LineReader(path, std::move(file), line_bytes_max);
}

LineReader::LineReader(std::string path, std::ifstream file, std::size_t line_bytes_max)
    : path_(std::move(path)),
      file_(std::move(file)),
      line_bytes_max_(line_bytes_max),
      chunk_(kChunkBytes) {}

Result<LineReader::Outcome> LineReader::next(std::string_view& line) {
  for (;;) {
    STEMMA_ASSIGN_OR_RETURN(const bool more, read_line());
    line = {};
    if (!more) return Outcome::kEnd;
    ++line_number_;
    if (too_long_) return Outcome::kTooLong;
    if (line_.find_first_not_of(" \t\r") == std::string::npos) continue;
    line = line_;
    return Outcome::kLine;
  }
}

Result<bool> LineReader::read_line() {
  line_.clear();
  too_long_ = false;
  for (bool any = false;; any = true) {
    if (unread_.empty()) STEMMA_RETURN_IF_ERROR(fill());
    if (unread_.empty()) return any;
    const std::size_t end = unread_.find('\n');
    const std::string_view piece = unread_.substr(0, end);
    too_long_ = too_long_ || line_.size() + piece.size() >= line_bytes_max_;
    if (!too_long_) line_.append(piece);
    const std::size_t taken = end == std::string_view::npos ? unread_.size() : end + 1;
    unread_.remove_prefix(taken);
    read_bytes_ += static_cast<std::int64_t>(taken);
    if (end != std::string_view::npos) return true;
  }
}

Status LineReader::fill() {
  file_.read(chunk_.data(), static_cast<std::streamsize>(chunk_.size()));
  if (file_.bad()) return Error{ErrorCode::kIo, "cannot read " + path_, errno};
  unread_ = std::string_view(chunk_.data(), static_cast<std::size_t>(file_.gcount()));
  return {};
}

}  // namespace stemma
