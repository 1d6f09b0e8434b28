// Taking wrong pages out of everybody's sight: the part of Tiering that does so in every tier.
#include <algorithm>

#include "cache/tiering.h"

namespace stemma {

// What is being brought up goes first, so that nothing of it is published afterwards.
void Tiering::quarantine(NamespaceId ns, std::span<const TokenId> text) {
  const std::int64_t kept = std::ssize(text) - device_.tree.page_size();
  std::vector<PageKey> keys;
  std::vector<PageKey> windowed;
  auto* const windowed_or_null = device_.windowed_or_null == nullptr ? nullptr : &windowed;
  promotions_.give_up_text(device_.tree.digest(ns), text);
  device_.tree.quarantine(ns, text, kept, keys, windowed_or_null);
  const NamespaceId host_ns = host_->namespace_of(ns);
  if (host_ns.valid()) host_->tree().quarantine(host_ns, text, kept, keys, windowed_or_null);
  removals_.add(keys);
  removals_.add(windowed, LayerGroup::kWindowed);
  const NamespaceFamily family = family_of(device_.tree.digest(ns));
  purges_.add_behind({&family, 1}, kept / device_.tree.page_size());
  host_file_.forget();  // a life that ends in the middle would have the page come back
  ++counters_.quarantined;
}

void Tiering::forget_stored() {
  purges_.add_behind({}, 0);
}

// What is on its way up goes whatever it begins with.
void Tiering::quarantine_all(std::span<const NamespaceId> namespaces) {
  RadixPrefixCache& host = host_->tree();
  std::vector<NamespaceId> in_host = unnamed_in_host();
  for (const NamespaceId ns : in_host) promotions_.give_up_text(host.digest(ns), {});
  for (const NamespaceId ns : namespaces) {
    promotions_.give_up_text(device_.tree.digest(ns), {});
    const auto host_ns = host.find_namespace(device_.tree.digest(ns));
    if (host_ns.has_value()) in_host.push_back(*host_ns);
  }
  std::vector<PageKey> keys;
  std::vector<PageKey> windowed;
  auto* const windowed_or_null = device_.windowed_or_null == nullptr ? nullptr : &windowed;
  auto texts = device_.tree.quarantine_all(namespaces, keys, windowed_or_null);
  for (const PageKey& first : host.quarantine_all(in_host, keys, windowed_or_null)) {
    texts.push_back(first);
  }
  std::sort(texts.begin(), texts.end());
  counters_.quarantined += std::unique(texts.begin(), texts.end()) - texts.begin();
  removals_.add(keys);
  removals_.add(windowed, LayerGroup::kWindowed);
  host_file_.forget();
}

std::vector<NamespaceId> Tiering::unnamed_in_host() const {
  const RadixPrefixCache& host = host_->tree();
  std::vector<NamespaceId> unnamed;
  for (std::int32_t i = 0; i < host.namespaces(); ++i) {
    const NamespaceId ns(i);
    if (!device_.tree.find_namespace(host.digest(ns)).has_value()) unnamed.push_back(ns);
  }
  return unnamed;
}

}  // namespace stemma
