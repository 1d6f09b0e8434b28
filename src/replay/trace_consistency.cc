#include "replay/trace_consistency.h"

#include <ranges>
#include <utility>

#include "base/prng.h"
#include "replay/trace_fields.h"

namespace stemma {

Status TraceConsistency::check(const TraceRequest& request, std::string_view where) {
  if (in_order_of_time_ && request.timestamp_ms < latest_ms_) {
    return wrong_trace_field(where, "timestamp", "earlier than the request before it");
  }
  if (!places_.empty()) STEMMA_RETURN_IF_ERROR(check_prefixes(request.page_hashes, where));
  latest_ms_ = request.timestamp_ms;
  return {};
}

Status TraceConsistency::check_prefixes(const std::vector<std::int64_t>& hashes,
                                        std::string_view where) {
  replaced_.clear();
  Place here;
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    here = {.hash = hashes[i], .hash_before = here.hash, .taken = true, .begins = i == 0};
    const std::size_t at = mix64(static_cast<std::uint64_t>(here.hash)) % places_.size();
    Place& place = places_[at];
    if (place.taken && place.hash == here.hash && !(place == here)) {
      take_back();
      return wrong_trace_field(
          where, "hash_ids[" + std::to_string(i) + "]",
          "the id " + std::to_string(here.hash) + " stood behind another prefix before");
    }
    replaced_.emplace_back(at, std::exchange(place, here));
  }
  return {};
}

// What a request says that is left out is not held against those that follow.
void TraceConsistency::take_back() {
  for (const auto& [at, before] : std::views::reverse(replaced_)) places_[at] = before;
}

}  // namespace stemma
