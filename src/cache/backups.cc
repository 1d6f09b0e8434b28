#include "cache/backups.h"

#include <algorithm>

#include "base/check.h"
#include "base/clock.h"
#include "cache/job_text.h"

namespace stemma {

std::span<const TokenId> Backups::text_of(RadixPrefixCache& tree, const PrefixLock& held) {
  text_.resize(static_cast<std::size_t>(held.tokens()));
  tree.copy_tokens(held, text_);
  return text_;
}

// A job goes on exactly where host memory ended when it began, so that two jobs of one text would
// begin with the same page.
bool Backups::is_underway(NamespaceId host_ns, std::int64_t first_page) const {
  const auto page = static_cast<std::size_t>(parts_.host.tree().page_size());
  const auto wanted = std::span(text_).subspan(static_cast<std::size_t>(first_page) * page, page);
  bool found = false;
  parts_.transfers.for_each_underway([&](const TransferTicket& ticket) {
    const Transfer& job = ticket.job();
    if (job.kind != TransferKind::kBackup || job.first_page != first_page) return;
    if (ticket.anchor.namespace_id() != host_ns) return;
    const auto begins = std::span(job.tokens).first(page);
    found = found || std::equal(wanted.begin(), wanted.end(), begins.begin());
  });
  return found;
}

void Backups::back_up(PrefixLock held, std::int64_t end_tokens) {
  const std::int64_t page_size = parts_.device.page_size();
  STEMMA_CHECK(end_tokens % page_size == 0 && end_tokens <= held.tokens(), "whole pages, held");
  const NamespaceId host_ns = parts_.host.namespace_of(held.namespace_id());
  if (end_tokens == 0 || !host_ns.valid()) return;
  RadixPrefixCache& tree = parts_.host.tree();
  const auto text = text_of(parts_.device, held).first(static_cast<std::size_t>(end_tokens));
  PrefixLock anchor = tree.extend(tree.match(host_ns, {}), text);
  const std::int64_t first_page = anchor.tokens() / page_size;
  const std::int64_t missing = end_tokens / page_size - first_page;
  if (missing == 0 || is_underway(host_ns, first_page)) return;
  auto ticket = parts_.transfers.try_open(TransferKind::kBackup);
  OwnedPages target = ticket.has_value() ? parts_.host.space().take_up_to(missing) : OwnedPages();
  parts_.counters.unbacked += missing - target.pages();
  if (target.empty()) return;
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
  ticket->source = std::move(held);
  ticket->anchor = std::move(anchor);
  ticket->target = std::move(target);
  parts_.transfers.submit(std::move(*ticket));
}

bool Backups::covers(const PrefixLock& held, std::int64_t tokens) {
  const NamespaceId host_ns = parts_.host.namespace_of(held.namespace_id());
  if (!host_ns.valid()) return false;
  const auto text = text_of(parts_.device, held).first(static_cast<std::size_t>(tokens));
  const std::int64_t matched = parts_.host.tree().probe(host_ns, text).matched_tokens;
  return matched == tokens || is_underway(host_ns, matched / parts_.device.page_size());
}

void Backups::landed(TransferTicket ticket) {
  if (ticket.job().kind == TransferKind::kBackup) {
    landed_backup(std::move(ticket));
  } else {
    landed_store(std::move(ticket));
  }
}

void Backups::landed_backup(TransferTicket ticket) {
  const Transfer& job = ticket.job();
  const std::int64_t done = job.done_pages();
  parts_.counters.backed_up += done;
  parts_.counters.unbacked += job.pages() - done;
  if (done == 0) return;
  RadixPrefixCache& tree = parts_.host.tree();
  text_.resize(static_cast<std::size_t>(ticket.anchor.tokens()));
  tree.copy_tokens(ticket.anchor, text_);
  const auto arrived =
      std::span(job.tokens).first(static_cast<std::size_t>(done * tree.page_size()));
  text_.insert(text_.end(), arrived.begin(), arrived.end());
  const std::int64_t first_page = job.first_page;
  PrefixLock published =
      tree.insert(text_, std::move(ticket.anchor), ticket.target.take_front(done), {});
  ticket.reset();
  if (!parts_.stores.empty()) store(std::move(published), first_page);
}

void Backups::store(PrefixLock held, std::int64_t first_page) {
  text_of(parts_.host.tree(), held);
  for (std::size_t store = 0; store < parts_.stores.size(); ++store) {
    store_in(static_cast<int>(store), held, first_page);
  }
}

// A store that answers from memory says where it ends, which may be before what is new: pages above
// may have been lost, or never stored.
void Backups::store_in(int store, const PrefixLock& held, std::int64_t first_page) {
  RadixPrefixCache& tree = parts_.host.tree();
  const std::int64_t end_page = held.tokens() / tree.page_size();
  auto ticket = parts_.transfers.try_open(TransferKind::kStore, store);
  if (!ticket.has_value()) {
    parts_.counters.unstored += end_page - first_page;
    return;
  }
  Transfer& job = ticket->job();
  job.digest = tree.digest(held.namespace_id());
  job.deadline_us = parts_.clock.now_us() + parts_.options.store_deadline_us;
  PageStore& target = *parts_.stores[static_cast<std::size_t>(store)];
  if (target.lookup_is_local()) {
    fill_text(job, held, text_, tree.page_size(), 0);
    const auto found = target.lookup(job.keys, job.deadline_us);
    first_page = found.ok() ? *found : end_page;
  }
  if (first_page >= end_page) return;
  fill_text(job, held, text_, tree.page_size(), first_page);
  job.from.resize(job.keys.size());
  held.copy_pages(first_page, job.from);
  ticket->source = tree.share(held);
  parts_.transfers.submit(std::move(*ticket));
}

void Backups::landed_store(TransferTicket ticket) {
  const Transfer& job = ticket.job();
  std::int64_t wrong_page = -1;
  for (std::size_t i = 0; i < job.verdicts.size(); ++i) {
    const bool stored = job.verdicts[i] == PageVerdict::kDone;
    ++(stored ? parts_.counters.stored : parts_.counters.unstored);
    if (job.verdicts[i] != PageVerdict::kCorrupt) continue;
    ++parts_.counters.of(&TierCounters::corrupt, Tier::kHost);
    if (wrong_page < 0) wrong_page = job.first_page + static_cast<std::int64_t>(i);
  }
  if (wrong_page < 0) return;
  RadixPrefixCache& tree = parts_.host.tree();
  const NamespaceId ns = ticket.source.namespace_id();
  text_of(tree, ticket.source);
  ticket.reset();
  if (tree.try_discard(ns, text_, wrong_page * tree.page_size())) ++parts_.counters.quarantined;
}

}  // namespace stemma
