#include "pool/layer_coder.h"

#include "base/check.h"
#include "base/crc32c.h"

namespace stemma {

LayerCoder::LayerCoder(PageCodec codec, const KvShape& shape) : codec_(codec), shape_(shape) {
  if (plain()) return;
  layer_.resize(static_cast<std::size_t>(encoded_layer_bytes(PageCodec::kPlain, shape)));
}

std::optional<std::uint32_t> LayerCoder::try_copy_out(const PageLayer<const std::byte>& from,
                                                      std::span<std::byte> to) {
  STEMMA_CHECK(!plain(), "plain layers are copied by page_image");
  copy_layer_out(from, layer_.data(), nullptr, false);
  if (!try_encode_layer(codec_, shape_, layer_, to)) return std::nullopt;
  return crc32c(to);
}

bool LayerCoder::try_copy_in(std::span<const std::byte> from, std::uint32_t sum,
                             const PageLayer<std::byte>& to) {
  STEMMA_CHECK(!plain(), "plain layers are copied by page_image");
  if (crc32c(from) != sum) return false;
  decode_layer(codec_, shape_, from, layer_);
  copy_layer_in(layer_.data(), to, nullptr, false);
  return true;
}

}  // namespace stemma
