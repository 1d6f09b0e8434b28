// CudaPoolFixture: a CUDA pool and its twin in host memory, of the same random bytes, for tests
// that move pages.
//
// Thread:     a test's.
// Memory:     two small pools.
// Cost:       a copy for every piece of every page.
// Not here:   what stores do (cuda_pool_cuda_test).
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "device/cuda_fixture.h"
#include "pool/cuda_pool.h"
#include "pool/host_pool.h"
#include "pool/kv_pool_factory.h"
#include "pool/pool_fixture.h"

namespace stemma {

inline constexpr KvLayout kAllLayouts[] = {KvLayout::kLayerFirst, KvLayout::kPageFirst};

// The first channels of each head.
inline HeavyChannels first_channels(const KvShape& shape) {
  if (shape.kind != KvKind::kDoubleSparse) return {};
  HeavyChannels heavy = {shape.layers, shape.heads, shape.label_channels, {}};
  for (std::int64_t head = 0; head < shape.layers * shape.heads; ++head) {
    for (std::int32_t i = 0; i < shape.label_channels; ++i) heavy.channels.push_back(i);
  }
  return heavy;
}

class CudaPoolFixture : public CudaFixture {
 protected:
  void TearDown() override {
    cuda_.reset();
    CudaFixture::TearDown();
  }

  void make_pools(const KvShape& shape, KvLayout layout) {
    ThreadPool threads(1);
    cuda_.reset();
    auto twin = make_kv_pool(shape, layout, threads, first_channels(shape));
    auto cuda = CudaPool::create(device(), shape, layout, first_channels(shape));
    ASSERT_TRUE(twin.ok());
    ASSERT_TRUE(cuda.ok()) << cuda.error().detail;
    twin_ = std::move(twin).value();
    cuda_ = std::move(cuda).value();
    fill_randomly(*twin_, prng_);
    for (const PageId page : id_range(PageId(0), shape.pages)) upload_page(page, twin_image(page));
  }

  // Every byte of a page of the device, as an image has them.
  void upload_page(PageId page, std::span<const std::byte> image) {
    const PinnedMemory pinned = pinned_bytes(image.size());
    std::memcpy(pinned.bytes(), image.data(), image.size());
    const std::byte* from = pinned.bytes();
    for (std::int64_t layer = 0; layer < cuda_->shape().layers; ++layer) {
      for (const auto& piece : cuda_->layer_pieces(layer)) {
        const auto bytes = static_cast<std::size_t>(piece.bytes);
        ASSERT_TRUE(stream().copy_in(piece.of(page), from, bytes).ok());
        from += bytes;
      }
    }
    ASSERT_TRUE(stream().synchronize().ok());
  }
  // The inverse, of some layers, when all that was queued on `on` before is done.
  std::vector<std::byte> download_layers(CudaStream& on, PageId page, LayerRange layers) {
    const auto bytes = static_cast<std::size_t>(layers.layers() * cuda_->layer_bytes());
    const PinnedMemory pinned = pinned_bytes(bytes);
    std::byte* to = pinned.bytes();
    for (std::int64_t layer = layers.first; layer < layers.end; ++layer) {
      for (const auto& piece : cuda_->layer_pieces(layer)) {
        EXPECT_TRUE(on.copy_out(to, piece.of(page), static_cast<std::size_t>(piece.bytes)).ok());
        to += piece.bytes;
      }
    }
    EXPECT_TRUE(on.synchronize().ok());
    return {pinned.bytes(), pinned.bytes() + bytes};
  }
  std::vector<std::byte> cuda_image(PageId page) {
    return download_layers(stream(), page, {0, cuda_->shape().layers});
  }

  std::vector<std::byte> twin_image(PageId page) const { return expected_image(*twin_, page); }
  std::vector<std::byte> drawn_image() {
    std::vector<std::byte> image(page_image_bytes(*twin_));
    for (std::byte& byte : image) byte = static_cast<std::byte>(prng_());
    return image;
  }

  std::unique_ptr<HostPool> make_host(std::int64_t pages, KvLayout layout) const {
    ThreadPool threads(1);
    HostPoolOptions options;
    options.pages = pages;
    options.layers = cuda_->shape().layers;
    options.layer_bytes = cuda_->layer_bytes();
    options.layout = layout;
    return HostPool::create(options, threads).value();
  }

  Prng prng_{20261123};
  std::unique_ptr<KvPool> twin_;
  std::unique_ptr<CudaPool> cuda_;
};

}  // namespace stemma
