// Events of the C ABI (stemma/c_events.h).
#include "stemma/c_events.h"

#include "bindings/c_handles.h"

namespace stemma {

namespace {

static_assert(static_cast<int>(PrefixEvent::Kind::kCleared) == STEMMA_CLEARED);
static_assert(static_cast<int>(PrefixEvent::Kind::kStored) == STEMMA_STORED);
static_assert(static_cast<int>(PrefixEvent::Kind::kRemoved) == STEMMA_REMOVED);
static_assert(sizeof(PageKey) == 32, "keys follow each other without a gap");

class CEventSink final : public PrefixEventSink {
 public:
  CEventSink(stemma_event_sink sink, void* context) : sink_(sink), context_(context) {}

  void take(const PrefixEvent& event) override {
    stemma_event told = {};
    told.struct_size = sizeof(told);
    told.kind = static_cast<std::int32_t>(event.kind);
    told.pages = event.keys.size();
    if (!event.keys.empty()) told.keys = event.keys.front().bytes.data();
    if (event.kind == PrefixEvent::Kind::kStored) {
      told.digest = event.digest.bytes.data();
      told.parent = event.parent.has_value() ? event.parent->bytes.data() : nullptr;
      told.tokens = event.tokens.data();
      told.tokens_count = event.tokens.size();
    }
    sink_(context_, &told);
  }

 private:
  stemma_event_sink sink_;
  void* context_;
};

}  // namespace

}  // namespace stemma

stemma_status stemma_drain_events(stemma_cache* cache, stemma_event_sink sink, void* context) {
  return stemma::guarded([&] {
    if (cache == nullptr || sink == nullptr) return stemma::refuse("cache and sink are given");
    stemma::CEventSink told(sink, context);
    cache->kv->drain_events(told);
    return stemma_status{STEMMA_OK};
  });
}

stemma_status stemma_resend_events(stemma_cache* cache) {
  return stemma::guarded([&] {
    if (cache == nullptr) return stemma::refuse("cache is NULL");
    cache->kv->resend_events();
    return stemma_status{STEMMA_OK};
  });
}
