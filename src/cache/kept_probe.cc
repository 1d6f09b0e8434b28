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

// What goes on from a shared part counts where that is whole: of host memory's, here or there.
void KeptProbe::look_again(const KvCache& kv, NamespaceId ns, std::span<const TokenId> tokens) {
  const GraftedText text = kv.grafts_->split(ns, tokens.first(tokens.size() - 1));
  const std::int64_t whole = std::ssize(text.shared);
  const RadixPrefixCache& tree = kv.tree();
  const std::int64_t shared =
      whole == 0 ? 0 : tree.probe_again(text.shared_ns, text.shared, device_.shared);
  device_tokens_ = shared < whole ? shared : whole + tree.probe_again(ns, text.own, device_.own);
  host_tokens_ = 0;
  if (kv.tiering_ == nullptr) return;
  const Tiering& tiering = *kv.tiering_;
  host_tokens_ =
      whole == 0 ? 0 : tiering.probe_host_again(text.shared_ns, text.shared, host_.shared);
  if (host_tokens_ < whole && shared < whole) return;
  host_tokens_ = whole + tiering.probe_host_again(ns, text.own, host_.own);
}

}  // namespace stemma
