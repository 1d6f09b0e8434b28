// Pool fixture: pools and page images full of random bytes, for tests that move pages, and rows to
// store.
//
// Thread:     one thread.
// Memory:     small pools.
// Cost:       one pass of random numbers over a pool.
// Not here:   slots, and what is expected of a store (mha_pool_test, scaled_pool_test).
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
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

// Rows of f32, a little wider than they need to be.
struct DrawnRows {
  DrawnRows(const KvShape& shape, std::int64_t rows, Prng& prng)
      : stride(shape.row_elements() + 4), values(static_cast<std::size_t>(rows * stride)) {
    for (float& value : values) value = static_cast<float>(prng.unit() * 4 - 2);
    view = {.elements = values.data(),
            .dtype = DType::kF32,
            .rows = rows,
            .heads = shape.heads,
            .head_dim = shape.head_dim,
            .row_stride = stride};
  }

  float at(std::int64_t row, std::int64_t i) const {
    return values[static_cast<std::size_t>(row * stride + i)];
  }
  std::span<const float> head(const KvShape& shape, std::size_t row, std::int64_t head) const {
    const auto begin = static_cast<std::int64_t>(row) * stride + head * shape.head_dim;
    return std::span(values).subspan(static_cast<std::size_t>(begin),
                                     static_cast<std::size_t>(shape.head_dim));
  }

  std::int64_t stride;
  std::vector<float> values;
  KvRows view;
};

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
