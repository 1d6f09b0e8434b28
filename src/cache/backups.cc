#include "cache/backups.h"

#include <algorithm>

#include "base/check.h"
#include "base/clock.h"
#include "cache/job_text.h"
#include "cache/underway_end.h"

namespace stemma {

std::span<const TokenId> Backups::text_of(RadixPrefixCache& tree, const PrefixLock& held) {
  text_.resize(static_cast<std::size_t>(held.tokens()));
  tree.copy_tokens(held, text_);
  return text_;
}

std::int64_t Backups::backed_up_end(const PrefixLock& held, NamespaceId host_ns,
                                    std::int64_t first_page) {
  if (parts_.transfers.underway() == 0) return first_page;
  const auto is_meant = [&](const TransferTicket& ticket) {
    return ticket.job().kind == TransferKind::kBackup && ticket.job().group == LayerGroup::kFull &&
           ticket.anchor.namespace_id() == host_ns &&
           !parts_.device.is_quarantined(ticket.source);  // else nothing will come of it
  };
  return underway_end(parts_.transfers, keys_from(held, first_page), first_page, is_meant);
}

// Of all pages that are held from that one on. Valid until the next call.
std::span<const PageKey> Backups::keys_from(const PrefixLock& held, std::int64_t first_page) {
  const std::int64_t pages = held.tokens() / parts_.device.page_size() - first_page;
  keys_.resize(static_cast<std::size_t>(std::max<std::int64_t>(pages, 0)));
  if (pages > 0) held.copy_page_keys(first_page, keys_);
  return keys_;
}

std::int64_t Backups::back_up(const PrefixLock& held, std::int64_t end_tokens) {
  const std::int64_t page_size = parts_.device.page_size();
  STEMMA_CHECK(end_tokens % page_size == 0 && end_tokens <= held.tokens(), "whole pages, held");
  const NamespaceId host_ns = parts_.host.name_namespace(held.namespace_id());
  if (end_tokens == 0 || !host_ns.valid()) return 0;
  RadixPrefixCache& tree = parts_.host.tree();
  const auto text = text_of(parts_.device, held).first(static_cast<std::size_t>(end_tokens));
  PrefixLock anchor = tree.extend(tree.match(host_ns, {}), text);
  parts_.host.use_shared(held.namespace_id());
  const std::int64_t first_page = backed_up_end(held, host_ns, anchor.tokens() / page_size);
  const std::int64_t missing = end_tokens / page_size - first_page;
  if (missing <= 0) return 0;
  auto ticket = parts_.transfers.try_open(TransferKind::kBackup);
  if (!ticket.has_value()) {
    parts_.device.owe(held, {first_page, end_tokens / page_size}, kHost);
    return missing;
  }
  OwnedPages target = parts_.host.space().take_up_to(missing);
  parts_.counters.unbacked += missing - target.pages();
  if (target.empty()) return missing;
  Transfer& job = ticket->job();
  job.digest = tree.digest(host_ns);
  const std::int64_t end_page = first_page + target.pages();
  fill_text(job, held, text.first(static_cast<std::size_t>(end_page * page_size)), page_size,
            first_page);
  job.from.resize(static_cast<std::size_t>(held.tokens() / page_size - first_page));
  held.copy_pages(first_page, job.from);
  job.from.resize(job.keys.size());
  job.to.resize(job.keys.size());
  target.copy_to(job.to);
  ticket->source = parts_.device.share(held);
  ticket->anchor = std::move(anchor);
  ticket->target = std::move(target);
  parts_.transfers.submit(std::move(*ticket));
  return missing;
}

// Each step leaves less that is owed. What came down meanwhile with a text that goes on from it is
// not copied again. Windows take turns with full pages, and wait for those of their text.
void Backups::back_up_owed() {
  RadixPrefixCache& tree = parts_.device;
  const auto can_go = [&] { return parts_.transfers.can_open(TransferKind::kBackup); };
  while (tree.debts().any() && can_go()) {
    if (const auto owed = tree.try_take_owed(kHost)) {
      back_up(owed->lock, owed->pages.end * tree.page_size());
    }
    if (parts_.device_windowed_or_null == nullptr || !can_go()) continue;
    const auto window = tree.try_take_owed(kHostWindows);
    if (window.has_value()) back_up_owed_window(window->lock, window->pages);
  }
}

void Backups::give_up_owed() {
  RadixPrefixCache& tree = parts_.device;
  for (std::int64_t creditor = 0; creditor < tree.debts().creditors(); ++creditor) {
    while (const auto owed = tree.try_take_owed(creditor)) {
      parts_.counters.unbacked += owed->pages.pages();
    }
  }
}

bool Backups::covers(const PrefixLock& held, std::int64_t tokens) {
  const NamespaceId host_ns = parts_.host.namespace_of(held.namespace_id());
  if (!host_ns.valid()) return false;
  const auto text = text_of(parts_.device, held).first(static_cast<std::size_t>(tokens));
  const std::int64_t matched = parts_.host.tree().probe(host_ns, text).matched_tokens;
  const std::int64_t page_size = parts_.device.page_size();
  if (backed_up_end(held, host_ns, matched / page_size) * page_size < tokens) return false;
  if (parts_.device_windowed_or_null == nullptr) return true;
  return missing_window(held, host_ns, tokens).pages.empty();
}

void Backups::landed(TransferTicket ticket) {
  const bool full = ticket.job().group == LayerGroup::kFull;
  if (ticket.job().kind == TransferKind::kBackup) {
    full ? landed_backup(std::move(ticket)) : landed_window_backup(std::move(ticket));
  } else {
    --store_jobs_[static_cast<std::size_t>(ticket.job().store)];
    full ? landed_store(std::move(ticket)) : landed_window_store(std::move(ticket));
  }
}

// A job before it that failed leaves a hole, behind which nothing is published. Nor is what turned
// out to be wrong meanwhile.
void Backups::landed_backup(TransferTicket ticket) {
  const Transfer& job = ticket.job();
  if (parts_.device.is_quarantined(ticket.source)) {
    parts_.counters.unbacked += job.pages();
    return;
  }
  RadixPrefixCache& tree = parts_.host.tree();
  const std::int64_t end_page = job.first_page + job.done_pages();
  const auto text = text_of(parts_.device, ticket.source)
                        .first(static_cast<std::size_t>(end_page * tree.page_size()));
  PrefixLock anchor = tree.extend(std::move(ticket.anchor), text);
  const std::int64_t has = anchor.tokens() / tree.page_size();
  const std::int64_t fresh = has < job.first_page ? 0 : std::max<std::int64_t>(end_page - has, 0);
  parts_.counters.backed_up += fresh;
  parts_.counters.unbacked += job.pages() - job.done_pages();
  if (has < job.first_page) parts_.counters.unbacked += job.done_pages();
  if (fresh == 0) return;
  OwnedPages arrived = ticket.target.take_front(job.done_pages());
  arrived.take_front(has - job.first_page).reset();
  PrefixLock published = tree.insert(text, std::move(anchor), std::move(arrived), {});
  parts_.host.use_shared(ticket.source.namespace_id());
  const std::int64_t first_page = job.first_page;
  ticket.reset();
  store(published, first_page);
}

}  // namespace stemma
