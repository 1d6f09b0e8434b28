#include "cache/memory_bench.h"

#include <malloc.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/prng.h"
#include "base/resident_bytes.h"
#include "stemma/kv_cache.h"

namespace stemma {

namespace {

using Text = std::vector<TokenId>;

constexpr std::int64_t kBeginnings = 64;
constexpr std::int64_t kContextTokens = 8'192;

// Bytes that were asked of the heap and not given back.
std::int64_t heap_bytes() {
  const struct mallinfo2 counts = mallinfo2();
  return static_cast<std::int64_t>(counts.uordblks + counts.hblkhd);
}

void append_random(Text& text, std::int64_t count, Prng& random) {
  for (std::int64_t i = 0; i < count; ++i) {
    text.push_back(static_cast<TokenId>(random.below(128'000)));
  }
}

// The texts of a day: shared beginnings, a tail each, and some tails that part midway.
class Conversations {
 public:
  Conversations() {
    for (Text& beginning : beginnings_)
      append_random(beginning, 256 + random_.below(1'792), random_);
  }
  const Text& next() {
    const bool second_way = number_++ % 4 == 3;
    if (second_way) {
      const auto shared = static_cast<std::int64_t>(text_.size()) - tail_tokens_ / 2;
      text_.resize(static_cast<std::size_t>(shared));
    } else {
      text_ = beginnings_[static_cast<std::size_t>(random_.below(kBeginnings))];
    }
    tail_tokens_ = 200 + random_.below(2'000);
    append_random(text_, tail_tokens_, random_);
    return text_;
  }

 private:
  Prng random_{7};
  std::vector<Text> beginnings_ = std::vector<Text>(kBeginnings);
  Text text_;
  std::int64_t tail_tokens_ = 0;
  std::int64_t number_ = 0;
};

// Publishes conversations until the next one would need eviction; how many.
std::int64_t fill(KvCache& cache, NamespaceId ns, Conversations& conversations) {
  for (std::int64_t published = 0;; ++published) {
    const Text& text = conversations.next();
    const auto tokens = std::ssize(text);
    std::optional<Sequence> sequence = cache.begin(ns, text);
    const std::int64_t missing = tokens - sequence->cached_tokens();
    if (missing / cache.page_size() + 1 > cache.free_pages()) return published;
    if (!cache.reserve(*sequence, tokens)) return published;
    cache.finish(*std::move(sequence), text);
  }
}

Result<BenchLine> memory_line(const MemoryBenchOptions& bench, std::int64_t page_size,
                              double allowed) {
  KvCacheOptions options;
  options.page_size = page_size;
  options.pages = bench.cached_tokens / page_size;
  options.requests_max = 256;
  options.context_tokens_max = kContextTokens;
  Conversations conversations;
  ::malloc_trim(0);  // what others gave back is none of what there was before
  const std::int64_t heap_before = heap_bytes();
  STEMMA_ASSIGN_OR_RETURN(const std::int64_t resident_before, resident_bytes());
  STEMMA_ASSIGN_OR_RETURN(const std::unique_ptr<KvCache> cache, KvCache::open(options));
  const std::int64_t published = fill(*cache, *cache->try_open_namespace({}), conversations);
  STEMMA_ASSIGN_OR_RETURN(const std::int64_t resident_after, resident_bytes());
  const auto tokens = static_cast<double>(cache->usage().total_tokens());
  const double value = static_cast<double>(resident_after - resident_before) / tokens;
  const double reserved = static_cast<double>(heap_bytes() - heap_before) / tokens;
  return BenchLine{.bench = "memory",
                   .params = {{"page_size", std::to_string(page_size)},
                              {"cached_tokens", std::to_string(static_cast<std::int64_t>(tokens))},
                              {"conversations", std::to_string(published)},
                              {"requests_max", std::to_string(options.requests_max)},
                              {"reserved_bytes", std::to_string(reserved)}},
                   .value = value,
                   .unit = "bytes/token",
                   .bound = allowed,
                   .bound_name = "allowed",
                   .ratio = allowed / value,
                   .repeats = 1,
                   .spread = 0};
}

}  // namespace

Result<std::vector<BenchLine>> bench_memory(const MemoryBenchOptions& options) {
  std::vector<BenchLine> lines;
  for (const auto& [page_size, allowed] : {std::pair<std::int64_t, double>{16, 8.0}, {1, 24.0}}) {
    STEMMA_ASSIGN_OR_RETURN(BenchLine line, memory_line(options, page_size, allowed));
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace stemma
