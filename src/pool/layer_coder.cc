#include "pool/layer_coder.h"

#include "base/crc32c.h"

namespace stemma {

LayerCoder::LayerCoder(PageCodec codec, const KvShape& shape) : codec_(codec), shape_(shape) {
  if (codec == PageCodec::kPlain) return;
  layer_.resize(static_cast<std::size_t>(encoded_layer_bytes(PageCodec::kPlain, shape)));
}

std::optional<std::uint32_t> LayerCoder::try_copy_out(const PageLayer<const std::byte>& from,
                                                      std::span<std::byte> to, OutHints hints) {
  if (codec_ == PageCodec::kPlain) {
    return copy_layer_out(from, to.data(), hints.next, hints.past_caches);
  }
  copy_layer_out(from, layer_.data(), nullptr, false);
  if (!try_encode_layer(codec_, shape_, layer_, to)) return std::nullopt;
  return crc32c(to);
}

bool LayerCoder::try_copy_in(std::span<const std::byte> from, std::uint32_t sum,
                             const PageLayer<std::byte>& to, InHints hints) {
  if (codec_ == PageCodec::kPlain) {
    return copy_layer_in(from.data(), to, hints.next, hints.past_caches) == sum;
  }
  if (crc32c(from) != sum) return false;
  decode_layer(codec_, shape_, from, layer_);
  copy_layer_in(layer_.data(), to, nullptr, false);
  return true;
}

bool LayerCoder::try_copy_page_in(std::span<const std::byte> image,
                                  std::span<const std::uint32_t> sums, KvPool& pool, PageId page) {
  if (codec_ == PageCodec::kPlain) {
    return !copy_page_in(pool, page, {0, pool.shape().layers}, image, sums).has_value();
  }
  const auto bytes = static_cast<std::size_t>(encoded_layer_bytes(codec_, shape_));
  for (std::size_t layer = 0; layer < sums.size(); ++layer) {
    const PageLayer<std::byte> to = {pool.layer_pieces(static_cast<std::int64_t>(layer)), page};
    if (!try_copy_in(image.subspan(layer * bytes, bytes), sums[layer], to, {})) return false;
  }
  return true;
}

}  // namespace stemma
