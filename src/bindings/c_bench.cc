#include "bindings/c_bench.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>

#include "base/check.h"
#include "bindings/c_handles.h"

namespace stemma {

namespace {

constexpr std::int64_t kCachedTokens = 8'192;
constexpr int kSamples = 101;
constexpr int kRepeats = 200;

// Nanoseconds of one of kRepeats calls.
template <typename Call>
double nanoseconds_of(const Call& call) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kRepeats; ++i) call();
  const auto end = std::chrono::steady_clock::now();
  return std::chrono::duration<double, std::nano>(end - start).count() / kRepeats;
}

// A cache in which all of a prompt but its last token is cached.
class WarmCache {
 public:
  WarmCache() : tokens_(kCachedTokens + 1) {
    std::iota(tokens_.begin(), tokens_.end(), 0);
    stemma_cache_options options;
    stemma_cache_options_init(&options, sizeof(options));
    options.pages = 2 * kCachedTokens / options.page_size;
    options.context_tokens_max = 2 * kCachedTokens;
    STEMMA_CHECK_EQ(stemma_cache_open(&options, nullptr, &cache_), STEMMA_OK);
    const std::array<std::uint8_t, 32> digest = {};
    STEMMA_CHECK_EQ(stemma_namespace_open(cache_, digest.data(), &ns_), STEMMA_OK);
    stemma_sequence* sequence = nullptr;
    STEMMA_CHECK_EQ(stemma_begin(cache_, ns_, tokens_.data(), tokens_.size(), &sequence),
                    STEMMA_OK);
    STEMMA_CHECK_EQ(stemma_reserve(sequence, kCachedTokens), STEMMA_OK);
    STEMMA_CHECK_EQ(stemma_finish(sequence, tokens_.data(), kCachedTokens), STEMMA_OK);
  }
  ~WarmCache() { stemma_cache_close(cache_); }
  WarmCache(const WarmCache&) = delete;
  WarmCache& operator=(const WarmCache&) = delete;

  void begin_in_c() {
    stemma_sequence* sequence = nullptr;
    const stemma_status status =
        stemma_begin(cache_, ns_, tokens_.data(), tokens_.size(), &sequence);
    STEMMA_CHECK_EQ(status, STEMMA_OK);
    STEMMA_CHECK_EQ(stemma_cached_tokens(sequence), kCachedTokens);
    stemma_release(sequence);
  }
  void begin_in_cpp() {
    auto sequence = cache_->kv->begin(NamespaceId(ns_), std::span<const TokenId>(tokens_));
    STEMMA_CHECK_EQ(sequence->cached_tokens(), kCachedTokens);
    sequence->reset();
  }

 private:
  std::vector<TokenId> tokens_;
  stemma_cache* cache_ = nullptr;
  std::int32_t ns_ = -1;
};

}  // namespace

std::vector<BenchLine> bench_c_abi() {
  WarmCache cache;
  std::vector<double> c;
  std::vector<double> cpp;
  std::vector<double> overhead;
  for (int sample = 0; sample < kSamples; ++sample) {
    cpp.push_back(nanoseconds_of([&] { cache.begin_in_cpp(); }));
    c.push_back(nanoseconds_of([&] { cache.begin_in_c(); }));
    overhead.push_back(c.back() - cpp.back());
  }
  return {{.bench = "c_abi",
           .params = {{"cached_tokens", std::to_string(kCachedTokens)},
                      {"page_size", "16"},
                      {"overhead_ns", std::to_string(static_cast<int>(median(overhead)))},
                      {"allowed_ns", std::to_string(static_cast<int>(median(cpp)) + 100)}},
           .value = median(c),
           .unit = "ns",
           .bound = median(cpp),
           .bound_name = "cpp",
           .ratio = median(cpp) / median(c),
           .repeats = kSamples,
           .spread = spread(c)}};
}

}  // namespace stemma
