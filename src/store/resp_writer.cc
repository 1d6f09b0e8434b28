#include "store/resp_writer.h"

#include <charconv>

#include "base/check.h"

namespace stemma {

namespace {

// "$12\r\n", in `room`.
std::string_view length_line(char type, std::size_t number, std::span<char, 24> room) {
  room[0] = type;
  char* const end = std::to_chars(room.data() + 1, room.data() + room.size() - 2, number).ptr;
  end[0] = '\r';
  end[1] = '\n';
  return {room.data(), static_cast<std::size_t>(end + 2 - room.data())};
}

}  // namespace

void RespWriter::begin(std::size_t words) {
  char room[24];
  append(length_line('*', words, room));
}

void RespWriter::add(std::string_view word) {
  char room[24];
  append(length_line('$', word.size(), room));
  append(word);
  append("\r\n");
}

void RespWriter::add_pointed(std::span<const std::byte> first, std::span<const std::byte> second) {
  char room[24];
  append(length_line('$', first.size() + second.size(), room));
  for (const std::span<const std::byte> piece : {first, second}) {
    if (!piece.empty()) pieces_.push_back({piece.data(), 0, piece.size()});
  }
  append("\r\n");
}

void RespWriter::append(std::string_view text) {
  if (!pending()) {
    words_.clear();
    pieces_.clear();
    next_ = 0;
    next_offset_ = 0;
  }
  if (pieces_.empty() || pieces_.back().value != nullptr) {
    pieces_.push_back({nullptr, words_.size(), 0});
  }
  words_ += text;
  pieces_.back().size_bytes += text.size();
}

std::size_t RespWriter::gather(std::span<iovec> target) const {
  std::size_t filled = 0;
  std::size_t offset = next_offset_;
  for (std::size_t i = next_; i < pieces_.size() && filled < target.size(); ++i) {
    const Piece& piece = pieces_[i];
    const std::byte* const from =
        piece.value != nullptr ? piece.value
                               : reinterpret_cast<const std::byte*>(words_.data()) + piece.offset;
    // iovec is for reading and for writing, hence without const.
    target[filled++] = {const_cast<std::byte*>(from) + offset, piece.size_bytes - offset};
    offset = 0;
  }
  return filled;
}

void RespWriter::sent(std::size_t bytes) {
  while (bytes != 0) {
    STEMMA_CHECK(pending(), "no more was sent than gathered");
    const std::size_t rest = pieces_[next_].size_bytes - next_offset_;
    if (bytes < rest) {
      next_offset_ += bytes;
      return;
    }
    bytes -= rest;
    ++next_;
    next_offset_ = 0;
  }
}

}  // namespace stemma
