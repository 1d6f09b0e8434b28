#include "store/resp_reader.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

#include "base/check.h"

namespace stemma {

namespace {

Error corrupt(std::string_view why) {
  return {ErrorCode::kCorrupt, "reply: " + std::string(why)};
}

// Digits with at most a minus before them, as servers write lengths and integers.
std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

Status RespReader::read(const RespTarget& target, RespReply& reply, std::size_t reply_bytes_max) {
  budget_bytes_ = reply_bytes_max;
  return read_nested(target, 0, reply);
}

Status RespReader::read_nested(const RespTarget& target, int depth, RespReply& reply) {
  STEMMA_ASSIGN_OR_RETURN(const std::string_view line, read_line());
  if (line.empty()) return corrupt("an empty line");
  const std::string_view rest = line.substr(1);
  if (line[0] == '+' || line[0] == '-') {
    STEMMA_RETURN_IF_ERROR(spend(rest.size()));
    reply.kind = line[0] == '+' ? RespKind::kStatus : RespKind::kError;
    reply.text = rest;
    return {};
  }
  if (line[0] != ':' && line[0] != '$' && line[0] != '*') return corrupt("an unknown type");
  const std::optional<std::int64_t> number = parse_integer(rest);
  if (!number) return corrupt("not a number");
  reply.number = *number;
  if (line[0] == ':') {
    reply.kind = RespKind::kInteger;
    return {};
  }
  if (*number == -1) {
    reply.kind = RespKind::kNil;
    return {};
  }
  if (*number < 0) return corrupt("a negative length");
  return line[0] == '$' ? read_bulk(*number, target, reply) : read_array(*number, depth, reply);
}

Status RespReader::read_bulk(std::int64_t length_bytes, const RespTarget& target,
                             RespReply& reply) {
  const auto length = static_cast<std::size_t>(length_bytes);
  reply.kind = RespKind::kBulk;
  if (target.size_bytes() == 0) {
    STEMMA_RETURN_IF_ERROR(spend(length));
    reply.text.resize(length);
    STEMMA_RETURN_IF_ERROR(read_exact(std::as_writable_bytes(std::span(reply.text))));
  } else {
    if (length > target.size_bytes()) {
      return Error{ErrorCode::kTooLarge, "reply: a value of " + std::to_string(length) +
                                             " bytes for " + std::to_string(target.size_bytes())};
    }
    const std::size_t first_bytes = std::min(length, target.first.size());
    STEMMA_RETURN_IF_ERROR(read_exact(target.first.first(first_bytes)));
    STEMMA_RETURN_IF_ERROR(read_exact(target.second.first(length - first_bytes)));
  }
  std::array<std::byte, 2> ending = {};
  STEMMA_RETURN_IF_ERROR(read_exact(ending));
  if (ending != std::array{std::byte{'\r'}, std::byte{'\n'}}) return corrupt("a value goes on");
  return {};
}

Status RespReader::read_array(std::int64_t items, int depth, RespReply& reply) {
  if (depth == kRespDepthMax) return Error{ErrorCode::kTooLarge, "reply: arrays too deep"};
  reply.kind = RespKind::kArray;
  reply.items.clear();
  // Grows as items come: what is announced costs nothing.
  for (std::int64_t i = 0; i < items; ++i) {
    STEMMA_RETURN_IF_ERROR(spend(sizeof(RespReply)));
    STEMMA_RETURN_IF_ERROR(read_nested({}, depth + 1, reply.items.emplace_back()));
  }
  return {};
}

Result<std::string_view> RespReader::read_line() {
  static_assert(2 * kRespLineBytesMax <= sizeof(buffer_));
  std::size_t searched = begin_;
  while (true) {
    const void* const found =
        searched == end_ ? nullptr : std::memchr(&buffer_[searched], '\n', end_ - searched);
    if (found != nullptr) {
      const auto newline =
          static_cast<std::size_t>(static_cast<const std::byte*>(found) - buffer_.data());
      const std::string_view line(reinterpret_cast<const char*>(&buffer_[begin_]),
                                  newline - begin_);
      begin_ = newline + 1;
      if (line.size() > kRespLineBytesMax) return corrupt("a line too long");
      if (!line.ends_with('\r')) return corrupt("a line ends without CR");
      return line.substr(0, line.size() - 1);
    }
    if (end_ - begin_ > kRespLineBytesMax) return corrupt("a line without an end");
    // Room for the rest of the line behind what is there of it.
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    searched = end_;
    STEMMA_ASSIGN_OR_RETURN(const std::size_t received,
                            source_.read_some(std::span(buffer_).subspan(end_)));
    end_ += received;
  }
}

Status RespReader::read_exact(std::span<std::byte> target) {
  const std::size_t buffered = std::min(target.size(), end_ - begin_);
  if (buffered != 0) std::memcpy(target.data(), buffer_.data() + begin_, buffered);
  begin_ += buffered;
  target = target.subspan(buffered);
  while (!target.empty()) {
    // Few bytes come through the buffer, together with what follows them.
    const bool direct = target.size() >= buffer_.size() / 4;
    STEMMA_ASSIGN_OR_RETURN(const std::size_t received,
                            source_.read_some(direct ? target : std::span(buffer_)));
    if (direct) {
      target = target.subspan(received);
      continue;
    }
    const std::size_t taken = std::min(target.size(), received);
    std::memcpy(target.data(), buffer_.data(), taken);
    target = target.subspan(taken);
    begin_ = taken;
    end_ = received;
  }
  return {};
}

Status RespReader::spend(std::size_t bytes) {
  if (bytes > budget_bytes_) return Error{ErrorCode::kTooLarge, "reply: beyond its limit"};
  budget_bytes_ -= bytes;
  return {};
}

}  // namespace stemma
