// For the tests of attention: sequences with known K, V and Q are stored and attended step by step,
// in any cutting into steps, and each sequence's outputs are collected.
//
// Thread:     one test.
// Memory:     small pools; every byte that was not stored is NaN.
// Cost:       none worth noting.
// Not here:   what is expected (the tests).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attention/attention_case.h"
#include "attention/sparse_attention.h"
#include "base/math.h"
#include "base/prng.h"
#include "device/simd_target.h"
#include "pool/kv_pool_factory.h"

namespace stemma {

// The SIMD targets that a test runs on: all of them; in sanitized builds the best, since the
// emulated one takes a hundred times as long instrumented and is the same source.
inline std::vector<std::string> tested_targets() {
  std::vector<std::string> names;
  for (const std::string_view name : simd_target_names()) names.emplace_back(name);
#ifdef STEMMA_SANITIZED
  names.resize(1);
#endif
  return names;
}

class AttentionWorld {
 public:
  AttentionWorld(const AttentionCase& test_case, std::vector<std::int64_t> sequence_tokens)
      : case_(test_case), threads_(test_case.threads), tokens_(std::move(sequence_tokens)) {
    make_sequences();
    make_pool();
    const std::int64_t total = std::accumulate(tokens_.begin(), tokens_.end(), std::int64_t{0});
    const AttentionLimits limits = {
        .rows_max = total,
        .requests_max = static_cast<std::int64_t>(tokens_.size()),
        .context_tokens_max = *std::max_element(tokens_.begin(), tokens_.end())};
    auto attention =
        case_.dial.has_value()
            ? make_sparse_attention(case_.name, case_.shape, *case_.dial, limits, threads_)
            : make_attention(case_.name, case_.shape, limits, threads_);
    EXPECT_TRUE(attention.ok());
    attention_ = std::move(attention).value();
  }

  // The key and value of that token will be infinite.
  void spoil(std::size_t sequence, std::int64_t token) {
    for (auto* rows : {&keys_[sequence], &values_[sequence]}) {
      std::fill_n(rows->begin() + token * kv_floats(), kv_floats(), HUGE_VALF);
    }
  }

  // Stores the step's K and V, plans and runs.
  void take(const Step& step) {
    prepare(step);
    plan();
    run();
    collect(step);
  }

  // The parts of take, for tests that look between them.
  void prepare(const Step& step) {
    clear_batch();
    for (const StepRows& part : step) add(part);
    out_.assign(positions_.size() * static_cast<std::size_t>(out_floats()), std::nanf(""));
  }
  void plan() { attention_->plan(batch()); }
  KvLayerView layer() const { return pool_->layer_view(kLayer); }
  const std::vector<float>& queries() const { return q_; }
  void run() { attention_->run(pool_->layer_view(kLayer), q_.data(), out_.data()); }

  KvBatch batch() const {
    KvBatch batch;
    batch.tokens = token_ids_;
    batch.positions = positions_;
    batch.write_slots = slots_;
    batch.row_indptr = row_indptr_;
    if (case_.shape.window_tokens > 0) {
      batch.windowed_table = {indptr_, windowed_table_, last_page_tokens_, case_.page_size};
    } else {
      batch.page_table = {indptr_, table_, last_page_tokens_, case_.page_size};
    }
    return batch;
  }

  // Every sequence's outputs.   [sequences][tokens × query_heads × value_dim]
  const std::vector<std::vector<float>>& outputs() const { return outputs_; }

 private:
  static constexpr std::int64_t kLayer = 1;

  std::int64_t query_floats() const { return case_.shape.query_heads * case_.shape.head_dim; }
  std::int64_t out_floats() const { return case_.shape.query_heads * case_.shape.value_dim(); }
  std::int64_t kv_floats() const { return case_.shape.kv_heads * case_.shape.head_dim; }

  void make_sequences() {
    for (std::size_t s = 0; s < tokens_.size(); ++s) {
      queries_.push_back(random_values(3 * s + 1, tokens_[s] * query_floats(), case_.whole));
      keys_.push_back(random_values(3 * s + 2, tokens_[s] * kv_floats(), case_.whole));
      values_.push_back(random_values(3 * s + 3, tokens_[s] * kv_floats(), case_.whole));
      for (float& value : values_.back()) value *= case_.value_magnitude;
      outputs_.emplace_back();
      done_.push_back(0);
    }
    for (const SharedBegin& shared : case_.shared) {
      for (auto* rows : {&keys_, &values_}) {
        std::copy_n((*rows)[shared.with].begin(), shared.tokens * kv_floats(),
                    (*rows)[shared.sequence].begin());
      }
    }
  }

  void make_pool() {
    std::int64_t pages = 3;
    for (const std::int64_t tokens : tokens_) pages += ceil_div(tokens, case_.page_size);
    const bool latent = case_.shape.latent_dim > 0;
    KvShape shape = {.layers = 3,
                     .pages = pages,
                     .page_size = case_.page_size,
                     .heads = case_.shape.kv_heads,
                     .head_dim = case_.shape.head_dim,
                     .dtype = case_.dtype,
                     .kind = latent ? KvKind::kMla : KvKind::kMha,
                     .latent_dim = case_.shape.latent_dim};
    if (case_.dial.has_value()) {
      shape.kind = KvKind::kDoubleSparse;
      shape.label_channels = 8;
    }
    auto pool = make_kv_pool(shape, case_.layout, threads_, channels_of(shape));
    ASSERT_TRUE(pool.ok());
    pool_ = std::move(pool).value();
    // All ones is NaN in each dtype.
    for (const auto& piece : pool_->layer_pieces(kLayer)) {
      for (const PageId page : id_range(PageId(0), pages)) {
        std::memset(piece.of(page), 0xFF, static_cast<std::size_t>(piece.bytes));
      }
    }
    std::vector<std::int32_t> free_pages(static_cast<std::size_t>(pages));
    std::iota(free_pages.begin(), free_pages.end(), 0);
    Prng prng(case_.placement_seed);
    std::shuffle(free_pages.begin(), free_pages.end(), prng);
    for (const std::int64_t tokens : tokens_) {
      pages_.emplace_back();
      for (std::int64_t i = 0; i < ceil_div(tokens, case_.page_size); ++i) {
        pages_.back().emplace_back(free_pages.back());
        free_pages.pop_back();
      }
    }
    if (!case_.on_shared_pages) return;
    for (const SharedBegin& shared : case_.shared) {
      std::copy_n(pages_[shared.with].begin(), shared.tokens / case_.page_size,
                  pages_[shared.sequence].begin());
    }
  }

  // Every third channel, from another one on in each layer and head.
  static HeavyChannels channels_of(const KvShape& shape) {
    HeavyChannels channels = {shape.layers, shape.heads, shape.label_channels, {}};
    for (std::int64_t head = 0; head < shape.layers * shape.heads; ++head) {
      for (std::int64_t i = 0; i < shape.label_channels; ++i) {
        channels.channels.push_back(static_cast<std::int32_t>(head % 10 + 3 * i));
      }
    }
    return channels;
  }

  void clear_batch() {
    for (auto* numbers : {&positions_, &row_indptr_, &indptr_, &last_page_tokens_, &token_ids_}) {
      numbers->clear();
    }
    table_.clear();
    windowed_table_.clear();
    slots_.clear();
    q_.clear();
    row_indptr_.push_back(0);
    indptr_.push_back(0);
  }

  void add(const StepRows& part) {
    const std::size_t s = part.sequence;
    const std::int64_t begin = done_[s];
    const std::int64_t end = begin + part.rows;
    ASSERT_LE(end, tokens_[s]);
    std::vector<std::int64_t> slots;
    for (std::int64_t position = begin; position < end; ++position) {
      const PageId page = pages_[s][static_cast<std::size_t>(position / case_.page_size)];
      slots.push_back(page.value() * case_.page_size + position % case_.page_size);
      positions_.push_back(static_cast<std::int32_t>(position));
      token_ids_.push_back(0);
      slots_.emplace_back(slots.back());
    }
    store(s, begin, slots);
    const auto* const q = queries_[s].data() + begin * query_floats();
    q_.insert(q_.end(), q, q + part.rows * query_floats());
    const std::int64_t pages = ceil_div(end, case_.page_size);
    table_.insert(table_.end(), pages_[s].begin(), pages_[s].begin() + pages);
    const std::int64_t gone = case_.shape.first_seen(begin) / case_.page_size;
    windowed_table_.insert(windowed_table_.end(), static_cast<std::size_t>(gone), PageId());
    windowed_table_.insert(windowed_table_.end(), pages_[s].begin() + gone,
                           pages_[s].begin() + pages);
    indptr_.push_back(static_cast<std::int32_t>(table_.size()));
    last_page_tokens_.push_back(static_cast<std::int32_t>(end - (pages - 1) * case_.page_size));
    row_indptr_.push_back(static_cast<std::int32_t>(positions_.size()));
    done_[s] = end;
  }

  void store(std::size_t s, std::int64_t begin, std::span<const std::int64_t> slots) {
    KvRows k = {.elements = keys_[s].data() + begin * kv_floats(),
                .rows = static_cast<std::int64_t>(slots.size()),
                .heads = case_.shape.kv_heads,
                .head_dim = case_.shape.head_dim,
                .row_stride = kv_floats()};
    KvRows v = k;
    v.elements = values_[s].data() + begin * kv_floats();
    if (case_.shape.latent_dim > 0) v = {};  // it is k
    ASSERT_TRUE(pool_->store(kLayer, slots, k, v).ok());
  }

  void collect(const Step& step) {
    auto from = out_.begin();
    for (const StepRows& part : step) {
      const auto count = static_cast<std::ptrdiff_t>(part.rows * out_floats());
      outputs_[part.sequence].insert(outputs_[part.sequence].end(), from, from + count);
      from += count;
    }
  }

  AttentionCase case_;
  ThreadPool threads_;
  std::vector<std::int64_t> tokens_;
  std::vector<std::vector<float>> queries_, keys_, values_, outputs_;
  std::vector<std::int64_t> done_;
  std::unique_ptr<KvPool> pool_;
  std::vector<std::vector<PageId>> pages_;
  std::unique_ptr<Attention> attention_;
  std::vector<std::int32_t> positions_, row_indptr_, indptr_, last_page_tokens_, token_ids_;
  std::vector<PageId> table_;
  std::vector<PageId> windowed_table_;  // pages before the windows are not named
  std::vector<SlotId> slots_;
  std::vector<float> q_, out_;
};

// Of all sequences.
using Outputs = std::vector<std::vector<float>>;

// Those of rows [begin, end) of the first sequence.
inline Outputs rows_of_first(const AttentionCase& test_case, const Outputs& outputs,
                             std::int64_t begin, std::int64_t end) {
  const std::int64_t floats = test_case.shape.query_heads * test_case.shape.head_dim;
  return {{outputs[0].begin() + begin * floats, outputs[0].begin() + end * floats}};
}

inline void expect_same_bits(const Outputs& actual, const Outputs& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t s = 0; s < actual.size(); ++s) {
    ASSERT_EQ(actual[s].size(), expected[s].size());
    for (std::size_t i = 0; i < actual[s].size(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(actual[s][i]),
                std::bit_cast<std::uint32_t>(expected[s][i]))
          << "sequence " << s << " element " << i << ": " << actual[s][i] << " and "
          << expected[s][i];
    }
  }
}

// The outputs of all sequences after `steps`.
inline Outputs attend_all(const AttentionCase& test_case, const std::vector<std::int64_t>& tokens,
                          const std::vector<Step>& steps) {
  AttentionWorld world(test_case, tokens);
  for (const Step& step : steps) world.take(step);
  return world.outputs();
}

// Each sequence in one step, all of its rows.
inline std::vector<Step> sequences_one_by_one(const std::vector<std::int64_t>& tokens) {
  std::vector<Step> steps;
  for (std::size_t s = 0; s < tokens.size(); ++s) steps.push_back({{s, tokens[s]}});
  return steps;
}

}  // namespace stemma
