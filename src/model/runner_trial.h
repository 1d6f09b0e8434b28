// RunnerTrial: drives a Runner without a scheduler, for tests: requests over scattered pages,
// computed in any pieces.
//
// Thread:     one thread.
// Memory:     the logits of every row that was computed.
// Cost:       that of the runner.
// Not here:   sharing of pages (cache/), anything that serves.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/math.h"
#include "base/prng.h"
#include "model/loaded_runner.h"
#include "pool/kv_pool_factory.h"
#include "stemma/ids.h"
#include "stemma/kv_batch.h"
#include "stemma/kv_pool.h"
#include "stemma/result.h"
#include "stemma/runner.h"

namespace stemma {

class RunnerTrial {
 public:
  // The next `tokens` tokens of a request.
  struct Piece {
    std::size_t request = 0;
    std::int64_t tokens = 0;
  };

  // Pages of `pool` are handed out in an order that `seed` decides. Both must outlive this. Layers
  // with a window get a pool like it, of which no page is ever given back.
  RunnerTrial(LoadedRunner& runner, KvPool& pool, std::uint64_t seed = 1)
      : RunnerTrial(runner, pool, make_windowed_pool(runner, pool), seed) {}
  // The same with a pool like it for these layers, where the host's memory will not do. Pages
  // before `first_page` are nobody's.
  RunnerTrial(LoadedRunner& runner, KvPool& pool, std::unique_ptr<KvPool> windowed_or_null,
              std::uint64_t seed, std::int64_t first_page = 0)
      : runner_(runner), pool_(pool), windowed_(std::move(windowed_or_null)) {
    for (std::int64_t page = first_page; page < pool.shape().pages; ++page) {
      free_pages_.push_back(PageId(static_cast<std::int32_t>(page)));
    }
    Prng random(seed);
    for (std::size_t i = free_pages_.size(); i > 1; --i) {
      std::swap(free_pages_[i - 1],
                free_pages_[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i)))]);
    }
  }

  // Computed with `adapter`, if it is valid. REQUIRES: the pool has pages left for all of `tokens`.
  std::size_t add(std::vector<TokenId> tokens, AdapterId adapter = {}) {
    Request request;
    request.adapter = adapter;
    const std::int64_t pages =
        ceil_div(static_cast<std::int64_t>(tokens.size()), pool_.shape().page_size);
    STEMMA_CHECK_LE(pages, static_cast<std::int64_t>(free_pages_.size()));
    request.pages.assign(free_pages_.end() - pages, free_pages_.end());
    free_pages_.resize(free_pages_.size() - static_cast<std::size_t>(pages));
    request.tokens = std::move(tokens);
    requests_.push_back(std::move(request));
    return requests_.size() - 1;
  }

  // One batch of these pieces, in this order; the logits of all of its rows are kept. Pages may
  // still be arriving at `gate_or_null`.
  Status step(std::span<const Piece> pieces, LayerGate* gate_or_null = nullptr) {
    begin_batch();
    for (const Piece& piece : pieces) {
      append(piece);
    }
    const PageTableView table = {indptr_, pages_, last_page_tokens_, pool_.shape().page_size};
    KvBatch batch = {.tokens = tokens_,
                     .positions = positions_,
                     .write_slots = slots_,
                     .row_indptr = row_indptr_,
                     .requests = ids_,
                     .adapters = adapters_,
                     .page_table = table,
                     .logit_rows = logit_rows_,
                     .arriving = gate_or_null};
    if (windowed_ != nullptr) {
      batch.windowed_slots = slots_;
      batch.windowed_table = table;
    }
    const auto logits = runner_.forward(batch, KvPools{pool_, windowed_.get()});
    STEMMA_RETURN_IF_ERROR(logits);
    std::int64_t output = 0;
    for (const Piece& piece : pieces) {
      Request& request = requests_[piece.request];
      // Of several ranks only the first has logits.
      for (std::int64_t i = 0; i < piece.tokens && output < logits->outputs; ++i) {
        const std::span<const float> row = logits->row(output++);
        request.logits.insert(request.logits.end(), row.begin(), row.end());
      }
      request.computed_tokens += piece.tokens;
    }
    return {};
  }

  // What is left of one request, alone, `chunk_tokens` at a time.
  Status finish(std::size_t request, std::int64_t chunk_tokens) {
    while (remaining_tokens(request) > 0) {
      const Piece piece = {request, std::min(chunk_tokens, remaining_tokens(request))};
      STEMMA_RETURN_IF_ERROR(step({&piece, 1}));
    }
    return {};
  }

  std::int64_t remaining_tokens(std::size_t request) const {
    return static_cast<std::int64_t>(requests_[request].tokens.size()) -
           requests_[request].computed_tokens;
  }

  // In token order.
  std::span<const PageId> pages(std::size_t request) const { return requests_[request].pages; }
  // Of every row computed so far.   [tokens, vocab_tokens]
  const std::vector<float>& logits(std::size_t request) const { return requests_[request].logits; }

 private:
  struct Request {
    std::vector<TokenId> tokens;
    std::vector<PageId> pages;
    std::vector<float> logits;
    std::int64_t computed_tokens = 0;
    AdapterId adapter;
  };

  static std::unique_ptr<KvPool> make_windowed_pool(const LoadedRunner& runner,
                                                    const KvPool& like) {
    KvShape shape = runner.windowed_pool_shape();
    if (shape.layers == 0) return nullptr;
    shape.pages = like.shape().pages;
    shape.page_size = like.shape().page_size;
    shape.dtype = like.shape().dtype;
    ThreadPool threads(1);
    return std::move(make_kv_pool(shape, like.layout(), threads)).value();
  }

  void begin_batch() {
    tokens_.clear();
    positions_.clear();
    slots_.clear();
    row_indptr_.assign(1, 0);
    ids_.clear();
    adapters_.clear();
    indptr_.assign(1, 0);
    pages_.clear();
    last_page_tokens_.clear();
    logit_rows_.clear();
  }

  void append(const Piece& piece) {
    const Request& request = requests_[piece.request];
    const std::int64_t page_size = pool_.shape().page_size;
    const std::int64_t end = request.computed_tokens + piece.tokens;
    for (std::int64_t position = request.computed_tokens; position < end; ++position) {
      const PageId page = request.pages[static_cast<std::size_t>(position / page_size)];
      logit_rows_.push_back(static_cast<std::int32_t>(tokens_.size()));
      tokens_.push_back(request.tokens[static_cast<std::size_t>(position)]);
      positions_.push_back(static_cast<std::int32_t>(position));
      slots_.push_back(SlotId(page.value() * page_size + position % page_size));
    }
    const std::int64_t pages = ceil_div(end, page_size);
    pages_.insert(pages_.end(), request.pages.begin(), request.pages.begin() + pages);
    indptr_.push_back(static_cast<std::int32_t>(pages_.size()));
    last_page_tokens_.push_back(static_cast<std::int32_t>(end - (pages - 1) * page_size));
    row_indptr_.push_back(static_cast<std::int32_t>(tokens_.size()));
    ids_.push_back(RequestId(static_cast<std::int64_t>(piece.request)));
    adapters_.push_back(request.adapter);
  }

  LoadedRunner& runner_;
  KvPool& pool_;
  std::unique_ptr<KvPool> windowed_;  // nullptr: none
  std::vector<PageId> free_pages_;
  std::vector<Request> requests_;
  // The batch being built.
  std::vector<TokenId> tokens_;
  std::vector<std::int32_t> positions_;
  std::vector<SlotId> slots_;
  std::vector<std::int32_t> row_indptr_;
  std::vector<RequestId> ids_;
  std::vector<AdapterId> adapters_;
  std::vector<std::int32_t> indptr_;
  std::vector<PageId> pages_;
  std::vector<std::int32_t> last_page_tokens_;
  std::vector<std::int32_t> logit_rows_;
};

// `tokens` ids below `vocab_tokens`, the same for the same seed.
inline std::vector<TokenId> random_tokens(std::int64_t tokens, std::int64_t vocab_tokens,
                                          std::uint64_t seed) {
  Prng random(seed);
  std::vector<TokenId> ids(static_cast<std::size_t>(tokens));
  for (TokenId& id : ids) {
    id = static_cast<TokenId>(random.below(vocab_tokens));
  }
  return ids;
}

}  // namespace stemma
