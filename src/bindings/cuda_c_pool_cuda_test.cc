// The C ABI over a GPU: a program that knows stemma/c.h and stemma/c_cuda.h keeps its pages on a
// GPU, loses them there, and has them back from host memory byte for byte.
#include <cstddef>
#include <optional>
#include <vector>

#include "bindings/c_fixture.h"
#include "device/cuda_fixture.h"
#include "stemma/c.h"
#include "stemma/c_cuda.h"
#include "stemma/c_loans.h"

namespace stemma {
namespace {

constexpr std::int64_t kPages = TieredLife::kTieredPages;
constexpr std::size_t kRowElements = 8;

Text prompt() {
  return text(1, 25);
}

// An engine with a pool on the GPU, host memory below it and a cache.
class COnAGpu : public CudaFixture {
 protected:
  void SetUp() override {
    CudaFixture::SetUp();
    if (IsSkipped()) return;
    const stemma_pool_options options = pool_options(kPages);
    stemma_pool* pool = nullptr;
    ASSERT_EQ(stemma_cuda_pool_open(&options, 0, &pool), STEMMA_OK) << stemma_last_error();
    life_.emplace(pool);
  }
  void TearDown() override {
    life_.reset();
    uploads_.clear();
    CudaFixture::TearDown();
  }

  // Rows of every token, on the device: its number. They live as long as the test.
  stemma_cuda_rows rows_of(const Text& tokens, const std::vector<std::int64_t>& slots) {
    std::vector<float> values;
    for (const std::int32_t token : tokens) {
      values.insert(values.end(), kRowElements, static_cast<float>(token));
    }
    uploads_.push_back(upload(values));
    uploads_.push_back(upload(slots));
    stemma_cuda_rows rows = {};
    rows.struct_size = sizeof(rows);
    rows.k = uploads_[uploads_.size() - 2].bytes();
    rows.v = rows.k;
    rows.slots = uploads_.back().bytes();
    rows.slot_bytes = 8;
    rows.rows = std::ssize(tokens);
    rows.row_stride = kRowElements;
    rows.dtype = STEMMA_F32;
    return rows;
  }

  // Computes on the engine's stream, and publishes. What is freed meanwhile, as a page that is not
  // full, is nobody else's before the stream has done.
  void compute(const Text& tokens) {
    std::int64_t step = -1;
    ASSERT_EQ(stemma_step_begin(life_->cache(), &step), STEMMA_OK);
    stemma_sequence* const sequence = life_->begin(tokens);
    ASSERT_EQ(stemma_reserve(sequence, std::ssize(tokens)), STEMMA_OK);
    const stemma_cuda_rows rows = rows_of(tokens, TieredLife::slots_of(sequence, tokens.size()));
    for (std::int64_t layer = 0; layer < 2; ++layer) {
      ASSERT_EQ(stemma_cuda_pool_store(pool(), layer, &rows, stream().raw()), STEMMA_OK)
          << stemma_last_error();
    }
    ASSERT_EQ(stemma_cuda_pool_record_use(pool(), stream().raw()), STEMMA_OK);
    ASSERT_EQ(stemma_finish(sequence, tokens.data(), tokens.size()), STEMMA_OK);
    ASSERT_TRUE(stream().synchronize().ok());
    ASSERT_EQ(stemma_step_retire(life_->cache(), step), STEMMA_OK);
  }
  // What lies in V of a layer at a slot, read on the engine's stream.
  std::vector<float> row_at(std::int64_t index, std::int64_t slot) {
    const stemma_layer layer = life_->layer(index);
    return download<float>(static_cast<const float*>(layer.v) + TieredLife::element_of(layer, slot),
                           kRowElements);
  }
  void expect_rows(const stemma_sequence* sequence, std::int64_t layer, const Text& tokens) {
    const std::vector<std::int64_t> slots = TieredLife::slots_of(sequence, tokens.size());
    for (std::size_t i = 0; i < slots.size(); ++i) {
      ASSERT_EQ(row_at(layer, slots[i]),
                std::vector<float>(kRowElements, static_cast<float>(tokens[i])));
    }
  }
  stemma_pool* pool() { return life_->pool(); }

  std::optional<TieredLife> life_;
  std::vector<CudaMemory> uploads_;
};

TEST_F(COnAGpu, PagesThatTheDeviceLostComeBackFromHostMemory) {
  compute(prompt());
  life_->lose_the_device(6);
  compute(text(100, 25));  // over the pages that were free
  life_->wait_for(life_->promote(prompt()));
  stemma_sequence* const sequence = life_->begin(prompt());
  ASSERT_EQ(stemma_cached_tokens(sequence), 24);
  expect_rows(sequence, 1, text(1, 24));
  stemma_release(sequence);
}

TEST_F(COnAGpu, AStreamReadsEachLayerOfLentPagesWhenItHasCome) {
  compute(prompt());
  life_->lose_the_device(6);
  const std::int64_t promotion = life_->promote(prompt());
  stemma_sequence* const sequence = life_->begin(prompt());
  const Text tokens = prompt();
  std::int64_t named = 0;
  ASSERT_EQ(stemma_lend(sequence, tokens.data(), tokens.size(), promotion, &named), STEMMA_OK);
  ASSERT_EQ(named, 24);
  EXPECT_EQ(stemma_cuda_wait_layer(life_->cache(), 2, stream().raw()), STEMMA_INVALID_ARGUMENT);
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    ASSERT_EQ(stemma_cuda_wait_layer(life_->cache(), layer, stream().raw()), 1);
    expect_rows(sequence, layer, text(1, 24));
  }
  std::int32_t whole = 0;
  ASSERT_EQ(stemma_end_loans(life_->cache(), &whole), STEMMA_OK);
  EXPECT_EQ(whole, 1);
  EXPECT_EQ(stemma_cuda_wait_layer(life_->cache(), 0, stream().raw()), 1) << "nothing is lent";
  EXPECT_EQ(stemma_published_tokens(sequence), 24);
  ASSERT_EQ(stemma_promotion_release(life_->cache(), promotion), STEMMA_OK);
  stemma_release(sequence);
}

TEST_F(COnAGpu, AForkCopiesThePageInWhichItEnds) {
  const Text tokens = text(1, 6);
  stemma_sequence* const sequence = life_->begin(tokens);
  ASSERT_EQ(stemma_reserve(sequence, 6), STEMMA_OK);
  const stemma_cuda_rows rows = rows_of(tokens, TieredLife::slots_of(sequence, 6));
  ASSERT_EQ(stemma_cuda_pool_store(pool(), 1, &rows, stream().raw()), STEMMA_OK);
  ASSERT_EQ(stemma_cuda_pool_record_use(pool(), stream().raw()), STEMMA_OK);
  ASSERT_EQ(stemma_commit(sequence, tokens.data(), tokens.size()), STEMMA_OK);
  stemma_sequence* fork = nullptr;
  std::int32_t from = -1;
  std::int32_t to = -1;
  ASSERT_EQ(stemma_fork(sequence, 6, &fork, &from, &to), STEMMA_OK);
  ASSERT_EQ(stemma_cuda_pool_copy_page(pool(), from, to, stream().raw()), STEMMA_OK);
  expect_rows(fork, 1, tokens);
  stemma_release(fork);
  stemma_release(sequence);
}

TEST_F(COnAGpu, WhatMakesNoSenseIsRefused) {
  EXPECT_EQ(stemma_cuda_devices(), 1);
  const stemma_pool_options options = pool_options(kPages);
  stemma_pool* other = nullptr;
  EXPECT_EQ(stemma_cuda_pool_open(&options, 1, &other), STEMMA_NOT_FOUND);
  EXPECT_EQ(stemma_cuda_pool_open(&options, 0, nullptr), STEMMA_INVALID_ARGUMENT);
  stemma_cuda_rows rows = rows_of({1}, {0});
  const auto store = [&] { return stemma_cuda_pool_store(pool(), 0, &rows, stream().raw()); };
  EXPECT_EQ(store(), STEMMA_OK);
  ASSERT_TRUE(stream().synchronize().ok());
  rows.slot_bytes = 2;
  EXPECT_EQ(store(), STEMMA_INVALID_ARGUMENT);
  rows.slot_bytes = 8;
  rows.dtype = STEMMA_INT8;
  EXPECT_EQ(store(), STEMMA_INVALID_ARGUMENT);
  rows.dtype = STEMMA_F32;
  rows.rows = INT64_MAX;
  EXPECT_EQ(store(), STEMMA_INVALID_ARGUMENT);
  rows.rows = 2;
  rows.row_stride = INT64_MAX;
  EXPECT_EQ(store(), STEMMA_INVALID_ARGUMENT);
  rows.v = nullptr;
  EXPECT_EQ(store(), STEMMA_INVALID_ARGUMENT);
  rows.struct_size = 0;
  EXPECT_EQ(store(), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(stemma_cuda_pool_copy_page(pool(), 0, kPages, stream().raw()), STEMMA_INVALID_ARGUMENT);
}

TEST_F(COnAGpu, APoolInHostMemoryIsNone) {
  const stemma_pool_options options = pool_options(kPages);
  stemma_pool* host = nullptr;
  ASSERT_EQ(stemma_pool_open(&options, &host), STEMMA_OK);
  EXPECT_EQ(stemma_cuda_pool_record_use(host, stream().raw()), STEMMA_INVALID_ARGUMENT);
  EXPECT_EQ(stemma_cuda_pool_record_use(nullptr, stream().raw()), STEMMA_INVALID_ARGUMENT);
  const std::int64_t slot = 0;
  const std::vector<float> row(kRowElements, 1.0f);
  EXPECT_EQ(stemma_pool_store(pool(), 0, &slot, 1, row.data(), row.data(), STEMMA_F32, 8),
            STEMMA_INVALID_ARGUMENT)
      << "rows of the host";
  stemma_pool_close(host);
}

}  // namespace
}  // namespace stemma
