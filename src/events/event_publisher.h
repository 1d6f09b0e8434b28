// EventPublisher: says to whoever listens which pages a cache finds, over ZeroMQ.
//
//   PUB      [topic, sequence, batch]: every batch once, numbered from 0 without a gap
//   ROUTER   a subscriber that missed some sends the number of the first it lacks, 8 bytes with the
//            most significant first; it gets [sequence, batch] for each that is kept, then [-1, ""]
//
// The engine never waits. Once a step it hands over what changed, if there is room; if not, the
// cache keeps it (prefix_event_log), and where that is too much the next batch begins with
// AllBlocksCleared and says everything anew. So it does for the first batch, and for a subscriber
// that asks for what is not kept any more. A subscriber that is slow loses batches, and sees that
// from their numbers.
//
// Thread:     pump on the engine's; a thread of its own writes batches and answers. Metrics from
//             any thread.
// Memory:     `queue_steps` steps' events, at most one of them a large tree; the batches kept for
//             replay; for each subscriber up to `queued_batches_max` batches, shared with those.
// Cost:       for the engine a copy of keys and tokens; on the other thread some 50 ns a token.
// Not here:   the wire form of a batch (event_wire), subscribers (event_follower).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

#include "base/bounded_queue.h"
#include "base/clock.h"
#include "base/function_ref.h"
#include "events/event_buffer.h"
#include "events/event_wire.h"
#include "stemma/metrics.h"
#include "stemma/prefix_cache.h"
#include "stemma/result.h"

namespace zmq {
class message_t;
}

namespace stemma {

struct EventPublisherOptions {
  // Where subscribers connect, as ZeroMQ writes it: tcp://address:port, with * for every address of
  // IPv4 ([::]: of IPv6, and mostly of IPv4 too) or for any free port, or ipc://path.
  std::string endpoint = "tcp://*:5557";
  std::string replay_endpoint;  // empty: nobody can ask
  std::string topic;            // what stands before every batch; subscribers choose by it
  EventWireOptions wire;

  // Steps whose events wait to be written, at most. >= 1.
  std::int64_t queue_steps = 64;
  // Batches kept for replay, at most so many and of so many bytes. >= 1.
  std::int64_t replay_batches_max = 10'000;
  std::int64_t replay_bytes_max = std::int64_t{256} << 20;
  // Batches that wait for one subscriber, at most; it loses what comes then, and finds it in the
  // replay. The library counts batches: of so many bytes there are as many as fit however long they
  // are, but 256 where batch_bytes_max leaves fewer. Both >= 1.
  int queued_batches_max = 100'000;
  std::int64_t queued_bytes_max = std::int64_t{128} << 20;
  // A batch is cut after about so many bytes. From 1 KiB to 4 MiB.
  std::int64_t batch_bytes_max = std::int64_t{1} << 18;
  // Everything is said anew for subscribers that lack what is not kept, but not more often.
  std::int64_t resend_interval_us = 10'000'000;
};

class EventPublisher {
 public:
  // `clock` must outlive the publisher. kInvalidArgument naming the option, kIo naming the endpoint
  // that cannot be bound.
  static Result<std::unique_ptr<EventPublisher>> open(const EventPublisherOptions& options,
                                                      const Clock& clock);
  // Publishes what is queued; what subscribers have not fetched by then is gone.
  ~EventPublisher();
  EventPublisher(const EventPublisher&) = delete;
  EventPublisher& operator=(const EventPublisher&) = delete;

  // Once a step, and now and then while there are none: takes what changed. `drain` and `resend`
  // are the cache's drain_events and resend_events.
  void pump(FunctionRef<void(PrefixEventSink&)> drain, FunctionRef<void()> resend);

  // The engine's thread: what was published, and what the next pump takes, is kept for nobody's
  // replay any more, as it has the tokens of what was purged. Who lacks some of it is told
  // everything anew.
  void end_history() { history_ends_ = true; }
  // The engine's thread: whether that is done, and what the cache had told until then was sent.
  bool has_ended_history() const noexcept {
    return !history_ends_ && published_steps_ >= history_end_step_;
  }

  // With the port that was bound.
  const std::string& endpoint() const noexcept { return endpoint_; }
  const std::string& replay_endpoint() const noexcept { return replay_endpoint_; }

  std::int64_t published_batches() const noexcept { return published_batches_; }
  // Any thread.
  void visit_metrics(MetricVisitor& visitor) const;

 private:
  struct Sockets;

  EventPublisher(const EventPublisherOptions& options, const Clock& clock,
                 std::unique_ptr<Sockets> sockets);
  bool has_room();
  void wake() const;
  void serve(const std::stop_token& stop);
  void wait();
  void publish(const EventBuffer& events);
  void publish_batch();
  Status send_batch(std::uint64_t sequence);
  void answer();
  void answer_from(std::uint64_t first, zmq::message_t& asker);
  Status send_replay(std::uint64_t first, zmq::message_t& asker);
  Status send_answer(zmq::message_t& asker, std::uint64_t sequence, zmq::message_t& batch);
  void grant_resend();

  EventPublisherOptions options_;
  const Clock& clock_;
  std::string endpoint_;
  std::string replay_endpoint_;

  // The engine's thread.
  EventBuffer next_;
  bool anew_queued_ = false;
  bool history_ends_ = false;
  std::int64_t queued_steps_ = 0;      // since the start
  std::int64_t history_end_step_ = 0;  // how many there were with the last end of a history

  BoundedQueue<EventBuffer> queue_;
  BoundedQueue<EventBuffer> spare_;  // empty ones, on their way back
  std::atomic<bool> resend_granted_ = true;

  // The publisher's thread.
  std::unique_ptr<Sockets> sockets_;
  EventWriter writer_;
  bool resend_wanted_ = false;
  std::int64_t last_resend_us_;

  std::atomic<std::int64_t> published_steps_ = 0;  // of queued_steps_
  std::atomic<std::int64_t> full_steps_ = 0;       // steps in which there was no room
  std::atomic<std::int64_t> resends_ = 0;
  std::atomic<std::int64_t> published_batches_ = 0;
  std::atomic<std::int64_t> published_bytes_ = 0;
  std::atomic<std::int64_t> failed_sends_ = 0;
  std::atomic<std::int64_t> replays_ = 0;
  std::atomic<std::int64_t> replayed_batches_ = 0;
  std::atomic<std::int64_t> wrong_requests_ = 0;

  std::jthread thread_;  // the last member: it ends before what it uses
};

}  // namespace stemma
