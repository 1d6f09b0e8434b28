// Layers with a window of the C ABI (stemma/c_windows.h).
#include "stemma/c_windows.h"

#include <algorithm>
#include <span>
#include <utility>

#include "bindings/c_handles.h"
#include "stemma/options.h"

namespace stemma {

namespace {

bool has_window(const stemma_cache& cache) {
  return cache.kv->options().window_tokens > 0;
}

stemma_status refuse_no_window() {
  return refuse("the cache was opened without window_tokens");
}

// The windowed pages of a sequence that computes from `first_token` on.
std::span<const PageId> windowed_row(stemma_cache& cache, const stemma_sequence& sequence,
                                     std::int64_t first_token) {
  cache.windowed_row.resize(sequence.held.pages().size());
  cache.kv->copy_windowed(sequence.held, first_token, cache.windowed_row);
  return cache.windowed_row;
}

}  // namespace

}  // namespace stemma

int64_t stemma_windowed_pages_max(int64_t window_tokens, int64_t page_size, int64_t chunk_tokens) {
  constexpr int64_t kTokensMax = int64_t{1} << 40;
  for (const int64_t tokens : {window_tokens, page_size, chunk_tokens}) {
    if (tokens < 1 || tokens > kTokensMax) return -1;
  }
  return stemma::windowed_pages_max(window_tokens, page_size, chunk_tokens);
}

stemma_status stemma_advance(stemma_sequence* sequence, int64_t computed_tokens) {
  return stemma::guarded([&] {
    if (!stemma::is_held(sequence) || computed_tokens < 0 ||
        computed_tokens > sequence->held.capacity_tokens()) {
      return stemma::refuse("a sequence, and tokens that it has room for");
    }
    if (sequence->held.on_loan()) return stemma::refuse_loan();
    sequence->cache->kv->advance(sequence->held, computed_tokens);
    return stemma_status{STEMMA_OK};
  });
}

stemma_status stemma_windowed_pages(const stemma_sequence* sequence, int64_t first_token,
                                    int32_t* pages, size_t count) {
  return stemma::guarded([&] {
    if (!stemma::is_held(sequence) || first_token < 0 || (pages == nullptr && count != 0)) {
      return stemma::refuse("a sequence, a token and pages are given");
    }
    if (!stemma::has_window(*sequence->cache)) return stemma::refuse_no_window();
    if (count != sequence->held.pages().size()) {
      return stemma::refuse("count must be that of stemma_pages");
    }
    const auto row = stemma::raw(stemma::windowed_row(*sequence->cache, *sequence, first_token));
    std::copy(row.begin(), row.end(), pages);
    return stemma_status{STEMMA_OK};
  });
}

stemma_status stemma_batch_windowed_pages(stemma_cache* cache, stemma_sequence* const* sequences,
                                          const int64_t* first_tokens, const int64_t* tokens,
                                          size_t count, const int32_t** indptr,
                                          const int32_t** pages, const int32_t** last_page_tokens) {
  return stemma::guarded([&] {
    const stemma::CPageTable table = {indptr, pages, last_page_tokens};
    if (first_tokens == nullptr && count > 0) return stemma::refuse("first_tokens is NULL");
    if (const auto status = stemma::check_batch(cache, sequences, tokens, count, table);
        status != STEMMA_OK) {
      return status;
    }
    if (!cache->windowed_batch.has_value()) return stemma::refuse_no_window();
    if (std::any_of(first_tokens, first_tokens + count, [](int64_t at) { return at < 0; })) {
      return stemma::refuse("first_tokens must be at least 0");
    }
    cache->windowed_batch->clear();
    for (std::size_t i = 0; i < count; ++i) {
      cache->windowed_batch->add(stemma::windowed_row(*cache, *sequences[i], first_tokens[i]),
                                 tokens[i]);
    }
    stemma::tell(*cache->windowed_batch, table);
    return stemma_status{STEMMA_OK};
  });
}

stemma_status stemma_fork_windowed(const stemma_sequence* sequence, int64_t computed_tokens,
                                   stemma_sequence** fork, stemma_forked_tail* tail) {
  return stemma::guarded([&] {
    if (fork == nullptr) return stemma::refuse("fork is NULL");
    stemma_forked_tail told = {
        .struct_size = 0, .from = -1, .to = -1, .windowed_from = -1, .windowed_to = -1};
    if (const auto status = stemma::fill_struct(told, tail); status != STEMMA_OK) return status;
    stemma::ForkedSequence forked;
    if (const auto status = stemma::try_fork(sequence, computed_tokens, forked);
        status != STEMMA_OK) {
      return status;
    }
    told.from = forked.tail_from.value();
    told.to = forked.tail_to.value();
    told.windowed_from = forked.windowed_from.value();
    told.windowed_to = forked.windowed_to.value();
    *fork = stemma::take_handle(*sequence->cache, std::move(forked.sequence));
    return stemma::fill_struct(told, tail);
  });
}

int64_t stemma_available_windowed_pages(const stemma_cache* cache) {
  if (cache == nullptr || !stemma::has_window(*cache)) return 0;
  return cache->kv->available_windowed_pages();
}
