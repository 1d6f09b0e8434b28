// A prefix-sharing cache in an engine of your own: Stemma says which tokens need no computing and
// where the rest go.
#include <cstdio>
#include <numeric>
#include <vector>

#include "stemma/kv_cache.h"

int main() {
  stemma::KvCacheOptions options;
  options.page_size = 16;
  options.pages = 1024;
  auto opened = stemma::KvCache::open(options);
  if (!opened.ok()) {
    std::puts(stemma::to_string(opened.error()).c_str());
    return 1;
  }
  stemma::KvCache& cache = **opened;
  // Everything that makes KV valid (model, formats, tenant) belongs into the namespace digest.
  const auto ns = *cache.try_open_namespace(stemma::NamespaceDigest{});

  std::vector<stemma::TokenId> prompt(100);  // as your tokenizer gives it
  std::iota(prompt.begin(), prompt.end(), 7);

  for (int turn = 0; turn < 2; ++turn) {
    stemma::Sequence sequence = *cache.begin(ns, prompt);  // locks what is cached
    const auto cached = sequence.cached_tokens();
    if (!cache.reserve(sequence, static_cast<std::int64_t>(prompt.size())))
      return 1;  // evicts if it must
    // Your model computes tokens cached … 99 here; sequence.pages() says where their keys and
    // values go.
    std::printf("turn %d: %ld of %zu tokens are cached\n", turn, static_cast<long>(cached),
                prompt.size());
    cache.finish(std::move(sequence),
                 prompt);  // full pages stay for the next prompt that begins like this
  }
}
