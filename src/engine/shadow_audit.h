// ShadowAudit: computes pages again that requests found in the cache, and compares the bits.
//
// Every tier checks its bytes against sums (I8); what was computed wrong, or has changed in the
// device's memory since, has the right sums. On a CPU, and on a GPU whose products are
// deterministic, a page has one right content (I13), so the last page of a hit can be computed
// again behind the pages before it, and must come out equal. If it does not, the first page of the
// hit that is wrong is looked for among its first kSearchedPagesMax, and quarantined in every tier
// with all that goes on from it; where these are right, all behind them is.
// (What was computed from a wrong page comes out equal behind it: such a page is found by a hit
// that ends with it, one that changed later by any hit through it.) Where layers look back over a
// window, what earlier pages were computed from has gone: then all of the text is quarantined, and
// of its last page only those tokens are computed whose windows are still there.
//
// A hit that was drawn waits as a text, holding nothing, until a step computes nothing else; but
// not longer than for kStepsApart steps. Then its pages are locked and a free page is borrowed, all
// within one call. Results, the order of eviction and who is admitted when stay as without it.
//
// Thread:     engine thread only.             Invariants: I3, I10, I13 (docs/INVARIANTS.md).
// Memory:     kWaitingMax texts of the longest context, at construction.
// Cost:       one page of prefill an audit: where batches are small, about what a decode step
//             costs, so that one in kStepsApart steps costs 6% at most. kSearchedPagesMax pages
//             once more where one is wrong, while everybody waits.
// Not here:   what a Runner is told of whose rows these are (nobody's: an invalid RequestId),
//             how pages are compared (Runner, KvPool), quarantine (KvCache), who must compute anew
//             (Scheduler).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "alloc/request_table.h"
#include "base/prng.h"
#include "cache/audit_hold.h"
#include "cache/window_span.h"
#include "model/adapter_book.h"
#include "sched/request.h"
#include "stemma/engine.h"
#include "stemma/kv_cache.h"
#include "stemma/metrics.h"

namespace stemma {

class ShadowAudit {
  struct Key {};

 public:
  // Hits that wait to be audited; one more is passed over.
  static constexpr std::int64_t kWaitingMax = 4;
  // Steps from one audit to the next while there is something else to compute.
  static constexpr std::int64_t kStepsApart = 16;
  // Pages that are computed again to find the first wrong one of a hit.
  static constexpr std::int64_t kSearchedPagesMax = 64;

  // nullptr where options.shadow_audit_percent is 0; kUnsupported for a runner whose bits depend on
  // the batch. `parts` and `kv` must outlive it.
  static Result<std::unique_ptr<ShadowAudit>> open(const EngineOptions& options,
                                                   const EngineParts& parts, KvCache& kv);
  ShadowAudit(Key, const EngineOptions& options, const EngineParts& parts,
              KvCache& kv);  // for open

  // A request has computed for the first time, and published nothing of it: what it shares, it
  // found.
  void note_admitted(const Request& request);
  // Whether an audit is left to do.
  bool waits() const noexcept { return waiting_count_ > 0; }

  // What a step was like.
  struct Step {
    bool computed = false;     // something beside audits
    bool pages_short = false;  // a request was not admitted for want of pages
  };
  enum class Outcome : std::uint8_t { kNothing, kAudited, kQuarantined };
  // At the end of a step: an audit, if one is due. After kQuarantined sequences may hold wrong
  // pages.
  Outcome end_step(const Step& step);

  // Hits that were computed again, of these those that differed, and those that were drawn but
  // given up: too many waited, pages were short or gone, the model failed.
  std::int64_t audits() const noexcept { return audits_; }
  std::int64_t mismatches() const noexcept { return mismatches_; }
  std::int64_t skipped() const noexcept { return skipped_; }
  void visit_metrics(MetricVisitor& visitor) const;

 private:
  struct Hit {
    RequestId request;
    AdapterLease adapter;
    CachedText text;
  };
  // How a page came out.
  struct Verdict {
    bool computed = false;              // else the model failed
    std::optional<std::int64_t> layer;  // the first that differs
    bool windowed = false;              // it is of the layers with a window
  };

  Hit& oldest() { return hits_[static_cast<std::size_t>(oldest_)]; }
  void drop_oldest();
  Outcome audit(const Hit& hit);
  // The first that is not known to be right.
  std::int64_t first_wrong_page(const Hit& hit, const AuditHold& hold);
  Verdict compute(const Hit& hit, const AuditHold& hold, std::int64_t page);
  bool compute_into(const Hit& hit, const PageCopies& twin, std::int64_t page);
  bool compute_rows(const Hit& hit, std::int64_t first, std::int64_t end);
  Verdict compare(const Hit& hit, const PagePair& pages);
  void report(const Hit& hit, std::int64_t page, const Verdict& verdict) const;
  void warn(const Hit& hit, const Error& error) const;

  EngineParts parts_;
  KvCache& kv_;
  double percent_;
  std::int64_t rows_max_;  // of one forward
  WindowSpan window_;
  Prng prng_;
  std::array<Hit, kWaitingMax> hits_;  // a ring
  std::int64_t oldest_ = 0;
  std::int64_t waiting_count_ = 0;
  std::int64_t steps_since_ = kStepsApart;  // the last audit
  AuditRow row_;                            // of the hit; the page computed being the scratch page
  std::vector<std::int32_t> positions_;
  std::vector<SlotId> slots_;
  PageTableAssembly page_table_;
  std::vector<SlotId> windowed_slots_;
  PageTableAssembly windowed_table_;
  std::int64_t audits_ = 0;
  std::int64_t mismatches_ = 0;
  std::int64_t skipped_ = 0;
};

}  // namespace stemma
