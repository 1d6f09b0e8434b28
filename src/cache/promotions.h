// Promotions: the texts of which pages are being brought up now, and who waits for them.
//
// Requests that begin with the same text share a promotion. A request that waits holds nothing
// (I12): the promotion does, and gives it up when pages are short.
//
// Thread:     engine thread only.               Invariants: I9, I10, I12 (docs/INVARIANTS.md).
// Memory:     options.promotions_max promotions.
// Cost:       O(promotions_max) an operation, and those of Promotion.
// Not here:   how a text is brought up (promotion).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>

#include "cache/promotion.h"
#include "stemma/ids.h"
#include "stemma/kv_cache.h"

namespace stemma {

class Promotions {
 public:
  explicit Promotions(const Promotion::Parts& parts);

  // Takes part in what is under way, also where nobody waits for it any more; its name until
  // release. nullopt if that has nothing more of `tokens`.
  std::optional<PromotionId> try_join(NamespaceId ns, std::span<const TokenId> tokens, Tier target);
  // Begins to bring up what lower tiers have of `tokens`; its name until release. nullopt if there
  // is nothing to bring. REQUIRES: free_places() > 0.
  std::optional<PromotionId> try_begin(NamespaceId ns, std::span<const TokenId> tokens, Tier target,
                                       Promotion::Attendance attendance);
  // For texts of their own.
  std::int64_t free_places() const;
  // Whether who waits should go on waiting.
  bool worth_waiting(PromotionId id) const;
  // Whether it is, or was, of a text that begins with all of `tokens`, and was not given up.
  bool serves(PromotionId id, NamespaceId ns, std::span<const TokenId> tokens) const {
    return place(id).promotion.serves(ns, tokens);
  }
  // A user of it waits no more, but computes: what it brings is no longer given up for others.
  void started(PromotionId id);
  // By the tier they came from; final once nothing is on its way.
  PromotionOutcome outcome(PromotionId id) const;
  // Pages that it has for whoever waits for it, and that cannot be found yet.
  std::int64_t promised_pages(PromotionId id) const;
  // See Promotion.
  Transfer* lendable_or_null(PromotionId id) const;
  // Its user asked for no more than that it be brought: it ends by itself.
  void leave(PromotionId id);
  // A user is done with it. REQUIRES: kComputing exactly if it had started.
  void release(PromotionId id, PromotionUse use);

  // Gives up what takes pages of the device, where users only wait, or all; but not `keep`.
  void give_up(PromotionUse use, PromotionId keep);

  // Gives up every text of this namespace that begins with `text`, whole pages, whatever its
  // target.
  void give_up_text(const NamespaceDigest& digest, std::span<const TokenId> text);

  // Gives up every text of these namespaces; of all where none is named.
  void give_up_namespaces(std::span<const NamespaceFamily> namespaces);

  // Whether any text is being brought to `target`, or its last pieces wait to be published.
  bool brings_to(Tier target) const;

  void landed(TransferTicket ticket);
  void advance();
  // See Tiering.
  std::int64_t count_windowed(const WindowedPages& pages, std::span<std::int32_t> holders) const;
  // Pages of a target tier that promotions own (I1).
  std::int64_t owned_pages(Tier target) const;

 private:
  struct Place {
    explicit Place(const Promotion::Parts& parts) : promotion(parts) {}
    bool is_free() const { return id < 0 && !promotion.active(); }
    Promotion promotion;
    Tier target = Tier::kDevice;
    std::int64_t id = -1;  // −1: unused
    std::int64_t users = 0;
    std::int64_t computing = 0;  // of the users
  };

  Place& place(PromotionId id);
  const Place& place(PromotionId id) const { return const_cast<Promotions*>(this)->place(id); }

  const Clock& clock_;
  std::deque<Place> places_;
  std::int64_t next_id_ = 0;
};

}  // namespace stemma
