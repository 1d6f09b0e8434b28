// LayerCoder: layers of pages between a device pool and their encoded form, with a sum taken of the
// encoded bytes: the coded twin of the copies of page_image.
//
// Thread:     one thread a coder.
// Memory:     the bytes of one layer of a page; none for PageCodec::kPlain.
// Cost:       that of the codec (page_codec) and one copy more.
// Not here:   how a row is encoded (page_codec), where encoded layers are kept (host_pool).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "pool/page_codec.h"
#include "pool/page_image.h"
#include "stemma/kv_shape.h"

namespace stemma {

class LayerCoder {
 public:
  // `shape`: of the device pool, which is an MhaPool unless the codec is kPlain.
  LayerCoder(PageCodec codec, const KvShape& shape);

  bool plain() const noexcept { return codec_ == PageCodec::kPlain; }

  // Encodes a layer of a page to `to` and returns the sum of what it wrote; nullopt if the layer
  // has no encoded form (PageCodec). REQUIRES: !plain().
  std::optional<std::uint32_t> try_copy_out(const PageLayer<const std::byte>& from,
                                            std::span<std::byte> to);
  // Compares the sum of `from` with `sum`, and decodes it to a layer of a page. False, and nothing
  // written, if it is wrong. REQUIRES: !plain().
  [[nodiscard]] bool try_copy_in(std::span<const std::byte> from, std::uint32_t sum,
                                 const PageLayer<std::byte>& to);

 private:
  PageCodec codec_;
  KvShape shape_;
  std::vector<std::byte> layer_;
};

}  // namespace stemma
