#include "server/shared_prefixes.h"

#include <algorithm>
#include <utility>

#include "prefix/namespace_digest.h"
#include "prefix/page_key.h"

namespace stemma {

void SharedPrefixes::add(std::span<const TokenId> tokens) {
  const auto page = static_cast<std::size_t>(page_size_);
  Entry entry;
  PageKeyChain chain(digest_);
  for (std::size_t end = page; end <= tokens.size(); end += page) {
    entry.match.last_key = chain.append(tokens.subspan(end - page, page));
    entry.match.prefix.tokens = static_cast<std::int64_t>(end);
  }
  const auto whole = tokens.first(static_cast<std::size_t>(entry.match.prefix.tokens));
  if (whole.empty()) return;
  entry.match.prefix.digest = digest_;
  entry.tokens.assign(whole.begin(), whole.end());
  const auto place = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& other) {
    return other.tokens.size() < entry.tokens.size();
  });
  entries_.insert(place, std::move(entry));
}

const SharedPrefixes::Match* SharedPrefixes::find_or_null(std::span<const TokenId> tokens) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.tokens.size() <= tokens.size() &&
           std::equal(entry.tokens.begin(), entry.tokens.end(), tokens.begin());
  });
  return found == entries_.end() ? nullptr : &found->match;
}

NamespaceDigest SharedPrefixes::behind(const Match& match, const NamespaceDigest& own) {
  return grafted(own, match.last_key);
}

}  // namespace stemma
