// An engine over two ranks with tiers of their own: every answer is that of an engine without a
// cache, whatever was evicted and came up again meanwhile, and whatever goes wrong on one rank:
// bits that flip in its host memory, a store that forgets, damages, refuses; and bits that flip in
// its pool, which shadow audits find. Faults: rows 3, 4, 9 (docs/FAULTS.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "device/thread_ranks_fixture.h"
#include "engine/hash_model.h"
#include "engine/hash_prompts.h"
#include "engine/held_tiers.h"
#include "engine/late_runner.h"
#include "model/leading_runner.h"
#include "stemma/engine.h"
#include "tier/leading_tiers.h"
#include "tier/memory_page_store.h"
#include "tier/tier_stack.h"

namespace stemma {
namespace {

using Tokens = std::vector<TokenId>;

constexpr int kRanks = 2;
constexpr std::chrono::hours kLong(1);

// What a rank computes of a batch: every rank hashes another text.
KvBatch part_of(const KvBatch& batch, int rank, Tokens& tokens) {
  tokens.assign(batch.tokens.begin(), batch.tokens.end());
  for (TokenId& token : tokens) token += 1'000 * rank;
  KvBatch part = batch;
  part.tokens = tokens;
  return part;
}

// Logits of what all ranks chose together: a wrong byte on any of them is another token. `all` are
// the ranks' logits, one behind the other.
std::vector<float> together(std::span<const float> all) {
  const std::size_t count = all.size() / kRanks;
  std::vector<float> logits(count, 0.0f);
  for (std::size_t row = 0; row < count; row += HashModel::kVocab) {
    std::ptrdiff_t token = 0;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      const auto own = all.subspan(rank * count + row, HashModel::kVocab);
      token += std::max_element(own.begin(), own.end()) - own.begin();
    }
    logits[row + static_cast<std::size_t>(token % HashModel::kVocab)] = 1.0f;
  }
  return logits;
}

std::span<const float> values_of(const LogitsView& logits) {
  return {logits.logits, static_cast<std::size_t>(logits.outputs * logits.vocab_tokens)};
}

// One rank's part of the model.
class RankedHashModel final : public Runner {
 public:
  explicit RankedHashModel(RankGroup& ranks) : ranks_(ranks) {}

  bool waits_by_layer() const override { return true; }

  Result<LogitsView> forward(const KvBatch& batch, KvPools pools) override {
    for (std::int64_t layer = 0; batch.arriving != nullptr && layer < HashModel::kLayers; ++layer) {
      EXPECT_TRUE(batch.arriving->wait(layer)) << "the others compute the step to its end";
    }
    const auto own = model_.forward(part_of(batch, ranks_.rank(), tokens_), pools);
    const auto values = values_of(*own);
    std::vector<float> all(kRanks * values.size());
    STEMMA_RETURN_IF_ERROR(
        ranks_.all_gather(std::as_bytes(values), std::as_writable_bytes(std::span(all))));
    logits_ = together(all);
    return LogitsView{logits_.data(), own->outputs, HashModel::kVocab};
  }

 private:
  RankGroup& ranks_;
  HashModel model_;
  Tokens tokens_;
  std::vector<float> logits_;
};

// All ranks' parts in one process. Its pages are in pools of its own.
class WholeHashModel final : public Runner {
 public:
  explicit WholeHashModel(const KvCacheOptions& options) {
    for (auto& pool : pools_) pool = HashModel::make_pool(options);
  }

  Result<LogitsView> forward(const KvBatch& batch, KvPools) override {
    std::vector<float> all;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      const KvBatch part = part_of(batch, static_cast<int>(rank), tokens_);
      const auto own = models_[rank].forward(part, {*pools_[rank]});
      const auto values = values_of(*own);
      all.insert(all.end(), values.begin(), values.end());
    }
    logits_ = together(all);
    return LogitsView{logits_.data(), batch.outputs(), HashModel::kVocab};
  }

 private:
  std::array<HashModel, kRanks> models_;
  std::array<std::unique_ptr<KvPool>, kRanks> pools_;
  Tokens tokens_;
  std::vector<float> logits_;
};

// A store of which the test says what goes wrong in it.
class FaultyStore final : public PageStore {
 public:
  Tier tier() const override { return inner_.tier(); }
  std::string_view name() const override { return inner_.name(); }
  void describe(const NamespaceDigest&, std::string_view) override {}
  Result<std::int64_t> lookup(std::span<const PageKey> keys, std::int64_t deadline_us) override {
    if (draws()) return Error{ErrorCode::kIo, "broken"};
    return inner_.lookup(keys, deadline_us);
  }
  bool lookup_is_local() const override { return true; }
  void read(std::span<PageRead> reads, std::int64_t deadline_us) override {
    inner_.read(reads, deadline_us);
    for (PageRead& read : reads) {
      if (read.verdict != PageVerdict::kDone || !draws()) continue;
      const std::int64_t kind = draw(3);
      if (kind == 0) read.verdict = PageVerdict::kMissing;
      if (kind == 1) read.verdict = PageVerdict::kFailed;
      if (kind < 2) continue;
      const auto byte = static_cast<std::size_t>(draw(std::ssize(read.frame)));
      read.frame[byte] ^= std::byte{8};
    }
  }
  void write(std::span<PageWrite> writes, std::int64_t deadline_us) override {
    for (PageWrite& write : writes) {
      write.verdict = PageVerdict::kRefused;
      if (!draws()) inner_.write({&write, 1}, deadline_us);
    }
  }
  void remove(std::span<const PageRemoval> removals, std::int64_t deadline_us) override {
    inner_.remove(removals, deadline_us);
  }
  PurgeOutcome purge(std::span<const NamespaceFamily> namespaces,
                     std::int64_t deadline_us) override {
    return inner_.purge(namespaces, deadline_us);
  }
  PageStoreUsage usage() const override { return inner_.usage(); }
  void visit_metrics(MetricVisitor&) const override {}

  std::atomic<int> faults_percent = 0;

 private:
  bool draws() { return draw(100) < faults_percent; }
  // The reading lane, the writing one and the engine may ask at once.
  std::int64_t draw(std::int64_t limit) {
    const std::lock_guard lock(mutex_);
    return prng_.below(limit);
  }

  MemoryPageStore inner_{Tier::kDisk, std::int64_t{1} << 20};
  std::mutex mutex_;
  Prng prng_{99};
};

struct Setting {
  WritePolicy policy = WritePolicy::kWriteThrough;
  bool queued = false;  // steps are planned ahead
};

struct Count final : MetricVisitor {
  explicit Count(const Engine& engine) { engine.visit_metrics(*this); }
  void counter(std::string_view name, std::int64_t value) override {
    of[std::string(name)] = value;
  }
  void gauge(std::string_view, std::int64_t) override {}
  std::map<std::string, std::int64_t> of;
};

class RankedTiers : public testing::TestWithParam<Setting> {
 protected:
  RankedTiers() {
    options_.kv.page_size = 4;
    options_.kv.pages = 40;
    options_.kv.requests_max = 3;
    options_.kv.context_tokens_max = 120;
    options_.kv.tiers.write_policy = GetParam().policy;
    options_.scheduler.step_tokens_max = 40;
    options_.scheduler.chunk_tokens_max = 20;
  }

  // What a rank has; the test may look at that of every rank while nothing is under way.
  struct Rank {
    std::unique_ptr<KvPool> pool;
    FaultyStore* store = nullptr;
    std::unique_ptr<TierStack> stack;
  };

  // Rank 0 serves, and does `lead`; the other follows.
  void run(const std::function<void()>& lead) {
    ThreadRanks(kRanks).run([&](RankGroup& ranks) {
      Rank& rank = ranks_[static_cast<std::size_t>(ranks.rank())];
      rank = open_rank();
      RankedHashModel model(ranks);
      LateRunner late(model, HashModel::kVocab, 3);
      Runner& runner = GetParam().queued ? static_cast<Runner&>(late) : model;
      if (ranks.rank() > 0) {
        RankTransfers transfers(*rank.stack, ranks, clock_);
        EXPECT_TRUE(follow_leader(runner, {*rank.pool}, ranks, {&transfers, &transfers}).ok());
        return;
      }
      LeadingRunner leader(runner, ranks);
      LeadingTiers tiers(*rank.stack, ranks, clock_);
      engine_ = open_engine(options_, leader, *rank.pool, &tiers);
      lead();
      engine_.reset();
    });
  }

  Rank open_rank() const {
    Rank rank;
    ThreadPool threads(1);
    rank.pool = HashModel::make_pool(options_.kv);
    auto store = std::make_unique<FaultyStore>();
    rank.store = store.get();
    std::vector<std::unique_ptr<PageStore>> stores;
    stores.push_back(std::move(store));
    const std::int64_t host_bytes = 60 * rank.pool->shape().page_bytes();
    rank.stack = std::move(TierStack::open({.host_bytes = host_bytes}, *rank.pool,
                                           std::move(stores), threads, clock_))
                     .value();
    return rank;
  }
  std::unique_ptr<Engine> open_engine(const EngineOptions& options, Runner& runner, KvPool& pool,
                                      LowerTiers* tiers_or_null) const {
    return std::move(Engine::open(options, {.runner = runner,
                                            .pools = {pool},
                                            .vocab_tokens = HashModel::kVocab,
                                            .clock = clock_,
                                            .lower_tiers = tiers_or_null}))
        .value();
  }

  // What an engine answers that has all in one process, and no cache.
  const Tokens& cold(const Tokens& prompt) {
    const auto [known, is_new] = cold_.try_emplace(prompt);
    if (!is_new) return known->second;
    EngineOptions options = options_;
    options.kv.cache = "none";
    WholeHashModel model(options.kv);
    const auto pool = HashModel::make_pool(options.kv);
    const auto engine = open_engine(options, model, *pool, nullptr);
    std::map<RequestId, Tokens> answers;
    const RequestId id = submit_prompt(*engine, prompt);
    finish_prompts(*engine, answers);
    return known->second = answers[id];
  }

  // Up to three prompts at once, each a beginning of one of seven texts, and some more.
  void ask_some() {
    ask_drawn_prompts(*engine_, prng_, [this](const Tokens& prompt) { return cold(prompt); });
  }
  void ask_often(int rounds) {
    for (int round = 0; round < rounds; ++round) {
      ASSERT_NO_FATAL_FAILURE(ask_some()) << "round " << round;
    }
  }
  std::int64_t count(const std::string& name) const { return Count(*engine_).of.at(name); }

  // Whether what goes on from a prompt is what an engine without a cache says.
  bool answers_right(const Tokens& prompt) {
    std::map<RequestId, Tokens> answers;
    RequestSpec spec;
    spec.prompt = prompt;
    spec.max_tokens = 1;
    const auto id = engine_->submit(std::move(spec));
    finish_prompts(*engine_, answers);
    return answers[*id].front() == cold(prompt).front();
  }
  // A bit of every page of a rank's pool.
  void flip_all(int rank) {
    const auto pieces = ranks_[static_cast<std::size_t>(rank)].pool->layer_pieces(1);
    for (const PageId page : id_range(PageId(0), options_.kv.pages)) {
      pieces.begin()->of(page)[5] ^= std::byte{4};
    }
  }

  EngineOptions options_;
  SharedFakeClock clock_;  // stands still: whatever a tier has is worth waiting for
  std::array<Rank, kRanks> ranks_;
  std::unique_ptr<Engine> engine_;
  std::map<Tokens, Tokens> cold_;
  Prng prng_{20261123};
};

TEST_P(RankedTiers, AnswerAsIfNothingWereCached) {
  run([&] {
    ask_often(100);
    EXPECT_GT(count("stemma_host_loaded_pages_total"), 0);
    EXPECT_GT(count("stemma_disk_loaded_pages_total"), 0);
    EXPECT_GT(count("stemma_lent_pages_total"), 0) << "steps begin before pages are whole";
  });
}

// Which pages are lent is up to the lanes: it goes on until a wrong one was.
TEST_P(RankedTiers, BitsThatFlipInOneRanksHostMemoryAreNeverServed) {
  run([&] {
    const auto goes_on = [&](int round) {
      return round < 60 || (count("stemma_void_loans_total") == 0 && round < 2'000);
    };
    for (int round = 0; goes_on(round) && !HasFatalFailure(); ++round) {
      ask_often(1);
      engine_->settle(kLong);
      HostPool& host = ranks_[static_cast<std::size_t>(round % kRanks)].stack->host();
      for (int flips = 0; flips < 3; ++flips) {
        const PageId page(static_cast<std::int32_t>(prng_.below(host.pages())));
        const auto layer = host.layer_image(page, prng_.below(HashModel::kLayers));
        layer[static_cast<std::size_t>(prng_.below(std::ssize(layer)))] ^= std::byte{16};
      }
    }
    EXPECT_GT(count("stemma_host_load_corrupt_pages_total"), 0);
    EXPECT_GT(count("stemma_void_loans_total"), 0);
  });
}

TEST_P(RankedTiers, WhatGoesWrongInOneRanksStoreCostsTimeOnly) {
  run([&] {
    for (const FaultyStore* faultless : {ranks_[0].store, ranks_[1].store}) {
      for (Rank& rank : ranks_) rank.store->faults_percent = rank.store == faultless ? 0 : 25;
      ask_often(80);
    }
    EXPECT_GT(count("stemma_unstored_pages_total"), 0);
    EXPECT_GT(count("stemma_disk_load_corrupt_pages_total"), 0);
    EXPECT_GT(count("stemma_disk_load_missing_pages_total"), 0);
    EXPECT_GT(count("stemma_disk_load_failed_pages_total"), 0);
    EXPECT_GT(count("stemma_disk_loaded_pages_total"), 0);
  });
}

// Requests that are cancelled leave loads behind, which rank 1 may still be doing.
TEST_P(RankedTiers, RequestsThatAreCancelledLeaveNothingBehind) {
  run([&] {
    ask_often(20);
    for (int round = 0; round < 60 && !HasFatalFailure(); ++round) {
      Prng text(static_cast<std::uint64_t>(1 + prng_.below(7)));
      Tokens prompt;
      for (int i = 0; i < 80; ++i) prompt.push_back(static_cast<TokenId>(text.below(64)));
      const RequestId id = submit_prompt(*engine_, prompt);
      for (std::int64_t steps = prng_.below(4); steps > 0; --steps) engine_->step();
      EXPECT_TRUE(engine_->cancel(id).ok());
      ask_often(1);
    }
    engine_->settle(kLong);
    EXPECT_EQ(engine_->audit(), std::nullopt);
  });
}

TEST_P(RankedTiers, AuditsOfAllHitsFindNothingWhereNothingIsWrong) {
  options_.shadow_audit_percent = 100;
  run([&] {
    ask_often(60);
    EXPECT_GT(engine_->totals().shadow_audits, 0);
    EXPECT_EQ(engine_->totals().shadow_audit_mismatches, 0);
  });
}

// The other rank's pages come out equal. What was wrong is gone on both, in every tier.
TEST_P(RankedTiers, ABitThatFlipsInOneRanksPoolIsFoundAndThePageIsGoneOnAll) {
  options_.shadow_audit_percent = 100;
  const Tokens prompt = [] {
    Prng prng(9);  // one wrong answer in 64 is right by chance: here none is
    Tokens text;
    for (int i = 0; i < 41; ++i) text.push_back(static_cast<TokenId>(prng.below(64)));
    return text;
  }();
  run([&] {
    EXPECT_TRUE(answers_right(prompt));
    engine_->settle(kLong);
    for (const int rank : {0, 1, 1, 0}) {
      SCOPED_TRACE("rank " + std::to_string(rank));
      const std::int64_t found = engine_->totals().shadow_audit_mismatches;
      flip_all(rank);
      EXPECT_FALSE(answers_right(prompt)) << "it was served before it was found";
      EXPECT_EQ(engine_->totals().shadow_audit_mismatches, found + 1);
      EXPECT_EQ(engine_->kv().probe(NamespaceId(0), prompt), 0);
      EXPECT_EQ(engine_->kv().probe_host(NamespaceId(0), prompt), 0);
      engine_->settle(kLong);
      for (const Rank& own : ranks_) EXPECT_EQ(own.store->usage().pages, 0);
      EXPECT_TRUE(answers_right(prompt));
      EXPECT_TRUE(answers_right(prompt)) << "of what was computed anew";
      EXPECT_EQ(engine_->totals().shadow_audit_mismatches, found + 1);
      engine_->settle(kLong);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Settings, RankedTiers,
                         testing::Values(Setting{WritePolicy::kWriteThrough, false},
                                         Setting{WritePolicy::kWriteThrough, true},
                                         Setting{WritePolicy::kWriteBack, false},
                                         Setting{WritePolicy::kWriteBack, true}),
                         [](const auto& setting) {
                           const std::string policy =
                               setting.param.policy == WritePolicy::kWriteBack ? "Back" : "Through";
                           return policy + (setting.param.queued ? "Queued" : "OneByOne");
                         });

}  // namespace
}  // namespace stemma
