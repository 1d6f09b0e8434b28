#include "stemma/adapter_book.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "model/json_text.h"

namespace stemma {

const AdapterBook::Entry* AdapterBook::find_entry_or_null(std::string_view name) const {
  const auto found = std::find_if(places_.begin(), places_.end(), [&](const Entry& entry) {
    return entry.is_found && entry.adapter_or_null->identity.name == name;
  });
  return found == places_.end() ? nullptr : &*found;
}

AdapterLease AdapterBook::find_or_null(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const Entry* const entry = find_entry_or_null(name);
  return entry == nullptr ? nullptr : entry->adapter_or_null;
}

AdapterLease AdapterBook::at_or_null(AdapterId place) const {
  const std::lock_guard lock(mutex_);
  const bool exists = place.valid() && place.index() < places_.size();
  return exists ? places_[place.index()].adapter_or_null : nullptr;
}

std::vector<AdapterIdentity> AdapterBook::list() const {
  const std::lock_guard lock(mutex_);
  std::vector<AdapterIdentity> all;
  for (const Entry& entry : places_) {
    if (entry.is_found) all.push_back(entry.adapter_or_null->identity);
  }
  return all;
}

AdapterId AdapterBook::free_place() const {
  const std::lock_guard lock(mutex_);
  const auto free = std::find_if(places_.begin(), places_.end(), [](const Entry& entry) {
    return entry.adapter_or_null == nullptr;
  });
  return AdapterId(static_cast<std::int32_t>(free - places_.begin()));
}

Status AdapterBook::check_name(std::string_view name) const {
  if (!name.empty() && find_or_null(name) == nullptr) return {};
  return Error{ErrorCode::kInvalidArgument,
               "adapters need names, each its own (got '" + printable(name) + "')"};
}

Status AdapterBook::add(AdapterIdentity adapter, AdapterId place) {
  STEMMA_RETURN_IF_ERROR(check_name(adapter.name));
  const std::lock_guard lock(mutex_);
  places_.resize(std::max(places_.size(), place.index() + 1));
  Entry& entry = places_[place.index()];
  STEMMA_CHECK(entry.adapter_or_null == nullptr, "nobody has the place");
  entry.adapter_or_null =
      std::make_shared<const PlacedAdapter>(PlacedAdapter{std::move(adapter), place});
  entry.is_found = true;
  return {};
}

Status AdapterBook::take_out(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const Entry* const found = find_entry_or_null(name);
  if (found == nullptr) {
    return Error{ErrorCode::kNotFound, "there is no adapter '" + printable(name) + "'"};
  }
  places_[static_cast<std::size_t>(found - places_.data())].is_found = false;
  return {};
}

// A lease is only copied from another or from here: once the book has the last one of an adapter
// that cannot be found, there will be no more.
std::vector<AdapterId> AdapterBook::free_ended() {
  const std::lock_guard lock(mutex_);
  std::vector<AdapterId> ended;
  for (Entry& entry : places_) {
    const AdapterLease& adapter = entry.adapter_or_null;
    if (adapter == nullptr || entry.is_found || adapter.use_count() > 1) continue;
    ended.push_back(adapter->place);
    entry.adapter_or_null = nullptr;
  }
  return ended;
}

bool AdapterBook::waits_for_ends() const {
  const std::lock_guard lock(mutex_);
  return std::any_of(places_.begin(), places_.end(), [](const Entry& entry) {
    return entry.adapter_or_null != nullptr && !entry.is_found;
  });
}

}  // namespace stemma
