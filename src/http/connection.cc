#include "http/connection.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <utility>

#include "base/check.h"
#include "http/response_head.h"

namespace stemma {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using AsioError = boost::system::error_code;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
// How long a client may go on sending after the last answer. It has then had the time to read it.
constexpr std::int64_t kLingerUs = 1'000'000;

bool would_wait(const AsioError& error) {
  return error == asio::error::try_again;  // EAGAIN, under either of its names
}

std::int64_t cost_of(std::int64_t bytes, std::chrono::steady_clock::duration time) {
  return bytes * std::chrono::duration_cast<std::chrono::microseconds>(time).count();
}

}  // namespace

Connection::Connection(tcp::socket socket, HttpShared& shared, ConnectionOwner& owner)
    : socket_(std::move(socket)), timer_(socket_.get_executor()), shared_(shared), owner_(owner) {
  AsioError ignored;  // a socket that refuses these is read or written with an error soon
  socket_.non_blocking(true, ignored);
  socket_.set_option(tcp::no_delay(true), ignored);
  peer_ = socket_.remote_endpoint(ignored).address();
}

void Connection::start() {
  set_deadline(shared_.limits.header_us);
  ++references_;
  asio::co_spawn(socket_.get_executor(), read_all(), [this](const std::exception_ptr& error) {
    STEMMA_CHECK(error == nullptr, "reading reports errors as values");
    leave();
  });
}

void Connection::drain() {
  if (phase_ == Phase::kAnswering) {
    keep_alive_ = false;
  } else if (phase_ != Phase::kLingering) {
    close();
  }
}

void Connection::cut_off() {
  if (closed_) return;
  cut_off_ = true;
  AsioError ignored;
  // A reset: the system shall not keep for minutes what the reader does not take.
  socket_.set_option(asio::socket_base::linger(true, 0), ignored);
  close();
}

// --- Reading

asio::awaitable<void> Connection::read_all() {
  while (!closed_) {
    // Without room only a broken connection is waited for, and a client that ends its stream behind
    // so much is missed until it is written to. The end of the answer makes room and cancels.
    reader_rests_ = room_bytes() == 0;
    const auto what = reader_rests_ ? tcp::socket::wait_error : tcp::socket::wait_read;
    const auto [failure] = co_await socket_.async_wait(what, kAwait);
    if (closed_) break;
    if (failure == asio::error::operation_aborted) continue;
    const bool broken = reader_rests_ || failure;
    reader_rests_ = false;
    AsioError error;
    std::size_t bytes = 0;
    if (!broken) {
      bytes = socket_.read_some(asio::buffer(shared_.received.data(), room_bytes()), error);
      if (would_wait(error)) continue;
    }
    if (broken || error) {
      peer_ended();
      break;
    }
    shared_.tally.received_bytes += static_cast<std::int64_t>(bytes);
    take({shared_.received.data(), bytes});
  }
}

std::size_t Connection::room_bytes() const {
  if (phase_ != Phase::kAnswering || discards_) return shared_.received.size();
  const auto kept_max = static_cast<std::size_t>(shared_.limits.header_bytes_max);
  return std::min(kept_max - std::min(kept_max, sent_ahead_.size()), shared_.received.size());
}

void Connection::peer_ended() {
  // A client may end its stream behind its last request; an answer that is whole still leaves.
  if (phase_ == Phase::kAnswering && answer_ == Answer::kWhole) {
    peer_ended_ = true;
  } else {
    close();
  }
}

void Connection::take(std::string_view bytes) {
  if (discards_) return;
  if (phase_ == Phase::kAnswering) {
    sent_ahead_ += bytes;
  } else {
    read_request(bytes);
  }
}

void Connection::read_request(std::string_view bytes) {
  if (phase_ == Phase::kIdle) {
    reader_ = std::make_unique<RequestReader>(shared_.limits);
    phase_ = Phase::kHead;
    is_first_ = false;
    set_deadline(shared_.limits.header_us);
  }
  const std::size_t taken = reader_->take(bytes);
  switch (reader_->progress()) {
    case RequestReader::Progress::kHead:
      return;
    case RequestReader::Progress::kBody:
      if (phase_ == Phase::kBody || begin_body()) read_body();
      return;
    case RequestReader::Progress::kRefused:
      ++shared_.tally.requests_refused;
      return refuse(reader_->refused_status(), reader_->refused_why());
    case RequestReader::Progress::kWhole:
      return begin_exchange(bytes.substr(taken));
  }
}

bool Connection::begin_body() {
  if (auto refusal = owner_.refusal(reader_->head())) {
    ++shared_.tally.bodies_refused;
    answer_unread(*std::move(refusal));
    return false;
  }
  phase_ = Phase::kBody;
  kept_since_ = std::chrono::steady_clock::now();
  set_deadline(shared_.limits.body_us);
  if (reader_->expects_continue() && reader_->body_bytes() == 0) {
    out_.end() += "HTTP/1.1 100 Continue\r\n\r\n";
    send_later();
  }
  return true;
}

void Connection::read_body() {
  const std::int64_t more_bytes = reader_->body_bytes() - counted_body_bytes_;
  if (!owner_.make_body_room(*this, more_bytes)) return refuse_body();
  kept_since_ = std::chrono::steady_clock::now();
  shared_.body_bytes += more_bytes;
  counted_body_bytes_ += more_bytes;
}

void Connection::refuse_body() {
  ++shared_.tally.requests_turned_away;
  refuse(503, "too many request bodies are being read");
}

std::int64_t Connection::body_cost(Time now) const {
  const bool reads_body = phase_ == Phase::kBody && reader_ != nullptr;
  return reads_body ? cost_of(reader_->body_bytes(), now - kept_since_) : 0;
}

void Connection::begin_exchange(std::string_view sent_ahead) {
  HttpRequest request = reader_->take_request();
  request.peer = peer_.to_string();
  is_head_ = reader_->is_head();
  http_1_0_ = reader_->http_1_0();
  keep_alive_ = reader_->keep_alive();
  release_reader();
  sent_ahead_ = sent_ahead;
  clear_deadline();
  phase_ = Phase::kAnswering;
  answer_ = Answer::kAwaited;
  owner_.begin_exchange(*this, std::move(request));
}

void Connection::refuse(int status, std::string_view why) {
  HttpResponse response = reader_->has_head() ? owner_.error(reader_->head(), status, why)
                                              : http_error_response(status, why);
  if (status == 503) response.headers.emplace_back("Retry-After", "1");
  answer_unread(std::move(response));
}

void Connection::answer_unread(HttpResponse&& response) {
  is_head_ = reader_->is_head();
  http_1_0_ = reader_->http_1_0();
  keep_alive_ = false;
  release_reader();
  discards_ = true;
  clear_deadline();
  phase_ = Phase::kAnswering;
  answer_ = Answer::kAwaited;
  respond(std::move(response));
}

void Connection::release_reader() {
  reader_.reset();
  shared_.body_bytes -= std::exchange(counted_body_bytes_, 0);
}

// --- Answering

void Connection::respond(HttpResponse&& response) {
  STEMMA_CHECK(answer_ == Answer::kAwaited, "an exchange has one answer");
  answer_ = Answer::kWhole;
  if (closed_) return;
  append_head(response, false);
  if (!is_head_) body_ = std::move(response.body);
  send_later();
}

void Connection::begin_stream(HttpResponse&& head) {
  STEMMA_CHECK(answer_ == Answer::kAwaited, "an exchange has one answer");
  STEMMA_CHECK(response_has_body(head.status), "a stream has a body");
  answer_ = Answer::kStreamed;
  if (closed_) return;
  const std::string first_piece = std::exchange(head.body, {});
  append_head(head, true);
  append_piece(first_piece);
  send_later();
}

void Connection::write(std::string_view piece) {
  STEMMA_CHECK(answer_ == Answer::kStreamed, "pieces come between begin_stream and end_stream");
  if (closed_) return;
  const std::int64_t most_bytes = shared_.limits.stream_buffer_bytes_max;
  const std::int64_t waited_bytes = waiting_bytes() - turn_bytes_;
  if (waited_bytes <= most_bytes) burst_bytes_ = 0;
  if (waited_bytes > most_bytes + burst_bytes_) {
    ++shared_.tally.slow_readers;
    return cut_off();
  }
  append_piece(piece);
  note_turn(std::ssize(piece));
  if (turn_bytes_ > most_bytes) burst_bytes_ = std::max(burst_bytes_, turn_bytes_);
  if (waiting_bytes() > most_bytes && !sending_rest_) try_send();
  send_later();
  if (sending_rest_) owner_.bound_waiting();
}

// No reader can have taken what came in this turn: whether it is slow says what came before. Nor
// has any taken by the next turn what was much in one: the stall deadline is for that.
void Connection::note_turn(std::int64_t bytes) {
  if (std::exchange(turn_bytes_, turn_bytes_ + bytes) > 0 || bytes == 0) return;
  ++references_;
  asio::post(socket_.get_executor(), [this] {
    turn_bytes_ = 0;
    leave();
  });
}

void Connection::end_stream() {
  STEMMA_CHECK(answer_ == Answer::kStreamed, "a stream ends once");
  answer_ = Answer::kWhole;
  if (closed_) return;
  if (is_chunked_ && !is_head_) append_last_chunk(out_.end());
  send_later();
}

std::int64_t Connection::waiting_bytes() const {
  return static_cast<std::int64_t>(out_.waiting_bytes() + body_.size() - body_sent_bytes_);
}

std::int64_t Connection::waiting_cost(Time now) const {
  const Time slow_from = kept_since_ + std::chrono::microseconds(shared_.limits.slow_reader_us);
  return sending_rest_ && now >= slow_from ? cost_of(waiting_bytes(), now - kept_since_) : 0;
}

void Connection::count_waiting() {
  const std::int64_t bytes = waiting_bytes();
  shared_.waiting_bytes += bytes - std::exchange(counted_waiting_bytes_, bytes);
}

void Connection::append_head(const HttpResponse& response, bool streamed) {
  is_chunked_ = streamed && !http_1_0_;
  keep_alive_ = keep_alive_ && !shared_.draining && (!streamed || is_chunked_);
  ResponseRules rules;
  rules.keep_alive = keep_alive_;
  rules.http_1_0 = http_1_0_;
  rules.date = shared_.date.at(shared_.time_s());
  if (streamed) rules.framing = is_chunked_ ? BodyFraming::kChunked : BodyFraming::kUntilClose;
  append_response_head(out_.end(), response, rules);
  shared_.tally.count_response(response.status);
}

void Connection::append_piece(std::string_view piece) {
  if (is_head_ || piece.empty()) return;
  if (is_chunked_) {
    append_chunk(out_.end(), piece);
  } else {
    out_.end() += piece;
  }
}

void Connection::end_answer() {
  owner_.end_exchange(*this);
  exchange_ = ExchangeId();
  answer_ = Answer::kNone;
  out_.release();
  std::string().swap(body_);
  body_sent_bytes_ = 0;
  if (peer_ended_) {
    close();
  } else if (!keep_alive_ || shared_.draining) {
    linger();
  } else {
    begin_next();
  }
}

void Connection::begin_next() {
  const std::string bytes = std::exchange(sent_ahead_, {});
  phase_ = Phase::kIdle;
  set_deadline(shared_.limits.keep_alive_us);
  wake_reader();
  if (!bytes.empty()) read_request(bytes);
}

void Connection::linger() {
  phase_ = Phase::kLingering;
  discards_ = true;
  std::string().swap(sent_ahead_);
  set_deadline(kLingerUs);
  AsioError error;
  socket_.shutdown(tcp::socket::shutdown_send, error);
  if (error) return close();
  wake_reader();
}

void Connection::wake_reader() {
  AsioError ignored;
  if (reader_rests_) socket_.cancel(ignored);
}

// --- Sending

void Connection::send_later() {
  count_waiting();
  if (send_queued_ || sending_rest_ || closed_) return;
  send_queued_ = true;
  ++references_;
  asio::post(socket_.get_executor(), [this] {
    send_queued_ = false;
    if (!closed_ && !sending_rest_ && try_send()) sent();
    leave();
  });
}

bool Connection::try_send() {
  while (waiting_bytes() > 0) {
    const std::array<asio::const_buffer, 2> waiting = {asio::buffer(out_.waiting()),
                                                       asio::buffer(body_) + body_sent_bytes_};
    AsioError error;
    const std::size_t bytes = socket_.write_some(waiting, error);
    if (would_wait(error)) {
      if (!sending_rest_) begin_rest();
      return false;
    }
    if (error) {
      close();
      return false;
    }
    ++shared_.tally.sends;
    shared_.tally.sent_bytes += static_cast<std::int64_t>(bytes);
    if (sending_rest_) set_deadline(shared_.limits.write_stall_us);
    const std::size_t of_out = std::min(bytes, out_.waiting_bytes());
    out_.leave(of_out);
    body_sent_bytes_ += bytes - of_out;
    count_waiting();
  }
  return true;
}

void Connection::begin_rest() {
  owner_.bound_waiting();  // before it is one of those that are cut off
  sending_rest_ = true;
  kept_since_ = std::chrono::steady_clock::now();
  set_deadline(shared_.limits.write_stall_us);
  ++references_;
  asio::co_spawn(socket_.get_executor(), send_rest(), [this](const std::exception_ptr& raised) {
    STEMMA_CHECK(raised == nullptr, "sending reports errors as values");
    leave();
  });
}

void Connection::sent() {
  if (phase_ != Phase::kAnswering) return;  // "100 Continue"
  clear_deadline();
  if (answer_ == Answer::kWhole) end_answer();
}

asio::awaitable<void> Connection::send_rest() {
  while (!closed_) {
    const auto [failure] = co_await socket_.async_wait(tcp::socket::wait_write, kAwait);
    if (closed_) break;
    if (failure == asio::error::operation_aborted) continue;  // it was the reader that was woken
    if (failure) {
      close();
    } else if (try_send()) {
      sending_rest_ = false;
      sent();
      break;
    }
  }
}

// --- Deadlines

void Connection::set_deadline(std::int64_t from_now_us) {
  deadline_ = std::chrono::steady_clock::now() + std::chrono::microseconds(from_now_us);
  // A timer that asks earlier finds out then; only a later one is moved.
  if (deadline_ < timer_at_) start_timer();
}

void Connection::start_timer() {
  timer_at_ = deadline_;
  timer_.expires_at(deadline_);
  ++references_;
  timer_.async_wait([this](const AsioError& error) {
    if (!error && !closed_) {
      timer_at_ = Time::max();
      if (deadline_ <= std::chrono::steady_clock::now()) {
        deadline_passed();
      } else if (deadline_ != Time::max()) {
        start_timer();
      }
    }
    leave();
  });
}

void Connection::deadline_passed() {
  clear_deadline();
  switch (phase_) {
    case Phase::kIdle:
      if (is_first_) ++shared_.tally.timeouts;
      return close();
    case Phase::kHead:
    case Phase::kBody:
      ++shared_.tally.timeouts;
      if (!reader_->has_begun()) return close();
      return refuse(408, "the request did not come in time");
    case Phase::kAnswering:
      ++shared_.tally.slow_readers;
      return cut_off();
    case Phase::kLingering:
      return close();
  }
}

// --- The end

void Connection::close() {
  if (closed_) return;
  closed_ = true;
  AsioError ignored;
  socket_.close(ignored);
  timer_.cancel();
  release_reader();
  std::string().swap(sent_ahead_);
  out_.release();
  std::string().swap(body_);
  body_sent_bytes_ = 0;
  count_waiting();
}

void Connection::leave() {
  STEMMA_CHECK_GE(references_, 1);
  if (--references_ > 0) return;
  STEMMA_CHECK(closed_, "an open connection is read");
  owner_.end_connection(*this);
}

}  // namespace stemma
