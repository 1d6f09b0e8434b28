#include "model/adapter_book.h"

#include <algorithm>

#include "base/check.h"
#include "base/json_text.h"

namespace stemma {

const AdapterBook::Leased* AdapterBook::find_or_null(std::string_view name) const {
  const auto found = std::find_if(places_.begin(), places_.end(), [&](const Leased& one) {
    return one.is_found && one.identity.name == name;
  });
  return found == places_.end() ? nullptr : &*found;
}

AdapterLease AdapterBook::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  return AdapterLease(find_or_null(name));
}

AdapterLease AdapterBook::at(AdapterId place) const {
  const std::lock_guard lock(mutex_);
  const bool is_taken =
      place.valid() && place.index() < places_.size() && places_[place.index()].place.valid();
  return AdapterLease(is_taken ? &places_[place.index()] : nullptr);
}

std::vector<AdapterIdentity> AdapterBook::list() const {
  const std::lock_guard lock(mutex_);
  std::vector<AdapterIdentity> all;
  for (const Leased& one : places_) {
    if (one.is_found) all.push_back(one.identity);
  }
  return all;
}

Status AdapterBook::check_name(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  return check_locked(name);
}

Status AdapterBook::check_locked(std::string_view name) const {
  if (name.find(',') != std::string_view::npos) {
    return Error{ErrorCode::kInvalidArgument,
                 "an adapter's name has no comma, which parts names in lists (got '" +
                     printable(name) + "')"};
  }
  if (!name.empty() && find_or_null(name) == nullptr) return {};
  return Error{ErrorCode::kInvalidArgument,
               "adapters need names, each its own (got '" + printable(name) + "')"};
}

AdapterId AdapterBook::free_place() const {
  const std::lock_guard lock(mutex_);
  const auto free = std::find_if(places_.begin(), places_.end(),
                                 [](const Leased& one) { return !one.place.valid(); });
  return AdapterId(static_cast<std::int32_t>(free - places_.begin()));
}

Status AdapterBook::add(AdapterIdentity adapter, AdapterId place, bool replaces) {
  const std::lock_guard lock(mutex_);
  if (const Leased* const old = replaces ? find_or_null(adapter.name) : nullptr) {
    places_[old->place.index()].is_found = false;
  }
  STEMMA_RETURN_IF_ERROR(check_locked(adapter.name));
  while (places_.size() <= place.index()) places_.emplace_back();
  Leased& one = places_[place.index()];
  STEMMA_CHECK(!one.place.valid(), "nobody has the place");
  one.identity = std::move(adapter);
  one.place = place;
  one.is_found = true;
  return {};
}

Status AdapterBook::take_out(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const Leased* const found = find_or_null(name);
  if (found == nullptr) {
    return Error{ErrorCode::kNotFound, "there is no adapter '" + printable(name) + "'"};
  }
  places_[found->place.index()].is_found = false;
  return {};
}

// A new lease comes from another one, or from here: of an adapter that is not found and that nobody
// leases there will be none.
std::vector<AdapterId> AdapterBook::free_ended() {
  const std::lock_guard lock(mutex_);
  std::vector<AdapterId> ended;
  for (Leased& one : places_) {
    if (!one.place.valid() || one.is_found) continue;
    if (one.leases.load(std::memory_order_acquire) > 0) continue;
    ended.push_back(one.place);
    one.place = AdapterId();
  }
  return ended;
}

}  // namespace stemma
