// Grafts: namespaces that go on from a prefix of another one.
//
// A prefix that everybody may share lives in a namespace of its own; what a tenant's text has
// behind it begins a new root, in a namespace whose digest names the last shared page and the
// tenant:
//
//   tokens     [ shared, whole pages )( own ................ )
//   namespace    shared_ns              ns
//
// Thread:     engine thread only.               Invariants: I7 (docs/INVARIANTS.md).
// Memory:     48 bytes a namespace; kWrongMax namespaces more, of as many tenants: beyond that
//             stores are to forget everything.
// Cost:       O(1), but for dependents_of; those of wrong pages O(log kWrongMax).
// Not here:   digests (whoever says that a namespace is grafted), trees (prefix/).
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "stemma/ids.h"
#include "stemma/prefix_cache.h"
#include "stemma/sequence.h"
#include "tier/purge_file.h"

namespace stemma {

// A text by the namespaces that its parts lie in.
struct GraftedText {
  NamespaceId shared_ns;  // invalid: the namespace is not grafted, and `shared` is empty
  std::span<const TokenId> shared;
  std::span<const TokenId> own;
};

// Tokens that are found of a text where `probe` looks a part of it up, the shared one (true) or its
// own: what goes on from the shared part counts where that is whole, there or, as `is_elsewhere`
// says, in a tier above.
template <typename Probe, typename IsElsewhere>
std::int64_t found_tokens(const GraftedText& text, Probe&& probe, IsElsewhere&& is_elsewhere) {
  const auto whole = std::ssize(text.shared);
  const std::int64_t shared = text.shared.empty() ? 0 : probe(true, text.shared);
  if (shared < whole && !is_elsewhere()) return shared;
  return whole + probe(false, text.own);
}

// Of a text, what is cached, and up to where it can be gone on from: where windows have gone, less.
struct FoundText {
  std::int64_t tokens = 0;
  std::int64_t usable_tokens = 0;
  std::int64_t evictable_tokens = 0;  // of `tokens`, that nobody holds
};

// What a namespace goes on from.
struct Graft {
  NamespaceId own_ns;
  NamespaceId shared_ns;           // as long as the namespace is open: names are given away
  std::int64_t shared_tokens = 0;  // 0: the namespace is not grafted
  NamespaceDigest shared_digest = {};

  GraftedText split(std::span<const TokenId> tokens) const {
    const auto shared = std::min(static_cast<std::size_t>(shared_tokens), tokens.size());
    return {shared_ns, tokens.first(shared), tokens.subspan(shared)};
  }
};

class Grafts {
 public:
  // What `ns` goes on from; an invalid namespace and no tokens: nothing.
  void set(NamespaceId ns, NamespaceId shared_ns, const SharedPrefix& shared) {
    if (grafts_.size() <= ns.index()) grafts_.resize(ns.index() + 1);
    grafts_[ns.index()] = {ns, shared_ns, shared.tokens, shared.digest};
  }

  Graft of(NamespaceId ns) const {
    return ns.index() < grafts_.size() ? grafts_[ns.index()] : Graft{.own_ns = ns, .shared_ns = {}};
  }
  NamespaceId shared_ns(NamespaceId ns) const { return of(ns).shared_ns; }
  // 0: it is not grafted.
  std::int64_t shared_tokens(NamespaceId ns) const { return of(ns).shared_tokens; }

  GraftedText split(NamespaceId ns, std::span<const TokenId> tokens) const {
    return of(ns).split(tokens);
  }

  // How many of the first tokens of equal texts are the same pages in both namespaces, at most.
  std::int64_t common_tokens(NamespaceId a, NamespaceId b, std::int64_t tokens) const {
    if (a == b) return tokens;
    const Graft one = of(a);
    const Graft other = of(b);
    if (!one.shared_ns.valid() || one.shared_ns != other.shared_ns) return 0;
    return std::min({tokens, one.shared_tokens, other.shared_tokens});
  }

  // The namespaces that go on from behind the first `tokens` tokens of a text of the namespace of
  // `digest`, or may do so, as far as they have a name. O(namespaces).
  std::vector<NamespaceId> dependents_of(const NamespaceDigest& digest, std::int64_t tokens) const {
    std::vector<NamespaceId> dependents;
    for (std::size_t i = 0; i < grafts_.size(); ++i) {
      const Graft& graft = grafts_[i];
      const bool goes_on = graft.shared_tokens > 0 && graft.shared_digest == digest;
      if (!goes_on || graft.shared_tokens < tokens) continue;
      dependents.push_back(NamespaceId(static_cast<std::int32_t>(i)));
    }
    return dependents;
  }

  // The last page of the first `tokens` was wrong in a namespace that nobody is known to go on
  // from. False, and nothing is remembered any more: it would be too much.
  bool try_note_wrong(const NamespaceDigest& digest, std::int64_t tokens) {
    ++wrong_changes_;
    const auto [wrong, is_new] = wrong_.try_emplace(digest, tokens);
    wrong->second = std::min(wrong->second, tokens);
    if (wrong_.size() <= kWrongMax) return true;
    wrong_.clear();
    return false;
  }
  // Whether so many tokens of it have a page that was noted. It is not known any more then.
  bool take_wrong(const NamespaceDigest& digest, std::int64_t tokens) {
    const auto wrong = wrong_.find(digest);
    if (wrong == wrong_.end() || wrong->second > tokens) return false;
    ++wrong_changes_;
    wrong_.erase(wrong);
    return true;
  }
  // What was noted.
  std::vector<WrongShared> wrong() const {
    std::vector<WrongShared> noted;
    noted.reserve(wrong_.size());
    for (const auto& [digest, tokens] : wrong_) noted.push_back({digest, tokens});
    return noted;
  }
  // Grows with whatever may change that.
  std::int64_t wrong_changes() const noexcept { return wrong_changes_; }

 private:
  static constexpr std::size_t kWrongMax = 4096;

  std::vector<Graft> grafts_;  // by namespace
  std::map<NamespaceDigest, std::int64_t> wrong_;
  std::int64_t wrong_changes_ = 0;
};

}  // namespace stemma
