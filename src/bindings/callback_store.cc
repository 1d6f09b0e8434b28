#include "bindings/callback_store.h"

#include <cstddef>
#include <vector>

namespace stemma {

namespace {

using Pages = std::vector<stemma_stored_page>;

constexpr auto kFailed = static_cast<std::int32_t>(PageVerdict::kFailed);

// Pages of a call as the callbacks see them. Only those that read write to a frame.
template <typename Calls>
Pages stored_pages(const Calls& calls) {
  Pages pages;
  pages.reserve(calls.size());
  for (const auto& call : calls) {
    pages.push_back({.key = call.key.bytes.data(),
                     .frame = const_cast<std::byte*>(call.frame.data()),
                     .frame_bytes = call.frame.size(),
                     .verdict = kFailed});
  }
  return pages;
}

template <typename Calls>
void take_verdicts(const Pages& pages, Calls& calls) {
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const bool known = pages[i].verdict >= 0 && pages[i].verdict <= kFailed;
    calls[i].verdict = known ? static_cast<PageVerdict>(pages[i].verdict) : PageVerdict::kFailed;
  }
}

}  // namespace

CallbackStore::CallbackStore(const stemma_store_callbacks& callbacks)
    : callbacks_(callbacks), name_(callbacks.name == nullptr ? "callbacks" : callbacks.name) {}

CallbackStore::~CallbackStore() {
  if (callbacks_.close != nullptr) callbacks_.close(callbacks_.context);
}

Result<std::int64_t> CallbackStore::lookup(std::span<const PageKey> keys,
                                           std::int64_t deadline_us) {
  static_assert(sizeof(PageKey) == 32);
  if (callbacks_.lookup == nullptr || keys.empty()) return 0;
  const std::int64_t found =
      callbacks_.lookup(callbacks_.context, keys.front().bytes.data(), keys.size(), deadline_us);
  if (found < 0 || found > std::ssize(keys)) {
    return Error{ErrorCode::kIo, "the store " + name_ + " could not look pages up"};
  }
  return found;
}

void CallbackStore::read(std::span<PageRead> reads, std::int64_t deadline_us) {
  if (callbacks_.read == nullptr) {
    for (PageRead& read : reads) read.verdict = PageVerdict::kMissing;
    return;
  }
  Pages pages = stored_pages(reads);
  callbacks_.read(callbacks_.context, pages.data(), pages.size(), deadline_us);
  take_verdicts(pages, reads);
}

void CallbackStore::write(std::span<PageWrite> writes, std::int64_t deadline_us) {
  if (callbacks_.write == nullptr) {
    for (PageWrite& write : writes) write.verdict = PageVerdict::kRefused;
    return;
  }
  Pages pages = stored_pages(writes);
  callbacks_.write(callbacks_.context, pages.data(), pages.size(), deadline_us);
  take_verdicts(pages, writes);
}

void CallbackStore::remove(std::span<const PageRemoval> removals, std::int64_t deadline_us) {
  if (callbacks_.remove == nullptr) return;
  Pages pages = stored_pages(removals);
  callbacks_.remove(callbacks_.context, pages.data(), pages.size(), deadline_us);
}

PurgeOutcome CallbackStore::purge(std::span<const NamespaceFamily> namespaces,
                                  std::int64_t deadline_us) {
  static_assert(sizeof(NamespaceFamily) == 8);
  if (callbacks_.purge == nullptr) {
    return {.pages = 0,
            .status = Error{ErrorCode::kUnsupported, "the store " + name_ + " cannot be purged"}};
  }
  const std::uint8_t* const families = namespaces.empty() ? nullptr : namespaces[0].bytes.data();
  const std::int64_t removed =
      callbacks_.purge(callbacks_.context, families, namespaces.size(), deadline_us);
  if (removed >= 0) return {.pages = removed};
  return {.pages = 0, .status = Error{ErrorCode::kIo, "the store " + name_ + " was not purged"}};
}

}  // namespace stemma
