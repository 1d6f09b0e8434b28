// HashModel: a Runner whose keys and values are a hash of every byte before them, as the pool has
// them: what follows a wrong byte is wrong, and the same bytes always give the same.
//
// Thread:     tests.
// Memory:     the page table of each request's last step.
// Cost:       O(context) a row.
// Not here:   anything that ships.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "base/thread_pool.h"
#include "model/adapter_book.h"
#include "pool/kv_pool_factory.h"
#include "stemma/kv_pool.h"
#include "stemma/options.h"
#include "stemma/runner.h"

namespace stemma {

class HashModel final : public Runner {
 public:
  static constexpr std::int64_t kVocab = 64;
  static constexpr std::int64_t kLayers = 2;
  static constexpr std::int64_t kHeadDim = 4;

  // A pool of its shape, with the pages of an engine with these options.
  static std::unique_ptr<KvPool> make_pool(const KvCacheOptions& options) {
    ThreadPool threads(1);
    const KvShape shape = {.layers = kLayers,
                           .pages = options.pages,
                           .page_size = options.page_size,
                           .heads = 1,
                           .head_dim = kHeadDim,
                           .dtype = DType::kF32};
    return std::move(make_kv_pool(shape, KvLayout::kLayerFirst, threads)).value();
  }

  // Those that there are from now on, and no others.
  void have_adapters(const std::vector<AdapterIdentity>& all) {
    book_ = std::make_unique<AdapterBook>();
    for (const AdapterIdentity& one : all) {
      EXPECT_TRUE(book_->add(one, book_->free_place()).ok());
    }
  }
  AdapterBook& book() { return *book_; }
  const AdapterBook* adapters() const override { return book_.get(); }

  Result<LogitsView> forward(const KvBatch& batch, KvPools pools) override {
    if (std::exchange(fails_next, false)) return Error{ErrorCode::kInternal, "out of order"};
    if (fails_without_outputs && batch.outputs() == 0) {
      return Error{ErrorCode::kInternal, "out of order"};
    }
    if (batch.outputs() == 0 && batch.positions[0] == failing_position) {
      return Error{ErrorCode::kInternal, "out of order"};
    }
    logits_.assign(static_cast<std::size_t>(batch.outputs() * kVocab), 0.0f);
    std::size_t output = 0;
    for (std::size_t r = 0; r < batch.requests.size(); ++r) {
      const auto pages = batch.page_table.pages_of(static_cast<std::int64_t>(r));
      pages_of[batch.requests[r]].assign(pages.begin(), pages.end());
      // What an adapter makes of a token depends on its digest alone.
      const AdapterId adapter = batch.adapters.empty() ? AdapterId() : batch.adapters[r];
      const std::uint64_t change = adapter.valid() ? book_->at(adapter).identity().digest[0] : 0;
      for (std::int32_t row = batch.row_indptr[r]; row < batch.row_indptr[r + 1]; ++row) {
        const auto i = static_cast<std::size_t>(row);
        const std::uint64_t hash =
            change ^ extend(hash_of(pages_of[batch.requests[r]], batch.positions[i], pools.full),
                            batch.tokens[i]);
        const bool wrong = batch.positions[i] == miscomputed_position;
        write(pools.full, batch.write_slots[i], wrong ? hash + 1 : hash);
        if (output == batch.logit_rows.size() || batch.logit_rows[output] != row) continue;
        logits_[output++ * kVocab + hash % kVocab] = 1.0f;
      }
    }
    computed_rows += batch.rows();
    return LogitsView{logits_.data(), batch.outputs(), kVocab};
  }

  Status copy_pages(KvPools pools, const PageCopies& copies) override {
    if (std::exchange(fails_next_copy, false)) return Error{ErrorCode::kInternal, "no copy"};
    return Runner::copy_pages(pools, copies);
  }

  bool fails_next_copy = false;  // of pages
  bool fails_without_outputs = false;
  std::int64_t failing_position = -1;  // whose rows fail where they come first, without outputs
  bool fails_next = false;
  std::int64_t miscomputed_position = -1;  // whose row comes out wrong
  std::int64_t computed_rows = 0;
  std::map<RequestId, std::vector<PageId>> pages_of;  // as they were in its last step

 private:
  static std::uint64_t extend(std::uint64_t hash, TokenId token) {
    return mix64(hash ^ mix64(static_cast<std::uint64_t>(token) + 1));
  }

  static std::uint64_t hash_of(const std::vector<PageId>& pages, std::int64_t positions,
                               const KvPool& pool) {
    std::uint64_t hash = 17;
    for (std::int64_t position = 0; position < positions; ++position) {
      for (std::int64_t layer = 0; layer < kLayers; ++layer) {
        const KvLayerView view = pool.layer_view(layer);
        const auto page = pages[static_cast<std::size_t>(position / view.page_size)];
        const std::int64_t at =
            page.value() * view.page_stride + position % view.page_size * view.token_stride;
        for (const void* const side : {view.k, view.v}) {
          std::uint64_t words[2];
          std::memcpy(words, static_cast<const float*>(side) + at, sizeof words);
          hash = mix64(mix64(hash ^ words[0]) ^ words[1]);
        }
      }
    }
    return hash;
  }

  static void write(KvPool& pool, SlotId slot, std::uint64_t hash) {
    const std::int64_t slots[] = {slot.value()};
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
      float row[2][kHeadDim];
      for (auto& side : row) {
        for (float& value : side) {
          hash = mix64(hash + 1);
          value = static_cast<float>(hash >> 40);
        }
      }
      const auto rows = [](const float* elements) {
        return KvRows{elements, DType::kF32, DeviceKind::kCpu, 1, 1, kHeadDim, kHeadDim};
      };
      EXPECT_TRUE(pool.store(layer, slots, rows(row[0]), rows(row[1])).ok());
    }
  }

  std::unique_ptr<AdapterBook> book_ = std::make_unique<AdapterBook>();
  std::vector<float> logits_;
};

}  // namespace stemma
