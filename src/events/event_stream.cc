#include "events/event_stream.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/digest.h"

namespace stemma {

namespace {

std::uint64_t digest_of(const EventMessage& message) {
  const Sha256Digest digest = sha256(std::as_bytes(std::span(message.bytes)));
  std::uint64_t first = 0;
  std::memcpy(&first, digest.data(), sizeof(first));
  return first;
}

}  // namespace

EventStream::EventStream(EventBatchSink& sink, ReplaySource* replay_or_null, AfterLoss after_loss)
    : sink_(sink), replay_or_null_(replay_or_null), after_loss_(after_loss), seen_(kRemembered) {}

void EventStream::take(const EventMessage& message) {
  if (message.sequence > kSequenceMax) {
    ++counters_.malformed;
    return;
  }
  const bool in_live_order = message.sequence >= next_live_;
  next_live_ = message.sequence + 1;
  if (message.sequence < next_) {
    // What a replay passed by because nobody had it any more may still come live.
    const bool is_late =
        in_live_order && message.sequence >= passed_by_.first && message.sequence < passed_by_.end;
    if (is_late || was_seen(message)) {
      ++counters_.duplicates;
      return;
    }
    begin_anew();
  }
  if (message.sequence > next_) {
    ++counters_.gaps;
    // A server keeps a batch before it sends it, and always the last one.
    if (replay() == Replayed::kAll && message.sequence >= next_) {
      ++counters_.strays;
      return;
    }
  }
  if (message.sequence < next_) {  // the replay had it
    ++counters_.duplicates;
    return;
  }
  if (message.sequence > next_) lose();
  apply(message);
}

void EventStream::catch_up() {
  static_cast<void>(replay());  // what did not come is a gap, seen with the next batch
}

void EventStream::catch_up_anew() {
  if (replay() == Replayed::kNothing && next_ > 0) lose();
}

// How much came of what the server has; what came says in which of its lives it is.
EventStream::Replayed EventStream::replay() {
  if (replay_or_null_ == nullptr) return Replayed::kNothing;
  const std::uint64_t first = next_ == 0 ? 0 : next_ - 1;
  bool another_life = false;
  bool any = false;
  const Status status = replay_or_null_->replay(first, [&](const EventMessage& message) {
    if (!any && first < next_) {
      if (message.sequence > first) lose();  // whether it continues what is known, nobody can tell
      another_life = message.sequence == first && !was_seen(message);
    }
    any = true;
    if (!another_life) take_replayed(message);
  });
  // Of a server that lives on the last batch is always there.
  if (status.ok() && !any && first < next_) another_life = true;
  if (!another_life && !status.ok()) return any ? Replayed::kSome : Replayed::kNothing;
  if (!another_life) return Replayed::kAll;
  begin_anew();
  const Status anew =
      replay_or_null_->replay(0, [&](const EventMessage& message) { take_replayed(message); });
  return anew.ok() ? Replayed::kAll : Replayed::kSome;
}

void EventStream::take_replayed(const EventMessage& message) {
  if (message.sequence < next_ || message.sequence > kSequenceMax) return;
  if (message.sequence > next_) {
    lose();
    passed_by_ = {next_, message.sequence};
  }
  ++counters_.replayed;
  apply(message);
}

void EventStream::apply(const EventMessage& message) {
  ++counters_.batches;
  next_ = message.sequence + 1;
  seen_[message.sequence % kRemembered] = {message.sequence, digest_of(message)};
  Result<WireBatch> batch = read_event_batch(message.bytes);
  if (!batch.ok()) {
    ++counters_.malformed;
    return lose();
  }
  if (lost_) {
    const auto cleared = std::find_if(
        batch->events.begin(), batch->events.end(),
        [](const WireEvent& event) { return event.kind == WireEvent::Kind::kCleared; });
    const bool still_lost = cleared == batch->events.end();
    if (still_lost && after_loss_ == AfterLoss::kNothing) return;
    if (!still_lost) batch->events.erase(batch->events.begin(), cleared);
    lost_ = still_lost;
  }
  sink_.take(message.sequence, *batch);
}

bool EventStream::was_seen(const EventMessage& message) const {
  const Seen& seen = seen_[message.sequence % kRemembered];
  return seen.sequence == message.sequence && seen.digest == digest_of(message);
}

void EventStream::begin_anew() {
  ++counters_.restarts;
  next_ = 0;
  passed_by_ = {};
  lost_ = false;
  std::fill(seen_.begin(), seen_.end(), Seen());
  sink_.forget();
}

void EventStream::lose() {
  if (!lost_) ++counters_.losses;
  lost_ = true;
  sink_.forget();
}

}  // namespace stemma
