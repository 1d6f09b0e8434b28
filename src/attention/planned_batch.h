// For the tests of plans: batches of which only the extent matters.
//
// Thread:     one test.
// Memory:     a few arrays.
// Cost:       none.
// Not here:   keys and values (attention_fixture).
#pragma once

#include <cstdint>
#include <vector>

#include "stemma/kv_batch.h"

namespace stemma {

// A batch whose requests have these many tokens, the last `rows` of them to compute. Pages of 1.
struct PlannedBatch {
  // The first `shared` of them lie on the first pages that there are, the others on pages of their
  // own.
  void add(std::int64_t tokens, std::int64_t rows, std::int64_t shared = 0) {
    for (std::int64_t i = 0; i < rows; ++i) {
      positions.push_back(static_cast<std::int32_t>(tokens - rows + i));
    }
    for (std::int64_t i = 0; i < tokens; ++i) {
      pages.emplace_back(static_cast<std::int32_t>(i < shared ? i : next_page++));
    }
    indptr.push_back(static_cast<std::int32_t>(pages.size()));
    last_page_tokens.push_back(1);
    row_indptr.push_back(static_cast<std::int32_t>(positions.size()));
    tokens_ids.resize(positions.size());
  }

  KvBatch view() const {
    KvBatch batch;
    batch.tokens = tokens_ids;
    batch.positions = positions;
    batch.row_indptr = row_indptr;
    batch.page_table = batch.windowed_table = {indptr, pages, last_page_tokens, 1};
    return batch;
  }

  std::int64_t next_page = 10000;
  std::vector<TokenId> tokens_ids;
  std::vector<std::int32_t> positions;
  std::vector<std::int32_t> row_indptr = {0};
  std::vector<std::int32_t> indptr = {0};
  std::vector<std::int32_t> last_page_tokens;
  std::vector<PageId> pages;
};

}  // namespace stemma
