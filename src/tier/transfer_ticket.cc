#include "tier/transfer_ticket.h"

#include <algorithm>

#include "base/check.h"

namespace stemma {

namespace {

bool is_for_request(TransferKind kind) noexcept {
  return kind != TransferKind::kBackup && kind != TransferKind::kStore &&
         kind != TransferKind::kRemove && kind != TransferKind::kPurge;
}

}  // namespace

std::string_view ticket_state_name(TicketState state) {
  switch (state) {
    case TicketState::kBlank:
      return "blank";
    case TicketState::kUnderway:
      return "underway";
    case TicketState::kAbandoned:
      return "abandoned";
    case TicketState::kLanded:
      return "landed";
  }
  return "unknown";
}

bool may_become(TicketState from, TicketState to) noexcept {
  switch (from) {
    case TicketState::kBlank:
      return to == TicketState::kUnderway;
    case TicketState::kUnderway:
      return to == TicketState::kAbandoned || to == TicketState::kLanded;
    case TicketState::kAbandoned:
      return to == TicketState::kLanded;
    case TicketState::kLanded:
      return to == TicketState::kBlank;
  }
  return false;
}

void TransferTicket::become(TicketState next) {
  STEMMA_CHECK(may_become(state_, next), "a ticket takes only the ways of its table");
  state_ = next;
}

void TransferTicket::take_from(TransferTicket& other) noexcept {
  engine_ = std::exchange(other.engine_, nullptr);
  job_ = std::exchange(other.job_, nullptr);
  state_ = std::exchange(other.state_, TicketState::kBlank);
  source = std::move(other.source);
  anchor = std::move(other.anchor);
  target = std::move(other.target);
  windowed_source = std::move(other.windowed_source);
  windowed_target = std::move(other.windowed_target);
  cookie = other.cookie;
}

void TransferTicket::reset() noexcept {
  if (job_ == nullptr) return;
  STEMMA_CHECK(state_ == TicketState::kBlank || state_ == TicketState::kLanded,
               "what a copy reads and writes is held until it has ended (I6)");
  target.reset();
  windowed_target.reset();
  windowed_source.reset();
  source.reset();
  anchor.reset();
  engine_->give_back(std::exchange(job_, nullptr));
  state_ = TicketState::kBlank;
}

TransferEngine::TransferEngine(const TransferLimits& limits, TransferLanes& lanes)
    : lanes_(lanes), underway_(static_cast<std::size_t>(limits.total())) {
  const std::array<std::int64_t, kQueues> room = {limits.down_max, limits.up_max, limits.reads_max,
                                                  limits.writes_max, limits.purges_max};
  for (std::size_t queue = 0; queue < kQueues; ++queue) {
    for (std::int64_t i = 0; i < room[queue]; ++i) {
      jobs_.push_back(std::make_unique<Transfer>());
      jobs_.back()->place = static_cast<std::int64_t>(jobs_.size()) - 1;
      blank_[queue].push_back(jobs_.back().get());
    }
  }
}

TransferEngine::~TransferEngine() {
  for (TransferTicket& ticket : underway_) {
    if (ticket.valid()) ticket.job().cancelled.store(true, std::memory_order_relaxed);
  }
  lanes_.stop();
  while (try_take_landed().has_value()) {
  }
  STEMMA_CHECK_EQ(underway_count_, 0);
}

TransferEngine::Queue TransferEngine::queue_of(TransferKind kind) noexcept {
  switch (kind) {
    case TransferKind::kBackup:
      return kDown;
    case TransferKind::kPromote:
      return kUp;
    case TransferKind::kLoad:
    case TransferKind::kFetch:
    case TransferKind::kLookup:
    case TransferKind::kRemove:
      return kReads;
    case TransferKind::kStore:
      return kWrites;
    case TransferKind::kPurge:
      return kPurges;
  }
  return kDown;
}

std::optional<TransferTicket> TransferEngine::try_open(TransferKind kind, int store) {
  auto& blank = blank_[queue_of(kind)];
  if (blank.empty()) return std::nullopt;
  TransferTicket ticket;
  ticket.engine_ = this;
  ticket.job_ = blank.back();
  blank.pop_back();
  ticket.job_->kind = kind;
  ticket.job_->store = store;
  return ticket;
}

void TransferEngine::submit(TransferTicket ticket) {
  STEMMA_CHECK(ticket.engine_ == this, "a ticket goes back to the engine it came from");
  ticket.become(TicketState::kUnderway);
  Transfer& job = ticket.job();
  underway_[static_cast<std::size_t>(job.place)] = std::move(ticket);
  ++underway_count_;
  lanes_.post(job);
}

std::optional<TransferTicket> TransferEngine::try_take_landed() {
  if (next_landed_or_null() == nullptr) return std::nullopt;
  Transfer* const job = std::exchange(ended_, nullptr);
  TransferTicket ticket = std::move(underway_[static_cast<std::size_t>(job->place)]);
  STEMMA_CHECK(ticket.job_ == job, "what ends was submitted");
  --underway_count_;
  ticket.become(TicketState::kLanded);
  return ticket;
}

const Transfer* TransferEngine::next_landed_or_null() {
  if (ended_ == nullptr) ended_ = lanes_.try_take_done_or_null();
  return ended_;
}

void TransferEngine::wait_landed(std::chrono::microseconds time) {
  if (ended_ == nullptr) lanes_.wait_done(time);
}

void TransferEngine::abandon(std::int64_t cookie) {
  for (TransferTicket& ticket : underway_) {
    if (!ticket.valid() || !is_for_request(ticket.job().kind) || ticket.cookie != cookie) continue;
    if (ticket.state_ != TicketState::kUnderway) continue;
    ticket.become(TicketState::kAbandoned);
    Transfer& job = ticket.job();
    job.cancelled.store(true, std::memory_order_relaxed);
    const bool from_store = job.kind == TransferKind::kLoad || job.kind == TransferKind::kFetch;
    if (!from_store || !job.try_withdraw()) continue;
    ticket.target.reset();
    ticket.windowed_target.reset();
  }
}

Transfer* TransferEngine::only_job_or_null(TransferKind kind, std::int64_t cookie) const {
  Transfer* only = nullptr;
  std::int64_t jobs = 0;
  for_each_underway([&](const TransferTicket& ticket) {
    if (ticket.job().kind != kind || ticket.cookie != cookie) return;
    if (ticket.state() != TicketState::kUnderway) return;
    only = &ticket.job();
    ++jobs;
  });
  return jobs == 1 ? only : nullptr;
}

std::int64_t TransferEngine::target_pages(TransferKind kind) const {
  std::int64_t pages = 0;
  for_each_underway([&](const TransferTicket& ticket) {
    if (ticket.job().kind == kind) pages += ticket.target.pages();
  });
  return pages;
}

std::int64_t TransferEngine::promised_pages(std::int64_t cookie) const {
  std::int64_t pages = 0;
  for_each_underway([&](const TransferTicket& ticket) {
    const bool counts = is_for_request(ticket.job().kind) && ticket.cookie == cookie;
    if (counts) pages += ticket.target.pages();
  });
  return pages;
}

void TransferEngine::give_back(Transfer* job) noexcept {
  const Queue queue = queue_of(job->kind);
  job->clear();
  blank_[queue].push_back(job);
}

}  // namespace stemma
