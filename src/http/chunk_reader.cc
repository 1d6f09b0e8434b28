#include "http/chunk_reader.h"

#include "base/check.h"
#include "http/url.h"

namespace stemma {
namespace {

constexpr std::int32_t kLineBytesMax = 8 << 10;

bool is_text_byte(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte >= 0x20 && byte != 0x7f) || byte == '\t';
}

}  // namespace

std::size_t ChunkReader::take(std::string_view bytes, std::int64_t body_bytes_max,
                              std::string& body) {
  std::size_t taken = 0;
  while (taken < bytes.size() && progress_ == Progress::kMore) {
    if (state_ == State::kBytes) {
      const std::string_view piece = bytes.substr(taken, static_cast<std::size_t>(chunk_bytes_));
      body += piece;
      taken += piece.size();
      chunk_bytes_ -= static_cast<std::int64_t>(piece.size());
      if (chunk_bytes_ == 0) state_ = State::kBytesCr;
    } else {
      take_byte(bytes[taken++], body_bytes_max - static_cast<std::int64_t>(body.size()));
    }
  }
  return taken;
}

void ChunkReader::take_byte(char c, std::int64_t bytes_max) {
  if (++line_bytes_ > kLineBytesMax) return end(Progress::kMalformed);
  switch (state_) {
    case State::kSize:
      return take_size(c, bytes_max);
    case State::kExtension:
      if (c == '\r') {
        state_ = State::kSizeEnd;
      } else if (!is_text_byte(c)) {
        end(Progress::kMalformed);
      }
      return;
    case State::kSizeEnd:
      line_bytes_ = 0;
      return expect(c, '\n', chunk_bytes_ == 0 ? State::kTrailerBegin : State::kBytes);
    case State::kBytesCr:
      return expect(c, '\r', State::kBytesEnd);
    case State::kBytesEnd:
      line_bytes_ = 0;
      has_digit_ = false;
      return expect(c, '\n', State::kSize);
    case State::kTrailerBegin:
    case State::kTrailer:
      return take_trailer(c);
    case State::kTrailerEnd:
      return expect(c, '\n', State::kTrailerBegin);
    case State::kEnd:
      return end(c == '\n' ? Progress::kWhole : Progress::kMalformed);
    case State::kBytes:
      break;
  }
  STEMMA_CHECK(false, "a chunk's bytes are not read one by one");
}

void ChunkReader::take_size(char c, std::int64_t bytes_max) {
  const int digit = hex_digit_value(c);
  if (digit >= 0) {
    has_digit_ = true;
    chunk_bytes_ = chunk_bytes_ * 16 + digit;
    if (chunk_bytes_ > bytes_max) end(Progress::kTooLarge);
  } else if (has_digit_ && c == ';') {
    state_ = State::kExtension;
  } else if (has_digit_ && c == '\r') {
    state_ = State::kSizeEnd;
  } else {
    end(Progress::kMalformed);
  }
}

void ChunkReader::take_trailer(char c) {
  const bool is_first = state_ == State::kTrailerBegin;
  if (c == '\r') {
    if (!is_first && !has_colon_) return end(Progress::kMalformed);
    state_ = is_first ? State::kEnd : State::kTrailerEnd;
    has_colon_ = false;
    return;
  }
  const bool is_folded = is_first && (c == ' ' || c == '\t' || c == ':');
  if (!is_text_byte(c) || is_folded) return end(Progress::kMalformed);
  has_colon_ = has_colon_ || c == ':';
  state_ = State::kTrailer;
}

void ChunkReader::expect(char c, char expected, State next) {
  if (c != expected) return end(Progress::kMalformed);
  state_ = next;
}

}  // namespace stemma
