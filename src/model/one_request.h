// OneRequest: batches of one request on the first pages of a pool, for tests of Runners.
//
// Thread:     one thread.
// Memory:     the last batch.
// Cost:       O(tokens so far) a batch.
// Not here:   several requests, scattered pages (model/runner_trial).
#pragma once

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "base/math.h"
#include "stemma/ids.h"
#include "stemma/kv_batch.h"

namespace stemma {

class OneRequest {
 public:
  explicit OneRequest(std::int64_t page_size) : page_size_(page_size) {}
  // The same, which has advanced by `tokens`.
  OneRequest(std::int64_t page_size, std::vector<TokenId> tokens) : page_size_(page_size) {
    advance(std::move(tokens));
  }

  // Token i of the request has slot i; logits of the last row are wanted. Valid until the next.
  KvBatch next(std::vector<TokenId> tokens) {
    advance(std::move(tokens));
    return batch();
  }
  // The batch that `next` gave last.
  KvBatch batch() const {
    return {.tokens = tokens_,
            .positions = positions_,
            .write_slots = slots_,
            .row_indptr = row_indptr_,
            .requests = ids_,
            .page_table = {indptr_, pages_, last_page_tokens_, page_size_},
            .logit_rows = logit_rows_};
  }

 private:
  void advance(std::vector<TokenId> tokens) {
    tokens_ = std::move(tokens);
    const auto rows = static_cast<std::int32_t>(tokens_.size());
    positions_.resize(tokens_.size());
    std::iota(positions_.begin(), positions_.end(), static_cast<std::int32_t>(computed_));
    slots_.clear();
    for (const std::int32_t position : positions_) slots_.emplace_back(position);
    computed_ += rows;
    pages_.clear();
    for (const PageId page : id_range(PageId(0), ceil_div(computed_, page_size_))) {
      pages_.push_back(page);
    }
    row_indptr_ = {0, rows};
    indptr_ = {0, static_cast<std::int32_t>(pages_.size())};
    last_page_tokens_ = {static_cast<std::int32_t>((computed_ - 1) % page_size_ + 1)};
    logit_rows_ = {rows - 1};
  }

  std::int64_t page_size_;
  std::int64_t computed_ = 0;
  std::vector<TokenId> tokens_;
  std::vector<std::int32_t> positions_;
  std::vector<SlotId> slots_;
  std::vector<std::int32_t> row_indptr_;
  std::vector<RequestId> ids_ = {RequestId(0)};
  std::vector<std::int32_t> indptr_;
  std::vector<PageId> pages_;
  std::vector<std::int32_t> last_page_tokens_;
  std::vector<std::int32_t> logit_rows_;
};

}  // namespace stemma
