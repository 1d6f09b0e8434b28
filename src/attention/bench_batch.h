// BenchBatch: the batch of a benchmark, requests of one length that fill a pool's pages in order or
// scattered, and may begin with the same ones.
//
// Thread:     one.
// Memory:     the arrays of a KvBatch.
// Cost:       none worth noting.
// Not here:   keys, values and what is measured (attention_bench and its likes).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "base/math.h"
#include "base/prng.h"
#include "stemma/kv_batch.h"
#include "stemma/kv_shape.h"

namespace stemma {

inline double bench_seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct BenchBatch {
  std::int64_t requests = 0;
  std::int64_t rows_each = 0;       // the last ones of each request
  std::int64_t context_tokens = 0;  // of each request
  std::int64_t page_size = 0;
  std::int64_t shared_tokens = 0;  // in whole pages: the first ones of every request
  std::vector<TokenId> tokens;
  std::vector<std::int32_t> positions;
  std::vector<std::int32_t> row_indptr = {0};
  std::vector<std::int32_t> indptr = {0};
  std::vector<std::int32_t> last_page_tokens;
  std::vector<PageId> pages;

  KvBatch view() const {
    KvBatch batch;
    batch.tokens = tokens;
    batch.positions = positions;
    batch.row_indptr = row_indptr;
    batch.page_table = {indptr, pages, last_page_tokens, page_size};
    return batch;
  }

  // Fills the arrays. `scattered`: pages are shuffled. REQUIRES: the numbers above are set; the
  // pages are enough for requests that share none.
  void fill(std::int64_t page_count, bool scattered) {
    std::vector<PageId> order;
    for (const PageId page : id_range(PageId(0), page_count)) order.push_back(page);
    Prng prng(1);
    if (scattered) std::shuffle(order.begin(), order.end(), prng);
    const std::int64_t pages_each = ceil_div(context_tokens, page_size);
    const std::int64_t shared_pages = shared_tokens / page_size;
    for (std::int64_t request = 0; request < requests; ++request) {
      for (std::int64_t i = 0; i < pages_each; ++i) {
        const std::int64_t place = i < shared_pages ? i : request * pages_each + i;
        pages.push_back(order[static_cast<std::size_t>(place)]);
      }
      for (std::int64_t row = 0; row < rows_each; ++row) {
        positions.push_back(static_cast<std::int32_t>(context_tokens - rows_each + row));
      }
      row_indptr.push_back(static_cast<std::int32_t>(positions.size()));
      indptr.push_back(static_cast<std::int32_t>(pages.size()));
      last_page_tokens.push_back(
          static_cast<std::int32_t>(context_tokens - (pages_each - 1) * page_size));
    }
    tokens.resize(positions.size());
  }
};

}  // namespace stemma
