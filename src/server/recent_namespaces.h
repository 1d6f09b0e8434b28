// RecentNamespaces: under which salts and extra keys a tenant asked last: where its text may be
// cached when it is not found.
//
// Thread:     any; a mutex.
// Memory:     kKept pairs of words a tenant.
// Cost:       O(kKept) a request.
// Not here:   whether it is cached there (Engine).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "openai/completion_request.h"

namespace stemma {

class RecentNamespaces {
 public:
  static constexpr std::size_t kKept = 8;

  struct Sibling {
    std::string salt;
    std::string extra_key;
    std::string_view field;  // in which it differs: "extra_key", "cache_salt", or both
  };

  // Those of the tenant beside this one, which is remembered, latest first. Whoever asks under one
  // salt is told of no other, unless it may see `all`: a salt keeps its users apart from others.
  std::vector<Sibling> note(const std::string& tenant, const CacheFields& fields, bool all);

 private:
  struct Pair {
    std::string salt;
    std::string extra_key;
    friend bool operator==(const Pair&, const Pair&) = default;
  };

  std::mutex mutex_;
  std::map<std::string, std::deque<Pair>> by_tenant_;
};

}  // namespace stemma
