#include "engine/shadow_audit.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/digest.h"
#include "base/math.h"
#include "stemma/log.h"

namespace stemma {
namespace {

// Apart from the seeds of requests that sample.
constexpr std::uint64_t kSeedSalt = 0x5AD0A0D17;

PageTableAssembly::Extent one_request(const KvCacheOptions& kv) {
  return {.requests_max = 1,
          .pages_max = ceil_div(kv.context_tokens_max, kv.page_size),
          .page_size = kv.page_size};
}

}  // namespace

Result<std::unique_ptr<ShadowAudit>> ShadowAudit::open(const EngineOptions& options,
                                                       const EngineParts& parts, KvCache& kv) {
  if (options.shadow_audit_percent == 0) return std::unique_ptr<ShadowAudit>();
  if (!parts.runner.repeats_bits()) {
    return Error{ErrorCode::kUnsupported,
                 "shadow_audit_percent: the runner's bits depend on the batch; deterministic "
                 "products are needed"};
  }
  return std::make_unique<ShadowAudit>(Key(), options, parts, kv);
}

ShadowAudit::ShadowAudit(Key, const EngineOptions& options, const EngineParts& parts, KvCache& kv)
    : parts_(parts),
      kv_(kv),
      percent_(options.shadow_audit_percent),
      rows_max_(std::min(options.scheduler.step_tokens_max, options.kv.page_size)),
      window_{options.kv.window_tokens, options.kv.page_size},
      prng_(mix64(options.sampling_seed ^ kSeedSalt)),
      page_table_(one_request(options.kv)),
      windowed_table_(one_request(options.kv)) {
  const std::int64_t context = options.kv.context_tokens_max;
  for (Hit& hit : hits_) hit.text.tokens.reserve(static_cast<std::size_t>(context));
  const auto pages = static_cast<std::size_t>(ceil_div(context, options.kv.page_size));
  row_.full.reserve(pages);
  positions_.reserve(static_cast<std::size_t>(rows_max_));
  slots_.reserve(static_cast<std::size_t>(rows_max_));
  if (options.kv.window_tokens == 0) return;
  row_.windowed.reserve(pages);
  windowed_slots_.reserve(static_cast<std::size_t>(rows_max_));
}

// Drawn for each hit, whatever becomes of it: which hits are drawn depends on nothing else.
void ShadowAudit::note_admitted(const Request& request) {
  if (request.sequence.published_tokens() == 0) return;
  const bool drawn = prng_.unit() * 100 < percent_;
  if (!drawn) return;
  if (waiting_count_ == kWaitingMax) {
    ++skipped_;
    return;
  }
  Hit& hit = hits_[static_cast<std::size_t>((oldest_ + waiting_count_++) % kWaitingMax)];
  hit.request = request.id;
  if (request.adapter.valid()) hit.adapter = parts_.runner.adapters()->at(request.adapter);
  kv_.copy_text(request.sequence, hit.text);
}

void ShadowAudit::drop_oldest() {
  oldest().adapter = {};
  oldest_ = (oldest_ + 1) % kWaitingMax;
  --waiting_count_;
}

// Where pages are short nothing is computed that is not asked for. Where none is free but requests
// run, one will be: the hit waits for it. Where nothing runs nothing changes.
ShadowAudit::Outcome ShadowAudit::end_step(const Step& step) {
  steps_since_ += step.computed ? 1 : 0;
  if (step.pages_short) {
    skipped_ += waiting_count_;
    while (waits()) drop_oldest();
  }
  if (!waits() || (step.computed && steps_since_ < kStepsApart)) return Outcome::kNothing;
  if (step.computed && !kv_.has_scratch_page()) return Outcome::kNothing;
  steps_since_ = 0;
  const Outcome outcome = audit(oldest());
  drop_oldest();
  return outcome;
}

// The hold ends before anything else wants pages, or drops them.
ShadowAudit::Outcome ShadowAudit::audit(const Hit& hit) {
  std::optional<AuditHold> hold = kv_.try_hold(hit.text, row_);
  if (!hold.has_value()) {
    ++skipped_;
    return Outcome::kAudited;
  }
  const std::int64_t last = std::ssize(hit.text.tokens) / kv_.page_size() - 1;
  const Verdict verdict = compute(hit, *hold, last);
  if (!verdict.computed) {
    ++skipped_;
    return Outcome::kAudited;
  }
  ++audits_;
  if (!verdict.layer.has_value()) return Outcome::kAudited;
  ++mismatches_;
  const std::int64_t wrong = first_wrong_page(hit, *hold);
  report(hit, wrong, verdict);
  hold.reset();
  kv_.quarantine(hit.text, (wrong + 1) * kv_.page_size());
  return Outcome::kQuarantined;
}

// The last page may be different because one before it is wrong. Page after page from the front,
// the first that differs is it; and one that cannot be computed is not to be trusted: none of them
// where the windowed pages before the last window have gone. Nothing else is served meanwhile: what
// is far behind is not looked at, but goes with the wrong ones.
std::int64_t ShadowAudit::first_wrong_page(const Hit& hit, const AuditHold& hold) {
  const std::int64_t last = std::ssize(hit.text.tokens) / kv_.page_size() - 1;
  if (!row_.windowed.empty()) return 0;
  const std::int64_t end = std::min(last, kSearchedPagesMax);
  for (std::int64_t page = 0; page < end; ++page) {
    const Verdict verdict = compute(hit, hold, page);
    if (!verdict.computed || verdict.layer.has_value()) return page;
  }
  return end;
}

// Computes a page into the scratch page, behind the cached pages before it.
ShadowAudit::Verdict ShadowAudit::compute(const Hit& hit, const AuditHold& hold,
                                          std::int64_t page) {
  const auto at = static_cast<std::size_t>(page);
  const bool windowed = !row_.windowed.empty();
  PageCopies twin;  // from the cached pages to the scratch pages
  twin.from = row_.full[at];
  hold.scratch.copy_to({&twin.to, 1});
  if (windowed) {
    twin.windowed_from = row_.windowed[at];
    twin.windowed_to = hold.windowed_scratch.ids().front();
  }
  if (!compute_into(hit, twin, page)) return {};
  const Verdict verdict = compare(hit, {twin.from, twin.to, false});
  if (!windowed || !verdict.computed || verdict.layer.has_value()) return verdict;
  return compare(hit, {twin.windowed_from, twin.windowed_to, true});
}

// Where the windowed pages that its first tokens read have gone, the page is copied, and the others
// are computed over the copy.
bool ShadowAudit::compute_into(const Hit& hit, const PageCopies& twin, std::int64_t page) {
  const auto at = static_cast<std::size_t>(page);
  const std::int64_t begin = page * kv_.page_size();
  const std::int64_t end = begin + kv_.page_size();
  const bool is_last = at + 1 == row_.full.size();
  const std::int64_t computed_from = is_last ? row_.first_token : begin;
  if (computed_from > begin) {
    const Status copied = parts_.runner.copy_pages(parts_.pools, twin);
    if (!copied.ok()) {
      warn(hit, copied.error());
      return false;
    }
  }
  row_.full[at] = twin.to;
  if (!row_.windowed.empty()) row_.windowed[at] = twin.windowed_to;
  bool computed = true;
  for (std::int64_t first = computed_from; computed && first < end; first += rows_max_) {
    computed = compute_rows(hit, first, std::min(first + rows_max_, end));
  }
  row_.full[at] = twin.from;
  if (!row_.windowed.empty()) row_.windowed[at] = twin.windowed_from;
  return computed;
}

ShadowAudit::Verdict ShadowAudit::compare(const Hit& hit, const PagePair& pages) {
  const auto layer = parts_.runner.first_different_layer(parts_.pools, pages);
  if (layer.ok()) return {.computed = true, .layer = *layer, .windowed = pages.windowed};
  warn(hit, layer.error());
  return {};
}

bool ShadowAudit::compute_rows(const Hit& hit, std::int64_t first, std::int64_t end) {
  const auto rows = static_cast<std::size_t>(end - first);
  positions_.resize(rows);
  slots_.resize(rows);
  for (std::size_t i = 0; i < rows; ++i) {
    positions_[i] = static_cast<std::int32_t>(first) + static_cast<std::int32_t>(i);
  }
  write_slots(row_.full, kv_.page_size(), first, slots_);
  page_table_.clear();
  page_table_.add(row_.full, end);
  windowed_table_.clear();
  if (!row_.windowed.empty()) {
    std::fill_n(row_.windowed.begin(), window_.first_page(first), PageId());
    windowed_slots_.resize(rows);
    write_slots(row_.windowed, kv_.page_size(), first, windowed_slots_);
    windowed_table_.add(row_.windowed, end);
  }
  const RequestId nobodys;
  const AdapterId adapter = hit.adapter.place();
  const std::array<std::int32_t, 2> indptr = {0, static_cast<std::int32_t>(rows)};
  const KvBatch batch = {
      .tokens = std::span(hit.text.tokens).subspan(static_cast<std::size_t>(first), rows),
      .positions = positions_,
      .write_slots = slots_,
      .row_indptr = indptr,
      .requests = {&nobodys, 1},
      .adapters = {&adapter, 1},
      .page_table = page_table_.view(),
      .windowed_slots = windowed_slots_,
      .windowed_table = row_.windowed.empty() ? PageTableView() : windowed_table_.view(),
      .logit_rows = {}};
  const std::int64_t step = kv_.begin_step();
  const auto logits = parts_.runner.forward(batch, parts_.pools);
  kv_.retire_step(step);
  if (logits.ok()) return true;
  warn(hit, logits.error());
  return false;
}

void ShadowAudit::warn(const Hit& hit, const Error& error) const {
  STEMMA_LOG(kWarning, "engine.shadow_audit_failed", kv("request", hit.request.value()),
             kv("error", to_string(error)));
}

void ShadowAudit::report(const Hit& hit, std::int64_t page, const Verdict& verdict) const {
  STEMMA_LOG(kError, "engine.shadow_audit_mismatch", kv("request", hit.request.value()),
             kv("first_token", page * kv_.page_size()), kv("page_size", kv_.page_size()),
             kv("hit_tokens", std::ssize(hit.text.tokens)), kv("layer", *verdict.layer),
             kv("pool", verdict.windowed ? "windowed" : "full"),
             kv("namespace", to_hex(hit.text.digest.bytes)),
             kv("consequence",
                "quarantined with all that goes on from it; wrong KV may have been "
                "served"));
}

void ShadowAudit::visit_metrics(MetricVisitor& visitor) const {
  visitor.counter("stemma_shadow_audits_total", audits_);
  visitor.counter("stemma_shadow_audit_mismatches_total", mismatches_);
  visitor.counter("stemma_shadow_audit_skipped_total", skipped_);
}

}  // namespace stemma
