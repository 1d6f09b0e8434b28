// EmbeddedPlan: what an engine opens through the C ABI, drawn from a seed: the shape of its pools,
// its cache, what lies below, and the namespaces that it knows.
//
// Thread:     a value.
// Memory:     a few words.
// Cost:       none.
// Not here:   what is done with it (embedded_engine).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "stemma/c.h"

namespace stemma {

using Text = std::vector<std::int32_t>;
using Digest = std::array<std::uint8_t, 32>;
using Family = std::array<std::uint8_t, 8>;

inline Family family_bytes(const Digest& digest) {
  Family family;
  std::copy_n(digest.begin(), family.size(), family.begin());
  return family;
}

// A namespace as the engine knows it: alone, or behind a beginning that others share.
struct KnownNamespace {
  Digest digest = {};
  std::optional<Digest> shared = std::nullopt;
  Text begin = {};  // of whole pages, where it is behind one
};

enum class Below { kNothing, kHost, kStore, kStores, kDisk };

struct EmbeddedPlan {
  explicit EmbeddedPlan(std::uint64_t seed);

  stemma_pool_options pool = {};
  stemma_pool_options windowed_pool = {};  // where the cache has a window
  stemma_cache_options cache = {};
  Below below = Below::kNothing;
  std::int64_t host_pages = 0;
  std::int32_t host_layout = STEMMA_PAGE_FIRST;
  bool keeps_host_file = false;
  bool keeps_purge_file = false;
  bool stores_can_purge = true;
  bool stores_can_remove = true;
  std::int64_t mischief = 0;  // of stores: see WildStore
  std::array<std::int32_t, 2> alphabet = {0, 1};
  std::vector<KnownNamespace> namespaces;
  std::int64_t namespaces_max = 65'536;  // as the C ABI has it, or as few as KvCacheOptions allows

  bool has_window() const { return cache.window_tokens > 0; }
  bool shares() const { return std::string(cache.cache) == "radix"; }
};

// For people who read a failure.
std::string to_string(const EmbeddedPlan& plan);

}  // namespace stemma
