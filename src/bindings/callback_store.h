// CallbackStore: a page store that a program of another language has written (stemma/c.h).
//
// Thread:     as PageStore; the callbacks are called likewise.
// Memory:     a few words a page during a call.
// Cost:       that of the callbacks.
// Not here:   what to do when it hangs or fails (tier/guarded_store).
#pragma once

#include <string>
#include <string_view>

#include "stemma/c.h"
#include "stemma/page_store.h"

namespace stemma {

class CallbackStore final : public PageStore {
 public:
  // `callbacks` is whole: what its caller does not know is null.
  explicit CallbackStore(const stemma_store_callbacks& callbacks);
  ~CallbackStore() override;
  CallbackStore(const CallbackStore&) = delete;
  CallbackStore& operator=(const CallbackStore&) = delete;

  Tier tier() const override { return Tier::kRemote; }
  std::string_view name() const override { return name_; }
  void describe(const NamespaceDigest&, std::string_view) override {}
  bool lookup_is_local() const override { return false; }
  Result<std::int64_t> lookup(std::span<const PageKey> keys, std::int64_t deadline_us) override;
  void read(std::span<PageRead> reads, std::int64_t deadline_us) override;
  void write(std::span<PageWrite> writes, std::int64_t deadline_us) override;
  void remove(std::span<const PageRemoval> removals, std::int64_t deadline_us) override;
  // kUnsupported where there is no callback for it.
  PurgeOutcome purge(std::span<const NamespaceFamily> namespaces,
                     std::int64_t deadline_us) override;
  PageStoreUsage usage() const override { return {}; }
  void visit_metrics(MetricVisitor&) const override {}

 private:
  stemma_store_callbacks callbacks_;
  std::string name_;
};

}  // namespace stemma
