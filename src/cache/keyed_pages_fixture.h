// KeyedPages: pages of some layers in host memory for tests, each with bytes that its key says; and
// texts that are made of such pages.
//
// Thread:     one.
// Memory:     a host pool; a device pool of two pages, which says what an image is like.
// Cost:       bytes are drawn anew for each look at a page.
// Not here:   which pages of which texts these are (the tree).
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "pool/pool_fixture.h"
#include "prefix/namespace_digest.h"
#include "prefix/namespace_examples.h"
#include "tier/host_image_file.h"
#include "tier/page_work.h"

namespace stemma {

class KeyedPages {
 public:
  static constexpr std::int64_t kPageSize = 4;
  static constexpr std::int64_t kLayers = 2;

  // Pages of the same key have other bytes where `seed` is another.
  KeyedPages(std::int64_t pages, std::uint64_t seed)
      : device_(make_test_pool({.layers = kLayers,
                                .pages = 2,
                                .page_size = kPageSize,
                                .heads = 2,
                                .head_dim = 20,
                                .dtype = DType::kBF16},
                               KvLayout::kLayerFirst)),
        seed_(seed) {
    ThreadPool threads(1);
    HostPoolOptions options;
    options.pages = pages;
    options.layers = kLayers;
    options.layer_bytes = device_->layer_bytes();
    pool_ = HostPool::create(options, threads).value();
  }

  std::vector<std::byte> bytes_of(const PageKey& key) const {
    std::uint64_t seed = 0;
    std::memcpy(&seed, key.bytes.data(), sizeof(seed));
    Prng prng(seed + seed_);
    std::vector<std::byte> bytes(page_image_bytes(*device_));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(prng());
    return bytes;
  }
  static std::vector<std::uint32_t> sums_of(std::span<const std::byte> bytes) {
    const std::size_t half = bytes.size() / kLayers;
    return {crc32c(bytes.first(half)), crc32c(bytes.subspan(half))};
  }
  void put(PageId id, const PageKey& key) {
    const std::vector<std::byte> bytes = bytes_of(key);
    ASSERT_EQ(pool_->write_image(id, key, bytes, sums_of(bytes)), MoveVerdict::kDone);
  }
  // Whether the page is whole there, with the right bytes.
  bool has(PageId id, const PageKey& key) {
    std::vector<std::byte> bytes(page_image_bytes(*device_));
    std::vector<std::uint32_t> sums(kLayers);
    const bool whole = pool_->read_image(id, key, bytes, sums) == MoveVerdict::kDone;
    return whole && bytes == bytes_of(key);
  }
  void damage(PageId id) { pool_->layer_image(id, 1)[7] ^= std::byte{1}; }

  HostImage image(const std::string& path, const NamespaceDigest& model) {
    return HostImage{*pool_, path, {page_format(*device_), model}};
  }

 private:
  std::unique_ptr<MhaPool> device_;
  std::uint64_t seed_;
  std::unique_ptr<HostPool> pool_;
};

// `pages` pages of a text, which no other first token begins.
inline std::vector<TokenId> text_of(TokenId first, std::int64_t pages) {
  std::vector<TokenId> text;
  for (std::int64_t i = 0; i < pages * KeyedPages::kPageSize; ++i) {
    text.push_back(static_cast<TokenId>(first * 1000 + i));
  }
  return text;
}
inline std::vector<TokenId> joined(std::vector<TokenId> text, const std::vector<TokenId>& more) {
  text.insert(text.end(), more.begin(), more.end());
  return text;
}

}  // namespace stemma
