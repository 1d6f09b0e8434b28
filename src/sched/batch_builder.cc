#include "sched/batch_builder.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/math.h"
#include "cache/page_row.h"
#include "sched/prefix_leader.h"

namespace stemma {
namespace {

PageTableAssembly::Extent table_extent(const KvCache& kv) {
  const KvCacheOptions& options = kv.options();
  return {.requests_max = options.requests_max,
          .pages_max = options.requests_max * row_pages_max(options),
          .page_size = options.page_size};
}

PageTableAssembly::Extent windowed_extent(const KvCache& kv) {
  if (kv.options().window_tokens > 0) return table_extent(kv);
  return {.requests_max = 0, .pages_max = 0, .page_size = kv.page_size()};
}

// Pages that a prefilling request will still ask for: the rest of its tokens and its first output.
std::int64_t promised_pages(const Request& request, std::int64_t page_size) {
  const std::int64_t held = request.sequence.capacity_tokens() / page_size;
  return std::max<std::int64_t>(ceil_div(request.total_tokens() + 1, page_size) - held, 0);
}

}  // namespace

std::string_view admission_name(Admission admission) {
  switch (admission) {
    case Admission::kAdmitted:
      return "admitted";
    case Admission::kNoTokenBudget:
      return "no_token_budget";
    case Admission::kNoPages:
      return "no_pages";
    case Admission::kNoRow:
      return "no_row";
    case Admission::kWaitingForPrefix:
      return "waiting_for_prefix";
    case Admission::kWaitingForTier:
      return "waiting_for_tier";
    case Admission::kNoScores:
      return "no_scores";
  }
  return "unknown";
}

BatchBuilder::BatchBuilder(KvCache& kv, const SchedulerOptions& options)
    : kv_(kv),
      options_(options),
      watermark_pages_(options.watermark_pages >= 0
                           ? options.watermark_pages
                           : std::max<std::int64_t>(kv.total_pages() / 100, 1)),
      page_table_(table_extent(kv)),
      windowed_table_(windowed_extent(kv)) {
  const auto tokens_max = static_cast<std::size_t>(options.step_tokens_max);
  const auto requests_max = static_cast<std::size_t>(kv.options().requests_max);
  tokens_.reserve(tokens_max);
  positions_.reserve(tokens_max);
  write_slots_.reserve(tokens_max);
  if (kv.options().window_tokens > 0) {
    windowed_slots_.reserve(tokens_max);
    windowed_row_.reserve(static_cast<std::size_t>(row_pages_max(kv.options())));
  }
  row_indptr_.reserve(requests_max + 1);
  requests_.reserve(requests_max);
  adapters_.reserve(requests_max);
  const auto outputs_max = requests_max + static_cast<std::size_t>(options.scored_tokens_max);
  logit_rows_.reserve(outputs_max);
  scheduled_.reserve(requests_max);
  outputs_.reserve(outputs_max);
  clear(options.step_tokens_max);
}

void BatchBuilder::clear(std::int64_t step_tokens) {
  step_tokens_ = std::min(step_tokens, options_.step_tokens_max);
  scores_left_ = options_.scored_tokens_max;
  tokens_.clear();
  positions_.clear();
  write_slots_.clear();
  row_indptr_.assign(1, 0);
  requests_.clear();
  adapters_.clear();
  logit_rows_.clear();
  scheduled_.clear();
  outputs_.clear();
  page_table_.clear();
  windowed_slots_.clear();
  windowed_table_.clear();
}

void BatchBuilder::add_output(Request& request) {
  STEMMA_CHECK(request.state() == RequestState::kRunning, "only a running request decodes");
  STEMMA_CHECK_EQ(request.remaining_tokens(), 1);
  STEMMA_CHECK_GE(tokens_left(), 1);
  lay_out(request, request.computed_tokens, 1);
  request.scheduled_tokens = 1;
}

bool BatchBuilder::try_add_ahead(Request& request, std::int64_t tokens_max) {
  const std::int64_t first = request.computed_tokens + request.scheduled_tokens;
  const std::int64_t known = request.total_tokens() - first;
  const std::int64_t new_tokens = std::min({std::max<std::int64_t>(known, 1), tokens_max,
                                            tokens_left(), scorable_end(request, first) - first});
  if (new_tokens < 1 || !kv_.reserve(request.sequence, first + new_tokens)) return false;
  lay_out(request, first, new_tokens);
  request.ahead_tokens = new_tokens;
  return true;
}

void BatchBuilder::forget(const Request& request) {
  for (Request*& scheduled : scheduled_) {
    if (scheduled == &request) scheduled = nullptr;
  }
  for (StepOutput& output : outputs_) {
    if (output.request_or_null == &request) output.request_or_null = nullptr;
  }
}

std::int64_t BatchBuilder::add_chunk(Request& request, std::int64_t tokens_max) {
  STEMMA_CHECK(request.state() == RequestState::kPrefilling,
               "only a prefilling request is chunked");
  const bool looks = !request.looked_below;  // what it finds may have come for others meanwhile
  if (may_look_below(request)) {
    look_below(request);
    if (request.promotion.valid()) kv_.promotion_started(request.promotion);
  }
  if (looks || request.promotion.valid()) adopt_published(request);
  const std::int64_t first = request.computed_tokens;
  const std::int64_t wanted = request.remaining_tokens() - (request.rests ? 1 : 0);
  std::int64_t chunk =
      std::min({wanted, tokens_max, tokens_left(), scorable_end(request, first) - first});
  chunk = std::min(chunk, kv_.reservable_tokens(request.sequence) - request.computed_tokens);
  if (chunk <= 0) {
    return 0;
  }
  const bool reserved = kv_.reserve(request.sequence, request.computed_tokens + chunk);
  STEMMA_CHECK(reserved, "the chunk was cut to what can be reserved");
  lay_out(request, request.computed_tokens, chunk);
  request.scheduled_tokens = chunk;
  return chunk;
}

Admission BatchBuilder::try_add(Request& request, std::span<Request* const> in_flight) {
  STEMMA_CHECK(request.in_queue(), "only a waiting request is admitted");
  if (tokens_left() <= 0) {
    return Admission::kNoTokenBudget;
  }
  if (kv_.free_rows() == 0) {
    return Admission::kNoRow;
  }
  if (request.fork_of.valid()) {
    return Admission::kWaitingForPrefix;
  }
  const std::int64_t matched = matched_tokens(kv_, request);
  if (scorable_end(request, matched) <= matched) {
    return Admission::kNoScores;
  }
  if (waits_for_prefix(kv_, request, in_flight)) {
    return Admission::kWaitingForPrefix;
  }
  // Asked again after the lock, because what is locked can no longer be evicted; before it, so that
  // a blocked request disturbs nothing. Lower tiers are asked when there is room for what they
  // have.
  if (!has_pages_for(request, in_flight)) {
    return Admission::kNoPages;
  }
  if (!request.looked_below && !has_room_beside(request, matched, in_flight)) {
    return Admission::kNoPages;
  }
  const bool waits = waits_for_tier(request);
  const bool borrows = waits && can_borrow(request);
  if (waits && !borrows) {
    return Admission::kWaitingForTier;
  }
  Sequence sequence = *kv_.begin(request.ns, request.findable());
  if (!pages_suffice(request, sequence.cached_tokens(), in_flight, kv_.available_pages())) {
    return Admission::kNoPages;
  }
  sequence.set_prompt_tokens(request.prompt_tokens);
  sequence.set_priority(request.priority);
  sequence.set_retention(request.retention);
  if (!request.publishes) sequence.stop_publishing();
  request.sequence = std::move(sequence);
  request.computed_tokens = request.sequence.cached_tokens();
  if (request.state() == RequestState::kWaiting) {
    request.cached_tokens = request.computed_tokens;
  }
  request.become(RequestState::kPrefilling);
  if (request.promotion.valid()) {
    kv_.promotion_started(request.promotion);
    if (borrows) borrow_arriving(request);
  }
  if (add_chunk(request, options_.chunk_tokens_max) == 0) return_loan(request);
  return Admission::kAdmitted;
}

bool BatchBuilder::has_pages_for(Request& request, std::span<Request* const> in_flight) const {
  return has_room(request, matched_tokens(kv_, request), in_flight) &&
         windows_suffice(request, in_flight);
}

// Whether pages suffice once what is matched is held. Where they do even if nobody holds any of it
// yet, nothing is looked up.
bool BatchBuilder::has_room_beside(const Request& request, std::int64_t matched_tokens,
                                   std::span<Request* const> in_flight) const {
  const std::int64_t least = kv_.available_pages() - matched_tokens / kv_.page_size();
  return pages_suffice(request, matched_tokens, in_flight, least) ||
         pages_suffice(request, matched_tokens, in_flight,
                       kv_.available_pages_beside(request.ns, request.findable()));
}

// Lower tiers are asked when nothing else is in the way; what takes too long is not waited for.
bool BatchBuilder::waits_for_tier(Request& request) {
  if (!request.looked_below) look_below(request);
  if (has_waited(request)) return false;
  return !request.looked_below ||
         (request.promotion.valid() && kv_.worth_waiting(request.promotion));
}

// Where too much is under way, it has not looked and asks again: waiting, as long as it would wait
// for what it asks for, then before each chunk.
void BatchBuilder::look_below(Request& request) {
  if (request.asked_us < 0 || kv_.can_promote(request.ns, request.findable())) {
    request.promotion = kv_.try_promote(request.ns, request.findable()).value_or(PromotionId());
  }
  const bool lacks = !request.promotion.valid() && lacks_place(request);
  if (lacks && request.asked_us < 0) request.asked_us = kv_.now_us();
  request.looked_below = !lacks;
  if (request.looked_below) ++request.looks;
}

// Whether lower tiers have more of it, or may have, and too much is under way.
bool BatchBuilder::lacks_place(Request& request) const {
  if (kv_.can_promote(request.ns, request.findable())) return false;
  const std::int64_t matched = matched_tokens(kv_, request);
  const std::int64_t findable = std::ssize(request.findable()) - 1;
  if (matched >= round_down(findable, kv_.page_size())) return false;
  return kv_.asks_stores(request.ns) || reachable_tokens(kv_, request) > matched;
}

// For all that it waits, since it first asked in vain. Where pages came since then, its tier does
// not hang, and what was begun for it at last is waited for as any other.
bool BatchBuilder::has_waited(const Request& request) const {
  if (request.asked_us < 0) return false;
  const std::int64_t waited_us = kv_.now_us() - request.asked_us;
  if (waited_us < kv_.options().tiers.load_wait_us) return false;
  return !request.promotion.valid() || !kv_.pages_arriving(waited_us);
}

bool BatchBuilder::may_look_below(const Request& request) const {
  return request.state() == RequestState::kPrefilling && !request.looked_below &&
         kv_.can_promote(request.ns, request.findable());
}

bool BatchBuilder::may_wait_no_more(const Request& request) const {
  if (has_waited(request)) return true;
  return request.promotion.valid() ? !kv_.worth_waiting(request.promotion)
                                   : kv_.can_promote(request.ns, request.findable());
}

bool BatchBuilder::can_borrow(const Request& request) const {
  return loans_allowed_ && request.promotion.valid() && kv_.can_lend(request.promotion);
}

// What is on its way is as good as there for this step, which waits for it layer by layer.
void BatchBuilder::borrow_arriving(Request& request) {
  const std::int64_t named = kv_.lend(request.sequence, request.findable(), request.promotion);
  note_cached(request, named - request.computed_tokens);
}

bool BatchBuilder::settle_loans() {
  bool whole = kv_.await_lent();
  for (Request* request : scheduled_) {
    if (request != nullptr) whole = return_loan(*request) && whole;
  }
  return whole;
}

// What did not come is computed after all.
bool BatchBuilder::return_loan(Request& request) {
  if (!request.sequence.on_loan()) return true;
  if (kv_.end_loan(request.sequence, request.findable())) return true;
  note_cached(request, request.sequence.published_tokens() - request.computed_tokens);
  return false;
}

void BatchBuilder::note_cached(Request& request, std::int64_t more_tokens) {
  request.computed_tokens += more_tokens;
  if (request.preemptions == 0) request.cached_tokens += more_tokens;
}

// What promotions have published meanwhile need not be computed. Taking it in publishes what is
// computed: of an output that is computed again, and is not to be published, nothing is there.
void BatchBuilder::adopt_published(Request& request) {
  if (request.sequence.on_loan()) return;
  if (!options_.publish_outputs && request.computed_tokens > request.prompt_tokens) return;
  const std::int64_t adopted =
      kv_.adopt(request.sequence, request.findable(), request.computed_tokens) -
      request.computed_tokens;
  note_cached(request, adopted);
}

// Alone, a request may have every page. Beside others it must leave the watermark, and what those
// that are prefilling were admitted with.
bool BatchBuilder::pages_suffice(const Request& request, std::int64_t cached_tokens,
                                 std::span<Request* const> in_flight,
                                 std::int64_t available_pages) const {
  const std::int64_t page_size = kv_.page_size();
  std::int64_t cached_pages = cached_tokens / page_size;
  if (request.promotion.valid()) {
    cached_pages += kv_.promotion_pages(request.promotion);
  }
  if (in_flight.empty()) {
    return ceil_div(request.total_tokens(), page_size) - cached_pages <= available_pages;
  }
  std::int64_t wanted = ceil_div(request.total_tokens() + 1, page_size) - cached_pages;
  wanted += watermark_pages_;
  for (const Request* other : in_flight) {
    if (other->state() == RequestState::kPrefilling) {
      wanted += promised_pages(*other, page_size);
    }
  }
  return wanted <= available_pages;
}

// Alone, a request has room for its window and one token more, and takes smaller chunks. Beside
// others it must leave the windows of those that are prefilling, and have one of its own with a
// chunk: what of it is cached is taken from what is available too.
bool BatchBuilder::windows_suffice(const Request& request,
                                   std::span<Request* const> in_flight) const {
  const KvCacheOptions& options = kv_.options();
  if (options.window_tokens == 0 || in_flight.empty()) return true;
  const std::int64_t window_pages =
      windowed_pages_max(options.window_tokens, options.page_size, options_.chunk_tokens_max);
  std::int64_t wanted =
      std::min(ceil_div(request.total_tokens() + 1, options.page_size), window_pages);
  for (const Request* other : in_flight) {
    if (other->state() == RequestState::kPrefilling) {
      wanted += std::min(promised_pages(*other, options.page_size), window_pages);
    }
  }
  return wanted <= kv_.available_windowed_pages();
}

void BatchBuilder::lay_out(Request& request, std::int64_t first, std::int64_t new_tokens) {
  const std::int64_t end = first + new_tokens;
  const auto begin = request.tokens.begin();
  if (first == request.total_tokens()) {
    tokens_.push_back(static_cast<TokenId>(-(request.output_place + 1)));
  } else {
    tokens_.insert(tokens_.end(), begin + first, begin + end);
  }
  for (std::int64_t position = first; position < end; ++position) {
    positions_.push_back(static_cast<std::int32_t>(position));
  }
  const std::size_t slots = write_slots_.size();
  write_slots_.resize(slots + static_cast<std::size_t>(new_tokens));
  write_slots(request.sequence.pages(), kv_.page_size(), first,
              std::span(write_slots_).subspan(slots));
  row_indptr_.push_back(static_cast<std::int32_t>(tokens_.size()));
  requests_.push_back(request.id);
  adapters_.push_back(request.adapter);
  page_table_.add(request.sequence.pages(), end);
  if (kv_.options().window_tokens > 0) lay_out_window(request, first, end);
  scheduled_.push_back(&request);
  if (request.scores_prompt) lay_out_scores(request, first, end);
  if (end >= request.total_tokens()) {
    request.output_place = std::ssize(outputs_);
    logit_rows_.push_back(static_cast<std::int32_t>(tokens_.size()) - 1);
    outputs_.push_back({&request});
  }
}

// Where a step has to end that begins with token `first`, by the logits that are left.
std::int64_t BatchBuilder::scorable_end(const Request& request, std::int64_t first) const {
  const std::int64_t end = std::max(first, request.scored_tokens) + scores_left_;
  return end < request.scorable_tokens() ? end : std::numeric_limits<std::int64_t>::max();
}

// Those of the tokens from `first` to before `end`, which were laid out last, that have none yet.
void BatchBuilder::lay_out_scores(Request& request, std::int64_t first, std::int64_t end) {
  const std::int64_t row_of_end = std::ssize(tokens_);
  const std::int64_t scored_end = std::min(end, request.scorable_tokens());
  for (std::int64_t at = std::max(first, request.scored_tokens); at < scored_end; ++at) {
    logit_rows_.push_back(static_cast<std::int32_t>(row_of_end - (end - at)));
    outputs_.push_back({&request, /*chooses=*/false});
    --scores_left_;
  }
}

void BatchBuilder::lay_out_window(const Request& request, std::int64_t first, std::int64_t end) {
  windowed_row_.resize(request.sequence.pages().size());
  kv_.copy_windowed(request.sequence, first, windowed_row_);
  const std::size_t slots = windowed_slots_.size();
  windowed_slots_.resize(slots + static_cast<std::size_t>(end - first));
  write_slots(windowed_row_, kv_.page_size(), first, std::span(windowed_slots_).subspan(slots));
  windowed_table_.add(windowed_row_, end);
}

KvBatch BatchBuilder::batch() const {
  return {.tokens = tokens_,
          .positions = positions_,
          .write_slots = write_slots_,
          .row_indptr = row_indptr_,
          .requests = requests_,
          .adapters = adapters_,
          .page_table = page_table_.view(),
          .windowed_slots = windowed_slots_,
          .windowed_table = windowed_table_.view(),
          .logit_rows = logit_rows_,
          .arriving = kv_.arriving_or_null()};
}

}  // namespace stemma
