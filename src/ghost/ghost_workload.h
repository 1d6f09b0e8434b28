// Requests of conversations for tests and benchmarks of ghosts: some begin anew behind one of a few
// system prompts, others continue an earlier one, the recent ones more often.
//
// Thread:     one thread a workload.
// Memory:     the conversations' hashes.
// Cost:       O(pages) a request.
// Not here:   real traces (replay/).
#pragma once

#include <cstdint>
#include <vector>

#include "base/prng.h"

namespace stemma {

class GhostWorkload {
 public:
  explicit GhostWorkload(std::uint64_t seed) : random_(seed) {}

  // The page hashes of the next request; each is chained over those before it.
  const std::vector<std::int64_t>& next() {
    if (conversations_.empty() || random_.below(4) == 0) {
      conversations_.push_back({});
      extend(conversations_.back(), 1 + random_.below(6), random_.below(kSystemPrompts));
    }
    const auto age = static_cast<std::size_t>(random_.unit() * random_.unit() *
                                              static_cast<double>(conversations_.size()));
    std::vector<std::int64_t>& conversation = conversations_[conversations_.size() - 1 - age];
    extend(conversation, random_.below(12), static_cast<std::int64_t>(random_() >> 1));
    return conversation;
  }

 private:
  static constexpr std::int64_t kSystemPrompts = 5;

  static void extend(std::vector<std::int64_t>& pages, std::int64_t more, std::int64_t content) {
    for (std::int64_t i = 0; i < more; ++i) {
      const std::uint64_t before = pages.empty() ? 0 : static_cast<std::uint64_t>(pages.back());
      pages.push_back(
          static_cast<std::int64_t>(mix64(before ^ static_cast<std::uint64_t>(content))));
    }
  }

  Prng random_;
  std::vector<std::vector<std::int64_t>> conversations_;
};

}  // namespace stemma
