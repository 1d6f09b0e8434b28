// TraceFuture: a whole trace at once, each page with the time of its next use.
//
// A use is a look-up. Where a request's output puts a page in, whoever has the page until then gets
// nothing from it: it is not used before.
//
// A page is a node of the tree of all prefixes of the trace: equal hashes below different prefixes
// are different pages, as they are in the radix tree.
//
// Thread:     a value; reading it is const.
// Memory:     about 16 bytes a page of a request and 40 a different page: the one part of a replay
//             that grows with the trace.
// Cost:       one hash look-up a page.
// Not here:   what is kept (oracle).
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/drawn_hash.h"
#include "replay/trace_reader.h"

namespace stemma {

class TraceFuture {
 public:
  // A page's place among the different pages of the trace, in order of first use.
  using Node = std::int32_t;
  static constexpr Node kRoot = -1;
  // The next use of a page that is not used again.
  static constexpr std::int32_t kNever = std::numeric_limits<std::int32_t>::max();

  // Adds the trace's next request. REQUIRES: fewer than 2^31 − 1 requests and pages so far.
  void add(const TraceRequest& request);

  std::int32_t requests() const noexcept { return static_cast<std::int32_t>(ends_.size()); }
  std::int32_t nodes() const noexcept { return static_cast<std::int32_t>(parents_.size()); }
  Node parent(Node node) const { return parents_[static_cast<std::size_t>(node)]; }
  // The pages of a request, in order: those looked up, then those of its output.
  std::span<const Node> pages_of(std::int32_t request) const;
  // How many of them are looked up.
  std::int64_t lookups_of(std::int32_t request) const {
    return lookups_[static_cast<std::size_t>(request)];
  }
  // For each of them: the next request that uses it, or kNever.
  std::span<const std::int32_t> next_uses_of(std::int32_t request) const;

 private:
  struct Step {
    Node parent;
    std::int64_t page_hash;
    bool operator==(const Step&) const = default;
  };
  struct StepHash {
    DrawnHash hash;
    std::size_t operator()(const Step& step) const noexcept {
      return hash(step.parent, step.page_hash);
    }
  };

  Node add_page(Node parent, std::int64_t page_hash, bool is_lookup);
  std::size_t begin_of(std::int32_t request) const;

  std::unordered_map<Step, Node, StepHash> nodes_by_step_;
  std::vector<Node> parents_;               // [nodes]
  std::vector<std::size_t> latest_places_;  // [nodes], in pages_
  std::vector<Node> pages_;                 // [pages], request after request
  std::vector<std::int32_t> next_uses_;     // [pages]
  std::vector<std::size_t> ends_;           // [requests]
  std::vector<std::int64_t> lookups_;       // [requests]
};

}  // namespace stemma
