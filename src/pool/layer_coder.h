// LayerCoder: layers of pages between a device pool and the form in which a tier keeps them, with a
// sum of what is kept: the copies of page_image, encoding where there is a codec.
//
// Thread:     one thread a coder.
// Memory:     the bytes of one layer of a page; none for PageCodec::kPlain.
// Cost:       of kPlain a copy; else that of the codec (page_codec) and a copy more.
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
  // `shape`: of the device pool.
  LayerCoder(PageCodec codec, const KvShape& shape);

  // What a copy of a series reads next, and how it writes: hints, as in copy_layer_out and
  // copy_layer_in.
  struct OutHints {
    const PageLayer<const std::byte>* next = nullptr;
    bool past_caches = false;
  };
  struct InHints {
    const std::byte* next = nullptr;
    bool past_caches = false;
  };

  // Copies a layer of a page to `to` and returns the sum of what it wrote; nullopt if the layer has
  // no encoded form (PageCodec).
  std::optional<std::uint32_t> try_copy_out(const PageLayer<const std::byte>& from,
                                            std::span<std::byte> to, OutHints hints);
  // The inverse. False if the sum of `from` is not `sum`: what was written must not be used.
  [[nodiscard]] bool try_copy_in(std::span<const std::byte> from, std::uint32_t sum,
                                 const PageLayer<std::byte>& to, InHints hints);
  // All layers of a page, as try_copy_in.
  [[nodiscard]] bool try_copy_page_in(std::span<const std::byte> image,
                                      std::span<const std::uint32_t> sums, KvPool& pool,
                                      PageId page);

 private:
  PageCodec codec_;
  KvShape shape_;
  std::vector<std::byte> layer_;
};

}  // namespace stemma
