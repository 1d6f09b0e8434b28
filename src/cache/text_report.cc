#include "cache/text_report.h"

#include <algorithm>

#include "base/check.h"
#include "base/math.h"
#include "cache/tiering.h"
#include "cache/windows.h"
#include "prefix/radix_prefix_cache.h"

namespace stemma {

// Where windows have gone, what could be gone on from is less than what the tree finds.
PrefixEndReport TextReporter::why_ends(const Graft& graft, std::span<const TokenId> tokens) const {
  STEMMA_CHECK(!tokens.empty(), "a prompt has at least one token");
  PrefixEndReport report = why_match_ends(graft, tokens);
  if (kv_.windows_ == nullptr) return report;
  const std::int64_t usable = kv_.find(graft, tokens.first(tokens.size() - 1)).usable_tokens;
  const std::int64_t most = round_down(std::ssize(tokens) - 1, kv_.page_size());
  if (usable < std::min(report.matched_tokens, most)) {
    report = {.matched_tokens = usable, .end = PrefixEnd::kWindow};
  }
  return report;
}

// Of a text that goes on from a shared part, the first part that is not whole tells.
PrefixEndReport TextReporter::why_match_ends(const Graft& graft,
                                             std::span<const TokenId> tokens) const {
  const GraftedText text = graft.split(tokens);
  if (text.own.empty() || !has_shared(graft, text.shared)) {
    return why_part_ends(text.shared_ns,
                         tokens.first(std::min(tokens.size(), text.shared.size() + 1)));
  }
  PrefixEndReport report = why_part_ends(graft.own_ns, text.own);
  report.matched_tokens += std::ssize(text.shared);
  return report;
}

PrefixEndReport TextReporter::why_part_ends(NamespaceId ns, std::span<const TokenId> part) const {
  if (ns.valid()) return kv_.tree().why_ends(ns, part);
  const bool is_tail = std::ssize(part) - 1 < kv_.page_size();
  return {.end = is_tail ? PrefixEnd::kTail : PrefixEnd::kCold};
}

// Whether all of a text's shared part is found, as is none.
bool TextReporter::has_shared(const Graft& graft, std::span<const TokenId> shared) const {
  if (shared.empty()) return true;
  return graft.shared_ns.valid() &&
         kv_.prefix_->probe(graft.shared_ns, shared).matched_tokens == std::ssize(shared);
}

NearestText TextReporter::nearest(const Graft& graft, std::span<const TokenId> tokens,
                                  std::int64_t next_tokens_max) const {
  const GraftedText text = graft.split(tokens);
  const bool in_own = !text.own.empty() && has_shared(graft, text.shared);
  const NamespaceId ns = in_own ? graft.own_ns : graft.shared_ns;
  NearestText nearest;
  if (ns.valid())
    nearest = kv_.tree().nearest(ns, in_own ? text.own : text.shared, next_tokens_max);
  if (in_own) nearest.common_tokens += std::ssize(text.shared);
  return nearest;
}

// `probe` looks below for a part of the text: the shared one, or not.
std::int64_t TextReporter::find_below(const Graft& graft, std::span<const TokenId> tokens,
                                      Probe probe) const {
  const GraftedText text = graft.split(tokens.first(tokens.size() - 1));
  return found_tokens(text, probe, [&] { return has_shared(graft, text.shared); });
}

// What host memory and stores have they know by the digest, whatever names the device gives.
TextReport TextReporter::report(const NamespaceDigest& digest, const SharedPrefix* shared_or_null,
                                std::span<const TokenId> tokens,
                                std::int64_t next_tokens_max) const {
  const auto name_of = [this](const NamespaceDigest& named) {
    return kv_.tree().find_namespace(named).value_or(NamespaceId());
  };
  Graft graft{.own_ns = name_of(digest), .shared_ns = {}};
  if (shared_or_null != nullptr) {
    graft.shared_ns = name_of(shared_or_null->digest);
    graft.shared_tokens = shared_or_null->tokens;
  }
  TextReport report = {.end = why_ends(graft, tokens),
                       .nearest = nearest(graft, tokens, next_tokens_max)};
  if (kv_.tiering_ == nullptr) return report;
  const auto probe_below = [&](Tier tier, bool shared, std::span<const TokenId> part) {
    const NamespaceDigest& of_part = shared ? shared_or_null->digest : digest;
    return tier == Tier::kHost
               ? kv_.tiering_->host_tree().probe_by_digest(of_part, part).matched_tokens
               : kv_.tiering_->probe_stores(of_part, part);
  };
  report.host_tokens = find_below(graft, tokens, [&](bool shared, auto part) {
    return probe_below(Tier::kHost, shared, part);
  });
  report.store_tokens = find_below(graft, tokens, [&](bool shared, auto part) {
    return probe_below(Tier::kDisk, shared, part);
  });
  return report;
}

}  // namespace stemma
