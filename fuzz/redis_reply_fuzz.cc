// Any bytes as the replies of a Redis server, in pieces of any size: errors, or replies within
// their bounds, the same however the bytes were cut. The first byte is the target's size, the
// second the size of a piece.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "base/check.h"
#include "store/resp_reader.h"

namespace {

class BytesSource final : public stemma::ByteSource {
 public:
  BytesSource(std::span<const std::uint8_t> bytes, std::size_t piece_bytes)
      : bytes_(bytes), piece_bytes_(piece_bytes) {}
  stemma::Result<std::size_t> read_some(std::span<std::byte> target) override {
    STEMMA_CHECK(!target.empty(), "there is room for a byte");
    const std::size_t bytes = std::min({target.size(), piece_bytes_, bytes_.size()});
    if (bytes == 0) return stemma::Error{stemma::ErrorCode::kIo, "the end"};
    std::memcpy(target.data(), bytes_.data(), bytes);
    bytes_ = bytes_.subspan(bytes);
    return bytes;
  }

 private:
  std::span<const std::uint8_t> bytes_;
  std::size_t piece_bytes_;
};

// What was read, as text that two ways of reading can be compared by.
void describe(const stemma::RespReply& reply, std::string& text) {
  text += std::to_string(static_cast<int>(reply.kind)) + ":" + std::to_string(reply.number) + ":" +
          reply.text + "[";
  for (const stemma::RespReply& item : reply.items) describe(item, text);
  text += "]";
}

std::string read_all(std::span<const std::uint8_t> bytes, std::size_t target_bytes,
                     std::size_t piece_bytes) {
  BytesSource source(bytes, piece_bytes);
  stemma::RespReader reader(source);
  std::string text;
  while (true) {
    std::array<std::byte, 256> frame = {};
    const auto target = std::span(frame).first(target_bytes);
    const auto front = target.first(target_bytes / 2);
    stemma::RespReply reply;
    const stemma::Status status = reader.read({front, target.subspan(front.size())}, reply);
    if (!status.ok()) return text + std::string(stemma::error_code_name(status.error().code));
    STEMMA_CHECK(reply.text.size() <= stemma::kRespReplyBytesMax, "texts are bounded");
    describe(reply, text);
    if (reply.kind == stemma::RespKind::kBulk && target_bytes != 0) {
      STEMMA_CHECK(reply.number <= static_cast<std::int64_t>(target_bytes), "values fit");
      text.append(reinterpret_cast<const char*>(frame.data()),
                  static_cast<std::size_t>(reply.number));
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size_bytes) {
  if (size_bytes < 2) return 0;
  const std::span<const std::uint8_t> stream(bytes + 2, size_bytes - 2);
  const std::string whole = read_all(stream, bytes[0], SIZE_MAX);
  STEMMA_CHECK(read_all(stream, bytes[0], std::size_t{bytes[1]} + 1) == whole,
               "what is read does not depend on how it came");
  return 0;
}
