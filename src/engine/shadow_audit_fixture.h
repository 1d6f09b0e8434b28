// ShadowAuditFixture: an engine around a HashModel, with tiers below it where a test asks for some,
// and the verbs of the tests.
//
// Thread:     tests.
// Memory:     a small pool.
// Cost:       O(context) a row.
// Not here:   anything that ships.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "base/thread_pool.h"
#include "engine/hash_model.h"
#include "engine/held_tiers.h"
#include "stemma/engine.h"
#include "stemma/log.h"
#include "tier/memory_page_store.h"
#include "tier/tier_stack.h"

namespace stemma {

class ShadowAuditFixture : public ::testing::Test {
 protected:
  using Tokens = std::vector<TokenId>;

  struct Answer {
    Tokens tokens;
    FinishReason finish = FinishReason::kNone;
    RequestStats stats;
  };

  ShadowAuditFixture() {
    set_log_sink([this](LogLevel level, std::string_view line) {
      if (level >= LogLevel::kWarning) log_.emplace_back(line);
    });
    options_.kv.page_size = 4;
    options_.kv.pages = 100;
    options_.kv.requests_max = 4;
    options_.kv.context_tokens_max = 120;
    options_.scheduler.step_tokens_max = 40;
    options_.scheduler.chunk_tokens_max = 20;
    options_.shadow_audit_percent = 100;
  }
  ~ShadowAuditFixture() override { set_log_sink({}); }

  // Host memory of so many pages, and what lies below it.
  void open_tiers(std::int64_t host_pages, std::int64_t store_bytes) {
    std::vector<std::unique_ptr<PageStore>> stores;
    if (store_bytes > 0) {
      auto store = std::make_unique<MemoryPageStore>(Tier::kDisk, store_bytes);
      store_ = store.get();
      stores.push_back(std::move(store));
    }
    pool_ = HashModel::make_pool(options_.kv);
    const std::int64_t page_bytes = pool_->shape().layers * pool_->layer_bytes();
    auto stack = TierStack::open({.host_bytes = host_pages * page_bytes}, *pool_, std::move(stores),
                                 threads_, clock_);
    ASSERT_TRUE(stack.ok()) << to_string(stack.error());
    stack_ = std::move(stack).value();
    tiers_ = std::make_unique<HeldTiers>(*stack_);
    options_.kv.tiers.write_policy = WritePolicy::kWriteThrough;
  }

  void open() {
    engine_.reset();
    if (pool_ == nullptr) pool_ = HashModel::make_pool(options_.kv);
    auto engine = Engine::open(options_, {.runner = model_,
                                          .pools = {*pool_},
                                          .vocab_tokens = HashModel::kVocab,
                                          .clock = clock_,
                                          .lower_tiers = tiers_.get()});
    ASSERT_TRUE(engine.ok()) << to_string(engine.error());
    engine_ = std::move(engine).value();
    answers_.clear();
  }

  RequestId submit(const Tokens& prompt, std::int64_t max_tokens, int tenant = 0) {
    RequestSpec spec;
    spec.prompt = prompt;
    spec.max_tokens = max_tokens;
    spec.adapter = adapter_;
    spec.namespace_digest.bytes[0] = static_cast<std::uint8_t>(tenant);
    if (shared_tokens_ > 0) {
      spec.namespace_digest.bytes[8] = 1;
      spec.shared_prefix = SharedPrefix{.digest = {{kShared}}, .tokens = shared_tokens_};
    }
    const auto id = engine_->submit(std::move(spec));
    EXPECT_TRUE(id.ok()) << to_string(id.error());
    return *id;
  }

  void step() {
    clock_.advance_us(10);
    for (const EngineEvent& event : engine_->step().events) {
      Answer& answer = answers_[event.request];
      if (event.token >= 0) answer.tokens.push_back(event.token);
      answer.finish = event.finish;
      answer.stats = event.stats;
    }
    ASSERT_EQ(engine_->audit(), std::nullopt);
  }

  void run() {
    for (int left = 100'000; left > 0 && !engine_->idle() && !HasFailure(); --left) step();
    EXPECT_TRUE(engine_->idle());
  }

  Answer ask(const Tokens& prompt, std::int64_t max_tokens, int tenant = 0) {
    const RequestId id = submit(prompt, max_tokens, tenant);
    run();
    return answers_[id];
  }

  // What an engine without cache and audit answers.
  Tokens cold(const Tokens& prompt, std::int64_t max_tokens) {
    HashModel model;
    model.have_adapters(model_.adapters()->list());
    EngineOptions options = options_;
    options.kv.cache = "none";
    options.shadow_audit_percent = 0;
    const auto pool = HashModel::make_pool(options_.kv);
    const auto engine = Engine::open(
        options,
        {.runner = model, .pools = {*pool}, .vocab_tokens = HashModel::kVocab, .clock = clock_});
    RequestSpec spec;
    spec.prompt = prompt;
    spec.max_tokens = max_tokens;
    spec.adapter = adapter_;
    EXPECT_TRUE((*engine)->submit(std::move(spec)).ok());
    Tokens tokens;
    while (!(*engine)->idle()) {
      for (const EngineEvent& event : (*engine)->step().events) tokens.push_back(event.token);
    }
    return tokens;
  }

  // One bit of the page that a request had at that place.
  void flip(RequestId request, std::size_t page) {
    auto pieces = pool_->layer_pieces(1);
    std::byte* const bytes = pieces.begin()->of(model_.pages_of.at(request).at(page));
    bytes[5] ^= std::byte{4};
  }

  std::int64_t cached(const Tokens& prompt) const {
    return engine_->kv().probe(NamespaceId(0), prompt);
  }
  std::int64_t in_host(const Tokens& prompt) const {
    return engine_->kv().probe_host(NamespaceId(0), prompt);
  }
  // Until everything that can be copied down is, and what must be removed is.
  void settle() { engine_->settle(std::chrono::seconds(3600)); }

  static Tokens text(std::uint64_t seed, std::int64_t tokens) {
    Prng prng(seed);
    Tokens out;
    for (std::int64_t i = 0; i < tokens; ++i) out.push_back(static_cast<TokenId>(prng.below(64)));
    return out;
  }

  static Tokens joined(Tokens text, const Tokens& more) {
    text.insert(text.end(), more.begin(), more.end());
    return text;
  }

  static constexpr std::uint8_t kShared = 255;  // first byte of the namespace of what is shared
  std::int64_t shared_tokens_ = 0;              // that prompts begin with; 0: tenants share nothing
  std::string adapter_;                         // what requests are computed with
  EngineOptions options_;
  SharedFakeClock clock_;
  ThreadPool threads_{1};
  HashModel model_;
  MemoryPageStore* store_ = nullptr;
  std::vector<std::string> log_;

  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<TierStack> stack_;
  std::unique_ptr<HeldTiers> tiers_;
  std::unique_ptr<Engine> engine_;
  std::map<RequestId, Answer> answers_;
};

}  // namespace stemma
