#include "pool/page_image.h"

#include "base/check.h"
#include "base/crc32c.h"

namespace stemma {

namespace {

void check_range(const KvPool& pool, PageId page, LayerRange layers) {
  STEMMA_CHECK(pool.device() == DeviceKind::kCpu, "images are copied by the host");
  STEMMA_CHECK(page.valid() && page.value() < pool.shape().pages, "a page of the pool");
  STEMMA_CHECK(0 <= layers.first && layers.first <= layers.end, "a range");
  STEMMA_CHECK_LE(layers.end, pool.shape().layers);
}

std::size_t bytes_of(LayerRange layers, std::size_t layer_bytes) {
  return static_cast<std::size_t>(layers.layers()) * layer_bytes;
}

}  // namespace

std::size_t page_image_bytes(const KvPool& pool) {
  return static_cast<std::size_t>(pool.shape().layers * pool.layer_bytes());
}

void copy_page_out(const KvPool& pool, PageId page, LayerRange layers, std::span<std::byte> image,
                   std::span<std::uint32_t> sums) {
  check_range(pool, page, layers);
  const auto layer_bytes = static_cast<std::size_t>(pool.layer_bytes());
  STEMMA_CHECK_EQ(image.size(), bytes_of(layers, layer_bytes));
  STEMMA_CHECK_EQ(sums.size(), static_cast<std::size_t>(layers.layers()));
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const std::int64_t layer = layers.first + static_cast<std::int64_t>(i);
    const PageLayer<const std::byte> from = {pool.layer_pieces(layer), page};
    sums[i] = copy_layer_out(from, image.data() + i * layer_bytes, nullptr, false);
  }
}

std::optional<std::int64_t> copy_page_in(KvPool& pool, PageId page, LayerRange layers,
                                         std::span<const std::byte> image,
                                         std::span<const std::uint32_t> sums) {
  check_range(pool, page, layers);
  const auto layer_bytes = static_cast<std::size_t>(pool.layer_bytes());
  STEMMA_CHECK_EQ(image.size(), bytes_of(layers, layer_bytes));
  STEMMA_CHECK_EQ(sums.size(), static_cast<std::size_t>(layers.layers()));
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const std::int64_t layer = layers.first + static_cast<std::int64_t>(i);
    const PageLayer<std::byte> to = {pool.layer_pieces(layer), page};
    const std::uint32_t sum = copy_layer_in(image.data() + i * layer_bytes, to, nullptr, false);
    if (sum != sums[i]) return layer;
  }
  return std::nullopt;
}

// While a piece is copied, the same piece of the next layer is asked for: that is far enough ahead
// even of small pieces.
std::uint32_t copy_layer_out(const PageLayer<const std::byte>& from, std::byte* to,
                             const PageLayer<const std::byte>* next, bool past_caches) {
  std::uint32_t sum = 0;
  const auto* next_piece = next != nullptr ? next->pieces.begin() : nullptr;
  for (const auto& piece : from.pieces) {
    CrcCopy copy;
    copy.from = {piece.of(from.page), static_cast<std::size_t>(piece.bytes)};
    copy.to = to;
    copy.next = next_piece != nullptr ? (next_piece++)->of(next->page) : nullptr;
    copy.past_caches = past_caches;
    sum = copy_crc32c(copy, sum);
    to += piece.bytes;
  }
  return sum;
}

std::uint32_t copy_layer_in(const std::byte* from, const PageLayer<std::byte>& to,
                            const std::byte* next, bool past_caches) {
  std::uint32_t sum = 0;
  for (const auto& piece : to.pieces) {
    CrcCopy copy;
    copy.from = {from, static_cast<std::size_t>(piece.bytes)};
    copy.to = piece.of(to.page);
    copy.next = next;
    copy.past_caches = past_caches;
    sum = copy_crc32c(copy, sum);
    from += piece.bytes;
    if (next != nullptr) next += piece.bytes;
  }
  return sum;
}

}  // namespace stemma
