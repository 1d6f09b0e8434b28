// Sequences of the C ABI: the calls of every request, which allocate nothing.
#include <algorithm>
#include <span>
#include <utility>

#include "base/math.h"
#include "bindings/c_handles.h"
#include "bindings/shared_begin.h"

namespace stemma {

namespace {

// What commit and finish ask of `count`.
stemma_status check_computed(const stemma_sequence* sequence, const std::int32_t* tokens,
                             std::size_t count) {
  if (!is_held(sequence) || !is_array<TokenId>(tokens, count)) {
    return refuse("no sequence, or no tokens");
  }
  if (sequence->held.on_loan()) return refuse_loan();
  if (std::cmp_greater(count, sequence->held.capacity_tokens())) {
    return refuse("more tokens than the sequence has reserved room for");
  }
  return check_begin(*sequence, std::span(tokens, count));
}

// What a fork asks of the tokens that are shared.
stemma_status check_fork(const stemma_sequence* sequence, std::int64_t computed_tokens) {
  if (!is_held(sequence)) return refuse("no sequence");
  if (sequence->held.on_loan()) return refuse_loan();
  const KvCache& kv = *sequence->cache->kv;
  if (!kv.shares()) return fail({ErrorCode::kUnsupported, "the cache \"none\" shares no pages"});
  const std::int64_t tokens_max =
      std::min(sequence->held.capacity_tokens(), kv.options().context_tokens_max);
  if (computed_tokens < 0 || computed_tokens > tokens_max) {
    return refuse("more tokens than the sequence has room for");
  }
  if (sequence->held.publishes() &&
      sequence->held.published_tokens() != round_down(computed_tokens, kv.page_size())) {
    return refuse("the full pages of the tokens are to be committed first");
  }
  if (sequence->cache->steps_in_flight > 0) return refuse("a step is in flight");
  return STEMMA_OK;
}

// Whether each is a sequence of the cache with room for its tokens.
bool is_batch(const stemma_cache& cache, std::span<stemma_sequence* const> sequences,
              const std::int64_t* tokens) {
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    if (!is_held(sequences[i]) || sequences[i]->cache != &cache || tokens[i] < 0 ||
        tokens[i] > sequences[i]->held.capacity_tokens()) {
      return false;
    }
  }
  return true;
}

void give_back(stemma_sequence& sequence) {
  sequence.cache->loans.forget(sequence.held);
  sequence.held.reset();
  sequence.cache->unused.push_back(&sequence);
}

}  // namespace

stemma_status check_begin(const stemma_sequence& sequence, std::span<const TokenId> text) {
  const auto& named = sequence.cache->namespaces[sequence.held.namespace_id().index()];
  if (begin_alike(named.shared_tokens, text)) return STEMMA_OK;
  return refuse("the tokens do not begin as the texts of their namespace do");
}

stemma_sequence* take_handle(stemma_cache& cache, Sequence sequence) {
  stemma_sequence* const handle = cache.unused.back();
  cache.unused.pop_back();
  handle->held = std::move(sequence);
  return handle;
}

stemma_status try_fork(const stemma_sequence* sequence, std::int64_t computed_tokens,
                       ForkedSequence& fork) {
  if (const auto status = check_fork(sequence, computed_tokens); status != STEMMA_OK) return status;
  KvCache& kv = *sequence->cache->kv;
  if (kv.free_rows() == 0) return STEMMA_NO_ROW;
  auto forked = kv.try_fork(sequence->held, computed_tokens);
  if (!forked.has_value()) return STEMMA_NO_PAGES;
  fork = std::move(*forked);
  return STEMMA_OK;
}

stemma_status check_batch(const stemma_cache* cache, stemma_sequence* const* sequences,
                          const std::int64_t* tokens, std::size_t count, const CPageTable& table) {
  if (cache == nullptr || table.indptr == nullptr || table.pages == nullptr ||
      table.last_page_tokens == nullptr ||
      (count > 0 && (sequences == nullptr || tokens == nullptr))) {
    return refuse("a cache, sequences, tokens, and places for three arrays");
  }
  if (count > cache->sequences.size()) return refuse("more than requests_max sequences");
  if (!is_batch(*cache, std::span(sequences, count), tokens)) {
    return refuse("sequences of this cache, with room for their tokens");
  }
  return STEMMA_OK;
}

void tell(const PageTableAssembly& assembly, const CPageTable& table) {
  const PageTableView view = assembly.view();
  *table.indptr = view.indptr.data();
  *table.pages = raw(view.pages).data();
  *table.last_page_tokens = view.last_page_tokens.data();
}

}  // namespace stemma

stemma_status stemma_begin(stemma_cache* cache, int32_t ns, const int32_t* tokens, size_t count,
                           stemma_sequence** sequence) {
  return stemma::guarded([&] {
    if (sequence == nullptr) return stemma::refuse("sequence is NULL");
    if (const auto status = stemma::check_prompt(cache, ns, tokens, count); status != STEMMA_OK) {
      return status;
    }
    auto begun = cache->kv->begin(stemma::NamespaceId(ns), std::span(tokens, count));
    if (!begun.has_value()) return stemma_status{STEMMA_NO_ROW};
    *sequence = stemma::take_handle(*cache, *std::move(begun));
    return stemma_status{STEMMA_OK};
  });
}

stemma_status stemma_reserve(stemma_sequence* sequence, int64_t tokens) {
  return stemma::guarded([&] {
    if (!stemma::is_held(sequence) || tokens < 0) return stemma::refuse("no sequence, or tokens");
    stemma::KvCache& kv = *sequence->cache->kv;
    if (tokens > kv.options().context_tokens_max) {
      return stemma::fail({stemma::ErrorCode::kTooLarge, "more than context_tokens_max"});
    }
    return stemma_status{kv.reserve(sequence->held, tokens) ? STEMMA_OK : STEMMA_NO_PAGES};
  });
}

stemma_status stemma_commit(stemma_sequence* sequence, const int32_t* tokens, size_t count) {
  return stemma::guarded([&] {
    if (const auto status = stemma::check_computed(sequence, tokens, count); status != STEMMA_OK) {
      return status;
    }
    sequence->cache->kv->commit(sequence->held, std::span(tokens, count));
    return stemma_status{STEMMA_OK};
  });
}

stemma_status stemma_finish(stemma_sequence* sequence, const int32_t* tokens, size_t count) {
  return stemma::guarded([&] {
    if (const auto status = stemma::check_computed(sequence, tokens, count); status != STEMMA_OK) {
      return status;
    }
    sequence->cache->kv->finish(std::move(sequence->held), std::span(tokens, count));
    stemma::give_back(*sequence);
    return stemma_status{STEMMA_OK};
  });
}

void stemma_release(stemma_sequence* sequence) {
  if (stemma::is_held(sequence)) stemma::give_back(*sequence);
}

stemma_status stemma_fork(const stemma_sequence* sequence, int64_t computed_tokens,
                          stemma_sequence** fork, int32_t* from, int32_t* to) {
  return stemma::guarded([&] {
    if (fork == nullptr || from == nullptr || to == nullptr) {
      return stemma::refuse("fork, from and to are given");
    }
    if (stemma::is_held(sequence) && sequence->cache->windowed_batch.has_value()) {
      return stemma::refuse("the cache has a window: stemma_fork_windowed");
    }
    stemma::ForkedSequence forked;
    if (const auto status = stemma::try_fork(sequence, computed_tokens, forked);
        status != STEMMA_OK) {
      return status;
    }
    *from = forked.tail_from.value();
    *to = forked.tail_to.value();
    *fork = stemma::take_handle(*sequence->cache, std::move(forked.sequence));
    return stemma_status{STEMMA_OK};
  });
}

stemma_status stemma_set_priority(stemma_sequence* sequence, int32_t priority) {
  return stemma::guarded([&] {
    if (!stemma::is_held(sequence)) return stemma::refuse("no sequence");
    sequence->held.set_priority(priority);
    return stemma_status{STEMMA_OK};
  });
}

int64_t stemma_cached_tokens(const stemma_sequence* sequence) {
  return stemma::is_held(sequence) ? sequence->held.cached_tokens() : 0;
}

int64_t stemma_published_tokens(const stemma_sequence* sequence) {
  return stemma::is_held(sequence) ? sequence->held.published_tokens() : 0;
}

int64_t stemma_capacity_tokens(const stemma_sequence* sequence) {
  return stemma::is_held(sequence) ? sequence->held.capacity_tokens() : 0;
}

const int32_t* stemma_pages(const stemma_sequence* sequence, size_t* count) {
  const auto pages = stemma::is_held(sequence) ? stemma::raw(sequence->held.pages())
                                               : std::span<const std::int32_t>();
  if (count != nullptr) *count = pages.size();
  return pages.data();
}

stemma_status stemma_batch_pages(stemma_cache* cache, stemma_sequence* const* sequences,
                                 const int64_t* tokens, size_t count, const int32_t** indptr,
                                 const int32_t** pages, const int32_t** last_page_tokens) {
  return stemma::guarded([&] {
    const stemma::CPageTable table = {indptr, pages, last_page_tokens};
    if (const auto status = stemma::check_batch(cache, sequences, tokens, count, table);
        status != STEMMA_OK) {
      return status;
    }
    cache->batch->clear();
    for (std::size_t i = 0; i < count; ++i) {
      cache->batch->add(sequences[i]->held.pages(), tokens[i]);
    }
    stemma::tell(*cache->batch, table);
    return stemma_status{STEMMA_OK};
  });
}
