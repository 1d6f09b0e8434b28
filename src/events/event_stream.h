// EventStream: a server's batches put into their order, with nothing missing and nothing twice.
//
// A subscriber hears batches as they come: some are lost where it is slow, and what a replay brings
// comes again live. Sequence numbers tell: the server counts from 0 without a gap. Where one is
// missing the stream asks for a replay, from the last batch it knows on: if that one is not what it
// was, or is not there any more, the server has been started anew. Likewise a number that was
// there before with other bytes.
//
// What nobody has any more is lost: the sink forgets everything, and batches are passed over until
// one clears all. Stemma's publisher sends that, and everything anew, to whoever asks for what is
// gone.
//
// Thread:     one.
// Memory:     16 bytes for each of the last kRemembered batches.
// Cost:       a digest a batch, and reading it.
// Not here:   sockets (event_follower), what events mean together (event_index).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "events/event_wire.h"
#include "stemma/result.h"

namespace stemma {

// Larger numbers mean something else: a replay's end is -1.
inline constexpr std::uint64_t kSequenceMax = ~std::uint64_t{0} >> 1;

// A batch as it comes.
struct EventMessage {
  std::uint64_t sequence = 0;
  std::vector<std::uint8_t> bytes;
};

// Who can say again what a server has said.
class ReplaySource {
 public:
  virtual ~ReplaySource() = default;
  // Visits what the server still has from batch `first` on, in order. An error: not all of it came.
  virtual Status replay(std::uint64_t first, FunctionRef<void(const EventMessage&)> visit) = 0;
};

// Takes batches in their order.
class EventBatchSink {
 public:
  virtual ~EventBatchSink() = default;
  virtual void take(std::uint64_t sequence, const WireBatch& batch) = 0;
  // All that was told before counts no more.
  virtual void forget() = 0;
};

// What the sink is given between a loss and the batch that clears all.
enum class AfterLoss : std::uint8_t {
  kNothing,  // so that it never holds more than there is
  kWhatever  // comes: for people who look on
};

class EventStream {
 public:
  static constexpr std::size_t kRemembered = std::size_t{1} << 14;

  // Both must outlive the stream; nullptr: what is missing is lost.
  EventStream(EventBatchSink& sink, ReplaySource* replay_or_null,
              AfterLoss after_loss = AfterLoss::kNothing);

  // A batch that came live.
  void take(const EventMessage& message);
  // Asks for what is there from the last batch known on: at the start, and where nothing comes.
  void catch_up();
  // The same where the server was connected to anew. If nothing is heard from it, it may be another
  // by now, which goes on with the next number: what is known is lost then.
  void catch_up_anew();

  // Whether all that the sink has taken since it last forgot is all there is: false from a loss
  // until the server clears all, or begins anew.
  bool complete() const noexcept { return !lost_; }
  std::uint64_t next_sequence() const noexcept { return next_; }

  struct Counters {
    std::int64_t batches = 0;     // taken, each once
    std::int64_t gaps = 0;        // seen, replay or not
    std::int64_t replayed = 0;    // of the batches, those that a replay brought
    std::int64_t duplicates = 0;  // came again
    std::int64_t restarts = 0;    // the server began anew
    std::int64_t losses = 0;      // nobody had what was missing
    std::int64_t strays = 0;      // of a server that is gone: the one there now does not have them
    std::int64_t malformed = 0;   // could not be read, and so were lost
  };
  const Counters& counters() const noexcept { return counters_; }

 private:
  struct Seen {
    std::uint64_t sequence = ~std::uint64_t{0};
    std::uint64_t digest = 0;
  };

  enum class Replayed : std::uint8_t { kAll, kSome, kNothing };

  bool was_seen(const EventMessage& message) const;
  Replayed replay();
  void take_replayed(const EventMessage& message);
  void apply(const EventMessage& message);
  void begin_anew();
  void lose();

  EventBatchSink& sink_;
  ReplaySource* replay_or_null_;
  AfterLoss after_loss_;
  std::vector<Seen> seen_;  // by sequence number, in a ring
  std::uint64_t next_ = 0;
  std::uint64_t next_live_ = 0;  // a server's live batches come in order
  struct {
    std::uint64_t first = 0;
    std::uint64_t end = 0;
  } passed_by_;  // numbers that the last replay no longer had
  bool lost_ = false;
  Counters counters_;
};

}  // namespace stemma
