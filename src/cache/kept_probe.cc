#include "cache/kept_probe.h"

#include "base/check.h"
#include "cache/grafts.h"
#include "cache/tiering.h"
#include "prefix/radix_prefix_cache.h"

namespace stemma {

void KeptProbe::look(const KvCache& kv, NamespaceId ns, std::span<const TokenId> tokens) {
  STEMMA_CHECK(!tokens.empty(), "a prompt has at least one token");
  if (epoch_ == kv.epoch()) return;
  epoch_ = kv.epoch();
  if (!kv.shares() || kv.windows_ != nullptr) {
    device_tokens_ = kv.probe(ns, tokens);
    host_tokens_ = kv.probe_host(ns, tokens);
  } else {
    look_again(kv, ns, tokens);
  }
}

void KeptProbe::look_again(const KvCache& kv, NamespaceId ns, std::span<const TokenId> tokens) {
  const GraftedText text = kv.grafts_->split(ns, tokens.first(tokens.size() - 1));
  const auto probe_device = [&](bool is_shared, std::span<const TokenId> part) {
    return kv.tree().probe_again(is_shared ? text.shared_ns : ns, part, device_.of(is_shared));
  };
  device_tokens_ = found_tokens(text, probe_device, [] { return false; });
  host_tokens_ = 0;
  if (kv.tiering_ == nullptr) return;
  const auto probe_host = [&](bool is_shared, std::span<const TokenId> part) {
    return kv.tiering_->probe_host_again(is_shared ? text.shared_ns : ns, part,
                                         host_.of(is_shared));
  };
  const bool device_has_shared = device_tokens_ >= std::ssize(text.shared);
  host_tokens_ = found_tokens(text, probe_host, [&] { return device_has_shared; });
}

}  // namespace stemma
