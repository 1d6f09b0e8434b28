// The publisher's thread sleeps in one place, in a poll of the replay socket and of an eventfd that
// whoever brings it work writes to. Batches are messages of the library, whose bytes are counted
// references: one copy is kept for replay and shared by every subscriber's queue.
#include "events/event_publisher.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "base/check.h"
#include "base/wall_clock.h"
#include "events/replay_buffer.h"
#include "events/zmq_frames.h"
#include "stemma/log.h"

namespace stemma {

namespace {

// A request is an empty frame and 8 bytes.
constexpr std::int64_t kRequestBytesMax = 64;
// Of buffers that hold more than this only one waits, and they are not kept: a whole tree comes
// through them.
constexpr std::size_t kLargeBytes = std::size_t{1} << 20;

Status check(const EventPublisherOptions& options) {
  const auto at_least_one = [](const char* field, std::int64_t value) -> Status {
    if (value >= 1) return {};
    return Error{ErrorCode::kInvalidArgument,
                 std::string(field) + " must be at least 1 (got " + std::to_string(value) + ")"};
  };
  STEMMA_RETURN_IF_ERROR(at_least_one("queue_steps", options.queue_steps));
  STEMMA_RETURN_IF_ERROR(at_least_one("replay_batches_max", options.replay_batches_max));
  STEMMA_RETURN_IF_ERROR(at_least_one("replay_bytes_max", options.replay_bytes_max));
  STEMMA_RETURN_IF_ERROR(at_least_one("queued_batches_max", options.queued_batches_max));
  STEMMA_RETURN_IF_ERROR(at_least_one("queued_bytes_max", options.queued_bytes_max));
  if (options.batch_bytes_max >= 1 << 10 && options.batch_bytes_max <= 1 << 22) return {};
  return Error{ErrorCode::kInvalidArgument, "batch_bytes_max must be from 1024 to 4194304 (got " +
                                                std::to_string(options.batch_bytes_max) + ")"};
}

// Of one subscriber. Steps are mostly short: who pauses for some of them loses none.
int queue_length(const EventPublisherOptions& options) {
  constexpr std::int64_t kAnyway = 256;
  const std::int64_t fit = std::max(options.queued_bytes_max / options.batch_bytes_max, kAnyway);
  return static_cast<int>(std::min<std::int64_t>(fit, options.queued_batches_max));
}

}  // namespace

struct EventPublisher::Sockets {
  class Descriptor {
   public:
    Descriptor() : descriptor_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
    ~Descriptor() {
      if (descriptor_ >= 0) ::close(descriptor_);
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;

    int descriptor() const noexcept { return descriptor_; }
    // It is full only if it was written to and not read: then there is nothing to add.
    void set() const noexcept {
      const std::uint64_t one = 1;
      static_cast<void>(!::write(descriptor_, &one, sizeof(one)));
    }
    void reset() const noexcept {
      std::uint64_t count = 0;
      static_cast<void>(!::read(descriptor_, &count, sizeof(count)));
    }

   private:
    int descriptor_;
  };

  explicit Sockets(const EventPublisherOptions& options)
      : kept(options.replay_batches_max, options.replay_bytes_max) {}

  Descriptor work;
  zmq::context_t context;
  zmq::socket_t publish;
  zmq::socket_t replay;
  ReplayBuffer kept;
};

namespace {

// Binds, and says where.
Status bind(zmq::socket_t& socket, const std::string& endpoint) {
  STEMMA_RETURN_IF_ERROR(check_address(endpoint));
  STEMMA_RETURN_IF_ERROR(zmq_call("cannot listen at " + endpoint, [&] {
    socket.set(zmq::sockopt::linger, 0);
    set_address_family(socket, endpoint);
  }));
  return zmq_call_repeated("cannot listen at " + endpoint, [&] { socket.bind(endpoint); });
}

std::string bound_endpoint(const zmq::socket_t& socket) {
  std::string endpoint;
  ignore_error(zmq_call("endpoint", [&] { endpoint = socket.get(zmq::sockopt::last_endpoint); }),
               "a socket that is bound has one");
  return endpoint;
}

}  // namespace

Result<std::unique_ptr<EventPublisher>> EventPublisher::open(const EventPublisherOptions& options,
                                                             const Clock& clock) {
  STEMMA_RETURN_IF_ERROR(check(options));
  auto sockets = std::make_unique<Sockets>(options);
  if (sockets->work.descriptor() < 0) return Error{ErrorCode::kIo, "events: no descriptor is left"};
  STEMMA_RETURN_IF_ERROR(zmq_call("cannot make a socket", [&] {
    sockets->publish = zmq::socket_t(sockets->context, zmq::socket_type::pub);
    sockets->publish.set(zmq::sockopt::sndhwm, queue_length(options));
    if (options.replay_endpoint.empty()) return;
    sockets->replay = zmq::socket_t(sockets->context, zmq::socket_type::router);
    // A whole replay fits, with its end; who asks again before it has read loses some of it.
    const std::int64_t answers = std::min<std::int64_t>(options.replay_batches_max + 64, 1 << 30);
    sockets->replay.set(zmq::sockopt::sndhwm, static_cast<int>(answers));
    sockets->replay.set(zmq::sockopt::maxmsgsize, kRequestBytesMax);
  }));
  STEMMA_RETURN_IF_ERROR(bind(sockets->publish, options.endpoint));
  if (!options.replay_endpoint.empty()) {
    STEMMA_RETURN_IF_ERROR(bind(sockets->replay, options.replay_endpoint));
  }
  return std::unique_ptr<EventPublisher>(new EventPublisher(options, clock, std::move(sockets)));
}

EventPublisher::EventPublisher(const EventPublisherOptions& options, const Clock& clock,
                               std::unique_ptr<Sockets> sockets)
    : options_(options),
      clock_(clock),
      queue_(options.queue_steps),
      spare_(options.queue_steps + 2),
      sockets_(std::move(sockets)),
      writer_(options.wire),
      last_resend_us_(clock.now_us() - options.resend_interval_us) {
  endpoint_ = bound_endpoint(sockets_->publish);
  if (sockets_->replay) replay_endpoint_ = bound_endpoint(sockets_->replay);
  thread_ = std::jthread([this](const std::stop_token& stop) { serve(stop); });
}

EventPublisher::~EventPublisher() {
  thread_.request_stop();
  wake();
  thread_.join();
}

void EventPublisher::pump(FunctionRef<void(PrefixEventSink&)> drain, FunctionRef<void()> resend) {
  if (resend_granted_.exchange(false)) {
    ++resends_;
    resend();
  }
  if (!has_room()) {
    ++full_steps_;
    return;
  }
  drain(next_);
  if (std::exchange(history_ends_, false)) next_.end_history();
  if (next_.empty() && !next_.ends_history()) return;
  ++queued_steps_;
  if (next_.ends_history()) history_end_step_ = queued_steps_;
  anew_queued_ = next_.begins_anew() && next_.bytes() > kLargeBytes;
  STEMMA_CHECK(queue_.try_push(std::move(next_)), "only this thread fills the queue");
  next_ = spare_.try_pop().value_or(EventBuffer());
  wake();
}

// Behind a large tree nothing waits: it would be another, where the queue is slower than the log.
bool EventPublisher::has_room() {
  const std::int64_t waiting = queue_.items();
  if (waiting == 0) anew_queued_ = false;
  return !anew_queued_ && waiting < queue_.items_max();
}

void EventPublisher::wake() const {
  sockets_->work.set();
}

void EventPublisher::serve(const std::stop_token& stop) {
  for (;;) {
    const bool last_round = stop.stop_requested();
    answer();
    while (std::optional<EventBuffer> events = queue_.try_pop()) {
      publish(*events);
      ++published_steps_;
      events->clear();
      if (events->capacity_bytes() <= kLargeBytes) spare_.try_push(std::move(*events));
      answer();
    }
    grant_resend();
    if (last_round) return;
    wait();
  }
}

void EventPublisher::wait() {
  std::array<zmq::pollitem_t, 2> items = {{{nullptr, sockets_->work.descriptor(), ZMQ_POLLIN, 0},
                                           {sockets_->replay.handle(), 0, ZMQ_POLLIN, 0}}};
  std::chrono::milliseconds time(-1);
  if (resend_wanted_) {
    const std::int64_t left_us = last_resend_us_ + options_.resend_interval_us - clock_.now_us();
    time = std::chrono::milliseconds(std::max<std::int64_t>(left_us / 1000 + 1, 1));
  }
  const std::size_t sockets = sockets_->replay ? 2 : 1;
  ignore_error(zmq_call("poll", [&] { zmq::poll(items.data(), sockets, time); }),
               "then there is a round for nothing");
  sockets_->work.reset();
}

void EventPublisher::publish(const EventBuffer& events) {
  const std::int64_t places_max = options_.batch_bytes_max / 5;  // a token takes 5 bytes at most
  events.for_each(places_max, [&](const PrefixEvent& event) {
    if (event.kind == PrefixEvent::Kind::kCleared && !writer_.empty()) publish_batch();
    writer_.add(event);
    if (writer_.places() >= places_max) publish_batch();
  });
  if (!writer_.empty()) publish_batch();
  if (!events.ends_history()) return;
  publish_batch();  // of no events: the last one is always kept
  sockets_->kept.forget_all_but_last();
}

void EventPublisher::publish_batch() {
  const std::vector<std::uint8_t> bytes = writer_.finish(wall_clock_seconds());
  const std::uint64_t sequence = sockets_->kept.next_sequence();
  sockets_->kept.add(zmq::message_t(bytes.data(), bytes.size()));
  if (!send_batch(sequence).ok()) ++failed_sends_;  // who misses it asks for it
  published_bytes_ += static_cast<std::int64_t>(bytes.size());
  ++published_batches_;
}

Status EventPublisher::send_batch(std::uint64_t sequence) {
  zmq::socket_t& socket = sockets_->publish;
  const SequenceFrame number = sequence_frame(sequence);
  zmq::message_t batch;
  batch.copy(sockets_->kept.batch(sequence));
  constexpr zmq::send_flags kMore = zmq::send_flags::sndmore;
  STEMMA_RETURN_IF_ERROR(send_frame("publish", socket, zmq::buffer(options_.topic), kMore));
  STEMMA_RETURN_IF_ERROR(send_frame("publish", socket, zmq::buffer(number), kMore));
  return send_frame("publish", socket, batch, zmq::send_flags::none);
}

// At most one request, so that whoever asks and asks keeps nobody from new batches.
void EventPublisher::answer() {
  if (!sockets_->replay) return;
  std::vector<zmq::message_t> frames;  // who asks, an empty one, the number
  const Status status = receive_frames("request", sockets_->replay, frames);
  if (status.ok() && frames.empty()) return;
  const bool is_known = status.ok() && frames.size() == 3 && frames[1].size() == 0;
  const auto first = is_known ? try_sequence(frames[2]) : std::nullopt;
  if (!first.has_value()) {
    ++wrong_requests_;
    return;
  }
  ++replays_;
  answer_from(*first, frames[0]);
}

void EventPublisher::answer_from(std::uint64_t first, zmq::message_t& asker) {
  if (first < sockets_->kept.first_sequence()) resend_wanted_ = true;
  if (!send_replay(first, asker).ok()) ++failed_sends_;
}

Status EventPublisher::send_replay(std::uint64_t first, zmq::message_t& asker) {
  ReplayBuffer& kept = sockets_->kept;
  for (std::uint64_t i = std::max(first, kept.first_sequence()); i < kept.next_sequence(); ++i) {
    zmq::message_t batch;
    batch.copy(kept.batch(i));
    STEMMA_RETURN_IF_ERROR(send_answer(asker, i, batch));
    ++replayed_batches_;
  }
  zmq::message_t nothing;
  return send_answer(asker, kReplayEnd, nothing);
}

Status EventPublisher::send_answer(zmq::message_t& asker, std::uint64_t sequence,
                                   zmq::message_t& batch) {
  zmq::socket_t& socket = sockets_->replay;
  zmq::message_t to;
  to.copy(asker);
  zmq::message_t none;
  const SequenceFrame number = sequence_frame(sequence);
  constexpr zmq::send_flags kMore = zmq::send_flags::sndmore;
  STEMMA_RETURN_IF_ERROR(send_frame("replay", socket, to, kMore));
  STEMMA_RETURN_IF_ERROR(send_frame("replay", socket, none, kMore));
  STEMMA_RETURN_IF_ERROR(send_frame("replay", socket, zmq::buffer(number), kMore));
  return send_frame("replay", socket, batch, zmq::send_flags::none);
}

void EventPublisher::grant_resend() {
  if (!resend_wanted_) return;
  if (clock_.now_us() - last_resend_us_ < options_.resend_interval_us) return;
  last_resend_us_ = clock_.now_us();
  resend_wanted_ = false;
  resend_granted_ = true;
}

void EventPublisher::visit_metrics(MetricVisitor& visitor) const {
  visitor.counter("stemma_event_batches_total", published_batches_);
  visitor.counter("stemma_event_bytes_total", published_bytes_);
  visitor.counter("stemma_event_full_steps_total", full_steps_);
  visitor.counter("stemma_event_resends_total", resends_);
  visitor.counter("stemma_event_failed_sends_total", failed_sends_);
  visitor.counter("stemma_event_replays_total", replays_);
  visitor.counter("stemma_event_replayed_batches_total", replayed_batches_);
  visitor.counter("stemma_event_wrong_requests_total", wrong_requests_);
  visitor.gauge("stemma_event_queued_steps", queue_.items());
}

}  // namespace stemma
