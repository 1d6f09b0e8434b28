#include "tier/guarded_store.h"

#include <algorithm>
#include <utility>

#include "stemma/metrics.h"

namespace stemma {
namespace {

Error left_alone() {
  return {ErrorCode::kIo, "the store is left alone for a while"};
}

// Whether the store said anything of any page: a page that is missing, or refused, was answered.
template <typename Operation>
bool answered(std::span<const Operation> operations) {
  return std::any_of(operations.begin(), operations.end(), [](const Operation& operation) {
    return operation.verdict != PageVerdict::kFailed;
  });
}

template <typename Operation>
void fail_all(std::span<Operation> operations) {
  for (Operation& operation : operations) operation.verdict = PageVerdict::kFailed;
}

}  // namespace

GuardedStore::GuardedStore(std::unique_ptr<PageStore> inner, const Clock& clock,
                           const BreakerOptions& options)
    : inner_(std::move(inner)), clock_(clock), reads_(clock, options), writes_(clock, options) {}

Result<std::int64_t> GuardedStore::lookup(std::span<const PageKey> keys, std::int64_t deadline_us) {
  if (!reads_.lets_in()) return left_alone();
  return inner_->lookup(keys, deadline_us);
}

// Nothing was asked where no page is named: that says nothing of the store.
void GuardedStore::read(std::span<PageRead> reads, std::int64_t deadline_us) {
  if (reads.empty()) return;
  if (!reads_.try_enter()) return fail_all(reads);
  inner_->read(reads, deadline_us);
  report(reads_, answered(std::span<const PageRead>(reads)), deadline_us);
}

void GuardedStore::write(std::span<PageWrite> writes, std::int64_t deadline_us) {
  if (writes.empty()) return;
  if (!writes_.try_enter()) return fail_all(writes);
  inner_->write(writes, deadline_us);
  report(writes_, answered(std::span<const PageWrite>(writes)), deadline_us);
}

// A purge that got somewhere was answered, also where it has not come to its end.
PurgeOutcome GuardedStore::purge_behind(std::span<const NamespaceFamily> namespaces,
                                        std::int64_t pages_before, std::int64_t deadline_us) {
  if (!writes_.try_enter()) return {.status = left_alone()};
  PurgeOutcome outcome = pages_before == 0
                             ? inner_->purge(namespaces, deadline_us)
                             : inner_->purge_behind(namespaces, pages_before, deadline_us);
  report(writes_, outcome.status.ok() || outcome.got_on(), deadline_us);
  return outcome;
}

void GuardedStore::report(Breaker& breaker, bool answered, std::int64_t deadline_us) {
  if (answered) return breaker.succeeded();
  clock_.now_us() >= deadline_us ? breaker.trip() : breaker.failed();
}

void GuardedStore::visit_metrics(MetricVisitor& visitor) const {
  inner_->visit_metrics(visitor);
  const Breaker::Counters reads = reads_.counters();
  const Breaker::Counters writes = writes_.counters();
  const bool open =
      reads_.state() != Breaker::State::kClosed || writes_.state() != Breaker::State::kClosed;
  visitor.gauge("stemma_disk_breaker_open", open ? 1 : 0);
  visitor.counter("stemma_disk_breaker_openings_total", reads.opened + writes.opened);
  visitor.counter("stemma_disk_breaker_refusals_total", reads.refused + writes.refused);
}

}  // namespace stemma
