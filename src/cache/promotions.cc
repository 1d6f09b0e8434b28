#include "cache/promotions.h"

#include <algorithm>

#include "base/check.h"
#include "base/clock.h"

namespace stemma {

Promotions::Promotions(const Promotion::Parts& parts) : clock_(parts.clock) {
  for (std::int64_t i = 0; i < parts.options.promotions_max; ++i) places_.emplace_back(parts);
}

std::optional<PromotionId> Promotions::try_join(NamespaceId ns, std::span<const TokenId> tokens,
                                                Tier target) {
  for (Place& place : places_) {
    if (!place.promotion.covers(ns, tokens, target)) continue;
    if (place.id < 0) {  // it was left: its tickets and loans know it by the name it had
      place.id = place.promotion.cookie();
      place.promotion.attend();
    }
    ++place.users;
    return PromotionId(place.id);
  }
  return std::nullopt;
}

std::optional<PromotionId> Promotions::try_begin(NamespaceId ns, std::span<const TokenId> tokens,
                                                 Tier target, Promotion::Attendance attendance) {
  const auto is_free = [](const Place& place) { return place.is_free(); };
  const auto unused = std::find_if(places_.rbegin(), places_.rend(), is_free);
  STEMMA_CHECK(unused != places_.rend(), "there is a place for it");
  const std::int64_t id = next_id_++;
  unused->promotion.begin(ns, tokens, target, attendance, id);
  if (!unused->promotion.active()) return std::nullopt;
  unused->target = target;
  unused->id = id;
  unused->users = 1;
  unused->computing = 0;
  return PromotionId(id);
}

std::int64_t Promotions::free_places() const {
  return std::count_if(places_.begin(), places_.end(),
                       [](const Place& place) { return place.is_free(); });
}

bool Promotions::worth_waiting(PromotionId id) const {
  const Promotion& promotion = place(id).promotion;
  return promotion.bringing() && clock_.now_us() < promotion.wait_until_us();
}

void Promotions::started(PromotionId id) {
  ++place(id).computing;
}

PromotionOutcome Promotions::outcome(PromotionId id) const {
  return place(id).promotion.outcome();
}

std::int64_t Promotions::promised_pages(PromotionId id) const {
  return place(id).promotion.owned_pages() + place(id).promotion.unusable_pages();
}

Transfer* Promotions::lendable_or_null(PromotionId id) const {
  return place(id).promotion.lendable_or_null();
}

void Promotions::leave(PromotionId id) {
  Place& left = place(id);
  if (--left.users > 0) return;
  left.id = -1;
  left.promotion.leave();
}

void Promotions::release(PromotionId id, PromotionUse use) {
  Place& released = place(id);
  if (use == PromotionUse::kComputing) --released.computing;
  if (--released.users > 0) return;
  released.id = -1;
  released.promotion.abandon();
}

void Promotions::give_up(PromotionUse use, PromotionId keep) {
  for (Place& place : places_) {
    if (keep.valid() && place.id == keep.value()) continue;
    const bool given_up = use == PromotionUse::kComputing || place.computing == 0;
    if (given_up && place.target == Tier::kDevice) place.promotion.abandon();
  }
}

void Promotions::give_up_text(const NamespaceDigest& digest, std::span<const TokenId> text) {
  for (Place& place : places_) {
    if (place.promotion.passes(digest, text)) place.promotion.abandon();
  }
}

void Promotions::give_up_namespaces(std::span<const NamespaceFamily> namespaces) {
  for (Place& place : places_) {
    const Promotion& promotion = place.promotion;
    if (promotion.active() && is_of_any(promotion.digest(), namespaces)) place.promotion.abandon();
  }
}

bool Promotions::brings_to(Tier target) const {
  return std::any_of(places_.begin(), places_.end(), [&](const Place& place) {
    return place.promotion.active() && place.target == target;
  });
}

void Promotions::landed(TransferTicket ticket) {
  for (Place& place : places_) {
    if (place.promotion.active() && place.promotion.cookie() == ticket.cookie) {
      return place.promotion.landed(std::move(ticket));
    }
  }
  STEMMA_CHECK(false, "a promotion stays until its last ticket has landed");
}

void Promotions::advance() {
  for (Place& place : places_) place.promotion.advance();
}

std::int64_t Promotions::count_windowed(const WindowedPages& pages,
                                        std::span<std::int32_t> holders) const {
  std::int64_t taken = 0;
  for (const Place& place : places_) taken += place.promotion.count_windowed(pages, holders);
  return taken;
}

std::int64_t Promotions::owned_pages(Tier target) const {
  std::int64_t pages = 0;
  for (const Place& place : places_) {
    if (place.promotion.active() && place.target == target) pages += place.promotion.owned_pages();
  }
  return pages;
}

Promotions::Place& Promotions::place(PromotionId id) {
  const auto found = std::find_if(places_.begin(), places_.end(),
                                  [&](const Place& place) { return place.id == id.value(); });
  STEMMA_CHECK(id.valid() && found != places_.end(), "a promotion is named until it is released");
  return *found;
}

}  // namespace stemma
