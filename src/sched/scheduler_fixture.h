// A scheduler without a model, and the texts of its tests.
//
// Thread:     one, which takes the role of the engine's.
// Memory:     that of a KvCache without bytes of pages.
// Cost:       an audit a step.
// Not here:   lower tiers, models (engine/, tests/sim).
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "sched/scheduler.h"

namespace stemma {

// A scheduler whose "model" answers with the position.
class Bench {
 public:
  explicit Bench(const EngineOptions& options) {
    auto kv = KvCache::open(options.kv);
    EXPECT_TRUE(kv.ok());
    kv_ = std::move(kv).value();
    scheduler_ = std::make_unique<Scheduler>(*kv_, options.scheduler);
    ns_ = *kv_->try_open_namespace({});
  }

  Request& submit(std::int64_t id, std::vector<TokenId> prompt, std::int64_t output_tokens = 1,
                  std::int32_t priority = 0) {
    return submit_in(ns_, id, std::move(prompt), output_tokens, priority);
  }
  Request& submit_in(NamespaceId ns, std::int64_t id, std::vector<TokenId> prompt,
                     std::int64_t output_tokens = 1, std::int32_t priority = 0) {
    assume_role(engine_thread);
    prompt.reserve(prompt.size() + static_cast<std::size_t>(output_tokens));
    Request* request = scheduler_->try_submit_or_null({.id = RequestId(id),
                                                       .ns = ns,
                                                       .prompt = std::move(prompt),
                                                       .output_tokens_max = output_tokens,
                                                       .priority = priority});
    EXPECT_NE(request, nullptr);
    return *request;
  }

  // Plans; the ids in the batch.
  std::vector<std::int64_t> plan() {
    assume_role(engine_thread);
    scheduler_->plan_step();
    std::vector<std::int64_t> ids;
    for (const Request* request : scheduler_->scheduled()) {
      ids.push_back(request->id.value());
      if (request->computed_tokens == request->sequence.cached_tokens()) {
        admitted_.push_back(request->id.value());
      }
    }
    check();
    return ids;
  }

  // Completes the planned step and gives every output its token.
  void complete() {
    assume_role(engine_thread);
    scheduler_->complete_step();
    check();
    for (const StepOutput& output : scheduler_->outputs()) {
      if (!output.chooses) continue;
      Request* const request = output.request_or_null;
      request->tokens.push_back(static_cast<TokenId>(1'000'000 + request->total_tokens()));
      if (request->generated_tokens() == request->output_tokens_max) {
        scheduler_->finish(*request);
      }
    }
    check();
  }

  std::vector<std::int64_t> step() {
    auto ids = plan();
    complete();
    return ids;
  }

  void run() {
    for (int left = 100'000; left > 0 && !scheduler_->idle(); --left) {
      ASSERT_FALSE(step().empty()) << "no progress (I12)";
    }
  }

  void check() {
    const auto kv = kv_->audit();
    EXPECT_FALSE(kv.has_value()) << *kv;
    const auto lists = scheduler_->audit();
    EXPECT_FALSE(lists.has_value()) << *lists;
  }

  KvCache& kv() { return *kv_; }
  Scheduler& scheduler() { return *scheduler_; }
  const std::vector<std::int64_t>& admitted() const { return admitted_; }

 private:
  std::unique_ptr<KvCache> kv_;
  std::unique_ptr<Scheduler> scheduler_;
  NamespaceId ns_;
  std::vector<std::int64_t> admitted_;
};

inline EngineOptions options_for(std::int64_t page_size, std::int64_t pages) {
  EngineOptions options;
  options.kv.page_size = page_size;
  options.kv.pages = pages;
  options.kv.requests_max = 8;
  options.kv.context_tokens_max = 4096;
  options.scheduler.step_tokens_max = 256;
  options.scheduler.chunk_tokens_max = 256;
  return options;
}

// `count` tokens, the i-th being first + i: texts with different `first` share nothing.
inline std::vector<TokenId> text(TokenId first, std::int64_t count) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

inline std::vector<TokenId> operator+(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

using Ids = std::vector<std::int64_t>;

}  // namespace stemma
