// Transfer: one job of moving pages between two tiers, as the threads that do it see it: page ids,
// keys and tokens, never a node or a request.
//
// Thread:     the engine thread fills it and reads what became of it; in between, from
//             TransferLanes::post to take_done, it belongs to the lane, but for `cancelled` and
//             the right to write to `to`, which both may touch.
// Memory:     lists that keep their room from one job to the next.
// Cost:       none.
// Not here:   who owns the pages meanwhile (transfer_ticket), how bytes move (transfer_work).
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "stemma/ids.h"
#include "stemma/page_store.h"
#include "stemma/prefix_cache.h"

namespace stemma {

enum class TransferKind : std::uint8_t {
  kBackup,   // device -> host
  kPromote,  // host -> device
  kStore,    // host -> a page store
  kLoad,     // a page store -> device
  kFetch,    // a page store -> host
  kLookup,   // how many of the keys, from the first on, a page store has
  kRemove,   // out of a page store, whatever it has under the keys
  kPurge,    // out of a page store, all that it has of the namespaces
};

constexpr std::string_view transfer_kind_name(TransferKind kind) noexcept {
  switch (kind) {
    case TransferKind::kBackup:
      return "backup";
    case TransferKind::kPromote:
      return "promote";
    case TransferKind::kStore:
      return "store";
    case TransferKind::kLoad:
      return "load";
    case TransferKind::kFetch:
      return "fetch";
    case TransferKind::kLookup:
      return "lookup";
    case TransferKind::kRemove:
      return "remove";
    case TransferKind::kPurge:
      return "purge";
  }
  return "unknown";
}

// Whose part of the pages moves: that of layers which look back over everything, or of those with
// a window.
enum class LayerGroup : std::uint8_t { kFull, kWindowed };

struct Transfer {
  TransferKind kind = TransferKind::kBackup;
  LayerGroup group = LayerGroup::kFull;
  int store = 0;  // which page store, where one is meant
  NamespaceDigest digest;
  std::vector<NamespaceFamily> namespaces;  // of kPurge; none: all
  std::int64_t first_page = 0;              // pages of the text before those that move, or go
  std::vector<TokenId> tokens;              // of the pages that move
  PageKey parent;                // of the page before them; of the first page: of the namespace
  std::vector<PageKey> keys;     // of the pages that move, whatever their layers; of kRemove those
                                 // that the store has them under
  std::vector<PageKey> before;   // of kStore: of the pages before them, where the store may have
                                 // lost some and would not say; else none
  std::vector<PageId> from;      // in the layers' pool of the source; none where that is a store
  std::vector<PageId> to;        // in that of the target; none where that is a store
  std::int64_t deadline_us = 0;  // of the whole job, on the stores' clock
  std::int64_t place = 0;        // of its TransferEngine

  // What became of it.
  std::vector<PageVerdict> verdicts;  // of each page; kPromote: final once the job has ended
  std::int64_t found_pages = 0;       // of kLookup
  std::int64_t lost_pages = 0;        // of `before`, from the first one on that the store lacks
  std::optional<PurgeOutcome> purge;  // of kPurge; nullopt: it was not begun
  std::int64_t moved_bytes = 0;
  std::int64_t started_us = 0;
  std::int64_t ended_us = 0;

  // Set by the engine thread: what has not begun need not begin.
  std::atomic<bool> cancelled = false;

  // Of kLoad and kFetch: an operation of a store may take until its deadline, and would hold the
  // pages at `to` as long. So the lane asks before it writes to them, once their bytes are there,
  // and the engine thread may take them back meanwhile.

  // The lane: false once they were withdrawn; else they are its own until end_writing.
  bool try_begin_writing() noexcept { return try_change(Target::kUntouched, Target::kWriting); }
  void end_writing() noexcept { target_.store(Target::kUntouched, std::memory_order_release); }
  // The engine thread: false while the lane writes; else it never will again.
  bool try_withdraw() noexcept { return try_change(Target::kUntouched, Target::kWithdrawn); }

  // Of kPromote: a layer of the pages may be read as soon as it has come, by one who asks first.

  // The lane: nothing more is written to the first `layers` layers of any page. They are right,
  // unless the job was spoilt before.
  void arrive(std::int32_t layers) noexcept {
    set_layers(arrived_layers_, layers);
    queue(layers);
  }
  // The lane: the copies of the first `layers` layers are queued on the device.
  void queue(std::int32_t layers) noexcept {
    if (queued_layers_.load(std::memory_order_relaxed) < layers) set_layers(queued_layers_, layers);
  }
  // The lane: not all that has come, or will, is right. Layers are waited for as before: of several
  // ranks all compute a step to its end, and none may read what is still being written.
  void spoil() noexcept { spoilt_.store(true, std::memory_order_release); }
  // Any thread while the job is with its lane: waits until `layer` has come; false if something
  // is spoilt.
  [[nodiscard]] bool wait_layer(std::int64_t layer) const noexcept {
    wait_layers(arrived_layers_, layer);
    return !is_spoilt();
  }
  // The same until its copies are queued, or it has come.
  void wait_queued(std::int64_t layer) const noexcept { wait_layers(queued_layers_, layer); }
  bool has_arrived(std::int64_t layer) const noexcept {
    return arrived_layers_.load(std::memory_order_acquire) > layer;
  }
  bool is_spoilt() const noexcept { return spoilt_.load(std::memory_order_acquire); }

  std::int64_t pages() const noexcept { return static_cast<std::int64_t>(keys.size()); }

  // Leading pages that arrived whole.
  std::int64_t done_pages() const noexcept {
    std::int64_t done = 0;
    for (const PageVerdict verdict : verdicts) {
      if (verdict != PageVerdict::kDone) break;
      ++done;
    }
    return done;
  }

  // A blank job that keeps its room.
  void clear() noexcept {
    group = LayerGroup::kFull;
    tokens.clear();
    keys.clear();
    before.clear();
    from.clear();
    to.clear();
    verdicts.clear();
    namespaces.clear();
    found_pages = 0;
    lost_pages = 0;
    purge.reset();
    moved_bytes = 0;
    started_us = 0;
    ended_us = 0;
    cancelled.store(false, std::memory_order_relaxed);
    target_.store(Target::kUntouched, std::memory_order_relaxed);
    arrived_layers_.store(0, std::memory_order_relaxed);
    queued_layers_.store(0, std::memory_order_relaxed);
    spoilt_.store(false, std::memory_order_relaxed);
  }

 private:
  using Layers = std::atomic<std::int32_t>;

  static void set_layers(Layers& layers, std::int32_t value) noexcept {
    layers.store(value, std::memory_order_release);
    layers.notify_all();
  }
  static void wait_layers(const Layers& layers, std::int64_t layer) noexcept {
    std::int32_t there = layers.load(std::memory_order_acquire);
    while (there <= layer) {
      layers.wait(there, std::memory_order_acquire);
      there = layers.load(std::memory_order_acquire);
    }
  }

  enum class Target : std::uint8_t { kUntouched, kWriting, kWithdrawn };

  bool try_change(Target expected, Target next) noexcept {
    return target_.compare_exchange_strong(expected, next, std::memory_order_acq_rel);
  }

  std::atomic<Target> target_ = Target::kUntouched;
  Layers arrived_layers_ = 0;
  Layers queued_layers_ = 0;
  std::atomic<bool> spoilt_ = false;
};

}  // namespace stemma
