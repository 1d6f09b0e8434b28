// Any bytes as a page frame: an error, or a frame whose parts lie inside the bytes. The checksum is
// put right in half of the runs, so that what comes behind it is reached too.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "device/buffer.h"
#include "tier/lying_frames.h"
#include "tier/page_frame.h"

namespace {

void read_all(std::span<const std::byte> frame) {
  const auto view = stemma::read_frame(frame);
  if (!view.ok()) return;
  const auto inside = [&](const void* begin, std::size_t bytes) {
    const auto* const first = static_cast<const std::byte*>(begin);
    return first >= frame.data() && first + bytes <= frame.data() + frame.size();
  };
  if (!inside(view->identity.tokens.data(), view->identity.tokens.size_bytes()) ||
      !inside(view->layer_sums.data(), view->layer_sums.size_bytes()) ||
      !inside(view->body.data(), view->body.size())) {
    __builtin_trap();
  }
  if (!stemma::check_frame(frame, view->format, view->identity).ok()) __builtin_trap();
  stemma::ignore_error(stemma::check_body(*view), "either answer is right");
}

}  // namespace

// The input stands for the frame's first bytes; the rest are zeros up to a whole number of pages.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  if (size < 2) return 0;
  const std::size_t pages = 1 + bytes[0] % 8;
  auto frame = stemma::Buffer::allocate(pages * stemma::kFrameAlignment);
  if (!frame.ok()) return 0;
  const std::span<std::byte> all = frame->as<std::byte>();
  std::memcpy(all.data(), bytes + 2, std::min(size - 2, all.size()));
  if (bytes[1] % 2 == 1) stemma::put_checksum_right(all);
  read_all(all);
  return 0;
}
