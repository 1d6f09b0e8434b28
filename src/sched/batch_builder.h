// BatchBuilder: fills one step: decides whether a request fits and lays out its tokens.
//
// One budget of tokens is shared by prompts and outputs. Pages are reserved here and nowhere else
// but for running requests' next tokens (scheduler).
//
// Thread:     engine thread only.                      Invariants: I10, I12 (docs/INVARIANTS.md).
// Memory:     arrays for step_tokens_max tokens and requests_max requests, fixed at construction.
// Cost:       O(tokens + pages of the requests added).
// Not here:   which request is tried first (schedule_policy), preemption (scheduler).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "alloc/request_table.h"
#include "sched/request.h"
#include "stemma/kv_batch.h"
#include "stemma/kv_cache.h"
#include "stemma/options.h"

namespace stemma {

// Whose the logits of a row are.
struct StepOutput {
  Request* request_or_null = nullptr;  // nullptr: it has ended since
  bool chooses = true;  // its next token; else they only tell how likely that of its prompt was
};

// What became of a waiting request that was looked at.
enum class Admission : std::uint8_t {
  kAdmitted,
  kNoTokenBudget,     // the step is full
  kNoPages,           // too few pages free or evictable, the watermark and promises kept
  kNoRow,             // requests_max requests are in flight
  kWaitingForPrefix,  // another request is computing pages that this one can share
  kWaitingForTier,    // pages are on their way from a lower tier
  kNoScores,          // others score their prompts, and a step scores no more
};

std::string_view admission_name(Admission admission);

class BatchBuilder {
 public:
  // `kv` is used as long as this lives.
  BatchBuilder(KvCache& kv, const SchedulerOptions& options);

  // Begins a step: nothing is in it. At most `step_tokens` will be, of step_tokens_max.
  void clear(std::int64_t step_tokens);

  // Adds the next token of a running request. REQUIRES: room for it is reserved; budget is left.
  void add_output(Request& request);

  // Adds as many tokens of a prefilling request, but for the last one if it rests, as `tokens_max`,
  // the budget and the pages that can be had allow. Returns how many; none is an ordinary outcome.
  std::int64_t add_chunk(Request& request, std::int64_t tokens_max);

  // Adds what a request in flight computes after the step that is being computed, of which this is
  // not the builder: its next output, whose token stands as that step's output (Runner::queue), or
  // more of its prompt, `tokens_max` at most. False, and nothing is added, if there is no room.
  [[nodiscard]] bool try_add_ahead(Request& request, std::int64_t tokens_max);

  // `request` has ended, or will not go on: what the step computes of it is nobody's.
  void forget(const Request& request);

  // Admits a request from the queue, with its first chunk, or says why not and changes nothing.
  // `in_flight`: all that hold pages, those admitted in this step included.
  // REQUIRES: request.in_queue().
  Admission try_add(Request& request, std::span<Request* const> in_flight);

  // Whether a request could run on whose first `cached_tokens` tokens are in pages that others
  // hold.
  bool has_room(const Request& request, std::int64_t cached_tokens,
                std::span<Request* const> in_flight) const {
    return pages_suffice(request, cached_tokens, in_flight, kv_.available_pages());
  }

  // Whether try_add may find pages enough for a request from the queue, if it comes to that.
  bool has_pages_for(Request& request, std::span<Request* const> in_flight) const;

  // Whether a request in flight asks lower tiers before its next chunk, which it could not before.
  bool may_look_below(const Request& request) const;

  // Whether a request that waited for a tier when it was tried might be admitted now: what it waits
  // for has ended, or can begin, or it has waited for long enough.
  bool may_wait_no_more(const Request& request) const;

  // Ends the loans of the step, which has retired. False if one could not be settled: the step is
  // void.
  [[nodiscard]] bool settle_loans();

  // Lets requests begin before pages from host memory are whole. For runners that wait by layer.
  void allow_loans() { loans_allowed_ = true; }

  // The step so far; valid until the next clear.
  KvBatch batch() const;
  // The requests of the batch, nullptr where one was forgotten, and whose its logits are, as
  // batch() orders them.
  std::span<Request* const> scheduled() const { return scheduled_; }
  std::span<const StepOutput> outputs() const { return outputs_; }

  bool empty() const noexcept { return tokens_.empty(); }
  std::int64_t tokens_left() const noexcept {
    return step_tokens_ - static_cast<std::int64_t>(tokens_.size());
  }
  std::int64_t watermark_pages() const noexcept { return watermark_pages_; }

 private:
  bool pages_suffice(const Request& request, std::int64_t cached_tokens,
                     std::span<Request* const> in_flight, std::int64_t available_pages) const;
  bool has_room_beside(const Request& request, std::int64_t matched_tokens,
                       std::span<Request* const> in_flight) const;
  bool windows_suffice(const Request& request, std::span<Request* const> in_flight) const;
  bool waits_for_tier(Request& request);
  void look_below(Request& request);
  bool lacks_place(Request& request) const;
  bool has_waited(const Request& request) const;
  bool can_borrow(const Request& request) const;
  void borrow_arriving(Request& request);
  bool return_loan(Request& request);
  static void note_cached(Request& request, std::int64_t more_tokens);
  void adopt_published(Request& request);
  std::int64_t scorable_end(const Request& request, std::int64_t first) const;
  void lay_out(Request& request, std::int64_t first, std::int64_t new_tokens);
  void lay_out_scores(Request& request, std::int64_t first, std::int64_t end);
  void lay_out_window(const Request& request, std::int64_t first, std::int64_t end);

  KvCache& kv_;
  SchedulerOptions options_;
  std::int64_t watermark_pages_;
  bool loans_allowed_ = false;
  std::int64_t step_tokens_ = 0;
  std::int64_t scores_left_ = 0;  // rows of logits that are no outputs
  std::vector<TokenId> tokens_;
  std::vector<std::int32_t> positions_;
  std::vector<SlotId> write_slots_;
  std::vector<SlotId> windowed_slots_;
  std::vector<std::int32_t> row_indptr_;
  std::vector<RequestId> requests_;
  std::vector<AdapterId> adapters_;
  std::vector<std::int32_t> logit_rows_;
  std::vector<Request*> scheduled_;
  std::vector<StepOutput> outputs_;
  PageTableAssembly page_table_;
  PageTableAssembly windowed_table_;
  std::vector<PageId> windowed_row_;
};

}  // namespace stemma
