// Runs lie in the order of their last store, so that they end, and become requests, in the order of
// time.
#include "replay/kv_events_parser.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "replay/kv_event_fields.h"

namespace stemma {

Status KvEventsParser::take(std::string_view line, std::string_view where) {
  STEMMA_ASSIGN_OR_RETURN(const nlohmann::json json,
                          parse_json_value(line, where, kTraceLineLimits));
  std::int64_t page_tokens = page_tokens_;
  STEMMA_ASSIGN_OR_RETURN(KvEventBatch batch, read_kv_event_batch(json, where, page_tokens));
  if (batch.time_ms < now_ms_) {
    return wrong_trace_field(where, "ts", "earlier than the batch before it");
  }
  if (parents_.size() > kPagesMax) {
    return Error{ErrorCode::kTooLarge, std::string(where) + ": events: more than " +
                                           std::to_string(kPagesMax) +
                                           " pages are stored and not removed"};
  }
  page_tokens_ = page_tokens;
  now_ms_ = batch.time_ms;
  runs_end_ms_ = now_ms_ - kContinuesMs;
  events_.assign(std::make_move_iterator(batch.events.begin()),
                 std::make_move_iterator(batch.events.end()));
  return {};
}

bool KvEventsParser::try_next(TraceRequest& request) {
  for (;;) {
    const bool overdue = !runs_.empty() && runs_.front().latest_ms < runs_end_ms_;
    if (overdue || (!events_.empty() && ends_oldest_run(events_.front()))) {
      end_oldest_run(request);
      return true;
    }
    if (events_.empty()) return false;
    apply(events_.front());
    events_.pop_front();
    first_ends_.reset();
  }
}

void KvEventsParser::end() {
  runs_end_ms_ = std::numeric_limits<double>::infinity();
}

// What takes a run's last page away ends it, and, because requests come in the order of time, all
// that had their last store before.
bool KvEventsParser::ends_oldest_run(const KvEvent& event) {
  if (!first_ends_.has_value()) first_ends_ = youngest_ended_by(event);
  return !runs_.empty() && runs_.front().latest_store <= *first_ends_;
}

// The last store of the youngest run that an event ends; 0: it ends none.
std::int64_t KvEventsParser::youngest_ended_by(const KvEvent& event) const {
  if (event.kind == KvEvent::Kind::kCleared) return stores_;
  if (event.kind != KvEvent::Kind::kRemoved) return 0;
  std::int64_t youngest = 0;
  for (const std::int64_t hash : event.hashes) {
    const auto run = run_of_last_page_.find(hash);
    if (run != run_of_last_page_.end()) youngest = std::max(youngest, run->second->latest_store);
  }
  return youngest;
}

void KvEventsParser::apply(const KvEvent& event) {
  switch (event.kind) {
    case KvEvent::Kind::kStored:
      return store(event);
    case KvEvent::Kind::kRemoved:
      for (const std::int64_t hash : event.hashes) parents_.erase(hash);
      return;
    case KvEvent::Kind::kCleared:
      return parents_.clear();
    case KvEvent::Kind::kPassedOver:
      return;
  }
}

void KvEventsParser::store(const KvEvent& event) {
  if (event.hashes.empty()) return;
  std::optional<std::int64_t> before = event.parent;
  if (before.has_value()) parents_.try_emplace(*before, std::nullopt);
  for (const std::int64_t hash : event.hashes) {
    parents_.insert_or_assign(hash, before);
    before = hash;
  }
  auto run = runs_.end();
  if (event.parent.has_value()) {
    if (const auto found = run_of_last_page_.find(*event.parent);
        found != run_of_last_page_.end()) {
      run = found->second;
      run_of_last_page_.erase(found);
    }
  }
  if (run == runs_.end()) run = runs_.emplace(runs_.end());
  *run = {.latest_ms = now_ms_, .latest_store = ++stores_, .last_page = event.hashes.back()};
  runs_.splice(runs_.end(), runs_, run);
  run_of_last_page_.insert_or_assign(run->last_page, run);
}

void KvEventsParser::end_oldest_run(TraceRequest& request) {
  const auto run = runs_.begin();
  request = {};
  request.timestamp_ms = run->latest_ms;
  request.page_hashes = chain_to(run->last_page);
  request.input_tokens = static_cast<std::int64_t>(request.page_hashes.size()) * page_tokens_;
  // Another run may have come to the same last page since.
  if (const auto found = run_of_last_page_.find(run->last_page);
      found != run_of_last_page_.end() && found->second == run) {
    run_of_last_page_.erase(found);
  }
  runs_.erase(run);
}

// A stream may claim that a page stands behind itself: no chain is longer than all pages are many.
std::vector<std::int64_t> KvEventsParser::chain_to(std::int64_t last_page) const {
  std::vector<std::int64_t> chain;
  std::optional<std::int64_t> page = last_page;
  while (page.has_value() && chain.size() < parents_.size()) {
    const auto found = parents_.find(*page);
    if (found == parents_.end()) break;
    chain.push_back(*page);
    page = found->second;
  }
  std::reverse(chain.begin(), chain.end());
  return chain;
}

}  // namespace stemma
