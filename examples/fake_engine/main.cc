// An engine whose model is fake and whose cache is not: it "computes" a row of K and V for each
// token, keeps them in pages of Stemma, and computes nothing twice. With a model in compute_token
// it would be a real one.
#include <cstdio>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "stemma/embed.h"
#include "stemma/kv_cache.h"
#include "stemma/log.h"

namespace {

constexpr std::string_view kModel = "fake-1";
constexpr stemma::KvShape kShape = {
    .layers = 2, .pages = 256, .page_size = 16, .heads = 2, .head_dim = 32};

class FakeEngine {
 public:
  FakeEngine(std::unique_ptr<stemma::KvPool> pool, std::unique_ptr<stemma::KvCache> cache)
      : pool_(std::move(pool)), cache_(std::move(cache)) {}

  // Computes what nothing is cached of, publishes it, and tells how many tokens that was; -1 where
  // there is no room now.
  std::int64_t serve(std::string_view tenant, const std::vector<stemma::TokenId>& prompt) {
    const stemma::NamespaceField fields[] = {{"model", std::as_bytes(std::span(kModel))},
                                             {"tenant", std::as_bytes(std::span(tenant))}};
    const auto ns = cache_->try_open_namespace(stemma::namespace_digest(fields));
    if (!ns.has_value()) return -1;
    auto sequence = cache_->begin(*ns, prompt);  // finds and locks what is cached
    const auto tokens = static_cast<std::int64_t>(prompt.size());
    if (!sequence.has_value() || !cache_->reserve(*sequence, tokens)) return -1;
    const std::int64_t cached = sequence->cached_tokens();
    for (std::int64_t i = cached; i < tokens; ++i) {
      const stemma::PageId page = sequence->pages()[static_cast<std::size_t>(i / kShape.page_size)];
      compute_token(prompt[static_cast<std::size_t>(i)],
                    page.value() * kShape.page_size + i % kShape.page_size);
    }
    cache_->finish(*std::move(sequence), prompt);  // others find its full pages from now on
    cache_->close_namespace(*ns);
    return tokens - cached;
  }

 private:
  void compute_token(stemma::TokenId token, std::int64_t slot) {
    const std::vector<float> row(64, static_cast<float>(token));
    const stemma::KvRows rows = {
        .elements = row.data(), .rows = 1, .heads = 2, .head_dim = 32, .row_stride = 64};
    for (std::int64_t layer = 0; layer < kShape.layers; ++layer) {
      const auto stored = pool_->store(layer, std::span(&slot, 1), rows, rows);
      if (!stored.ok()) std::puts(stemma::to_string(stored.error()).c_str());
    }
  }

  std::unique_ptr<stemma::KvPool> pool_;
  std::unique_ptr<stemma::KvCache> cache_;
};

}  // namespace

int main() {
  stemma::set_log_sink([](stemma::LogLevel, std::string_view line) {
    std::printf("log: %.*s\n", static_cast<int>(line.size()), line.data());
  });
  auto pool = stemma::open_kv_pool(kShape);
  stemma::KvCacheOptions options;
  options.page_size = kShape.page_size;
  options.pages = kShape.pages;
  auto cache = stemma::KvCache::open(options);
  if (!pool.ok() || !cache.ok()) {
    std::puts(stemma::to_string(pool.ok() ? cache.error() : pool.error()).c_str());
    return 1;
  }
  FakeEngine engine(*std::move(pool), *std::move(cache));

  std::vector<stemma::TokenId> prompt(200, 1);  // what every request of a tenant begins with
  for (const auto& [tenant, question] : {std::pair{"a", 7}, {"a", 8}, {"b", 7}}) {
    prompt.resize(200);
    prompt.insert(prompt.end(), 20, question);
    const auto computed = engine.serve(tenant, prompt);
    std::printf("tenant %s, question %d: computed %lld of %zu tokens\n", tenant, question,
                static_cast<long long>(computed), prompt.size());
  }
}
