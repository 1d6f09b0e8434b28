// Pool fixture: pools and page images full of random bytes, for tests that move pages.
//
// Thread:     one thread.
// Memory:     small pools.
// Cost:       one pass of random numbers over a pool.
// Not here:   rows and slots (mha_pool_test).
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/prng.h"
#include "base/thread_pool.h"
#include "pool/mha_pool.h"

namespace stemma {

inline std::unique_ptr<MhaPool> make_test_pool(const KvShape& shape, KvLayout layout) {
  ThreadPool threads(1);
  auto pool = MhaPool::create(shape, layout, threads);
  EXPECT_TRUE(pool.ok());
  return std::move(pool).value();
}

// Every byte of every page.
inline void fill_randomly(KvPool& pool, Prng& prng) {
  for (std::int64_t layer = 0; layer < pool.shape().layers; ++layer) {
    for (const auto& piece : pool.layer_pieces(layer)) {
      for (const PageId page : id_range(PageId(0), pool.shape().pages)) {
        for (std::int64_t i = 0; i < piece.bytes; ++i) {
          piece.of(page)[i] = static_cast<std::byte>(prng());
        }
      }
    }
  }
}

// The image of one layer of a page, byte by byte: the reference twin of the copies.
inline std::vector<std::byte> expected_layer(const KvPool& pool, PageId page, std::int64_t layer) {
  std::vector<std::byte> image;
  for (const auto& piece : pool.layer_pieces(layer)) {
    image.insert(image.end(), piece.of(page), piece.of(page) + piece.bytes);
  }
  return image;
}

// All layers of a page, one after another.
inline std::vector<std::byte> expected_image(const KvPool& pool, PageId page) {
  std::vector<std::byte> image;
  for (std::int64_t layer = 0; layer < pool.shape().layers; ++layer) {
    const std::vector<std::byte> bytes = expected_layer(pool, page, layer);
    image.insert(image.end(), bytes.begin(), bytes.end());
  }
  return image;
}

}  // namespace stemma
