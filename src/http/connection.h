// Connection: one client's socket, and the one exchange at a time that is on it.
//
//   idle ─first byte─► head ─► body ─► answering ─answer sent─► idle, or lingering ─► closed
//
// A coroutine reads for as long as the connection lives, also while an answer is computed: the end
// of the stream means that the client is gone. It waits until something can be read before there is
// any memory to read into, and then reads into the one buffer that all connections share. Answers
// are sent at the end of the turn of the I/O thread that wrote them; only if the system does not
// take all of it does a second coroutine wait for the rest to leave. A timer asks the one deadline
// that the state has. After an answer that ends the connection, what the client still sends is
// thrown away for a moment (lingering): to close earlier would destroy the answer on its way.
//
// Thread:     the I/O thread.
// Memory:     under 3 KiB with its coroutine; a RequestReader from a request's first byte to its
//             end; what waits to be sent; at most header_bytes_max of requests sent ahead.
// Cost:       a wait, a receive and a send an exchange.
// Not here:   accepting, exchanges of all connections (http_loop); parsing (request_reader).
#pragma once

#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "http/http_date.h"
#include "http/http_limits.h"
#include "http/http_message.h"
#include "http/http_server.h"
#include "http/http_tally.h"
#include "http/request_reader.h"
#include "http/send_buffer.h"

namespace stemma {

class Connection;

// What all connections of a server share.
struct HttpShared {
  HttpLimits limits;
  std::function<std::int64_t()> time_s;
  HttpDate date;
  HttpTally tally;
  std::int64_t body_bytes = 0;               // of requests that are being read
  std::int64_t waiting_bytes = 0;            // of answers, for their readers
  bool draining = false;                     // no request is begun any more
  std::array<char, 64 << 10> received = {};  // what the last read brought
};

// Who owns the connections. Its calls come from the event loop, never from inside a Connection's
// verbs, but for `begin_exchange`, `end_exchange` and `bound_waiting`.
class ConnectionOwner {
 public:
  virtual ~ConnectionOwner() = default;
  // As HttpService's.
  virtual std::optional<HttpResponse> refusal(const HttpRequest& head) = 0;
  virtual HttpResponse error(const HttpRequest& head, int status, std::string_view why) = 0;
  // A whole request: answers it, or names its exchange and has it answered.
  virtual void begin_exchange(Connection& connection, HttpRequest&& request) = 0;
  // The answer has left.
  virtual void end_exchange(Connection& connection) = 0;
  // Whether so many bytes more of bodies may be read for `asker`: others are refused that keep more
  // of them.
  virtual bool make_body_room(const Connection& asker, std::int64_t bytes) = 0;
  // Cuts readers off, perhaps the one that this is called for, while more waits than may.
  virtual void bound_waiting() = 0;
  // The connection is closed and nothing refers to it: it may be destroyed.
  virtual void end_connection(Connection& connection) = 0;
};

class Connection {
 public:
  // Both collaborators must outlive it.
  Connection(boost::asio::ip::tcp::socket socket, HttpShared& shared, ConnectionOwner& owner);

  // Begins to read. It then lives until its owner's end_connection.
  void start();
  // No more requests: closes unless an answer is open.
  void drain();
  // Closes at once, with what waits unsent.
  void cut_off();
  // Turns away a request whose body is being read. REQUIRES: body_cost is not 0.
  void refuse_body();

  // What is kept of the body that is being read, times the microseconds since some of it came; 0:
  // there is none.
  std::int64_t body_cost(std::chrono::steady_clock::time_point now) const;
  // What waits for a slow reader, times the microseconds since it first did not take all.
  std::int64_t waiting_cost(std::chrono::steady_clock::time_point now) const;

  // The exchange that is answered now; invalid if there is none or the server answers itself.
  ExchangeId exchange() const { return exchange_; }
  void name_exchange(ExchangeId exchange) { exchange_ = exchange; }
  // Whether all of the answer is written, though perhaps not sent.
  bool is_answer_whole() const { return answer_ == Answer::kWhole; }
  // Whether cut_off closed it.
  bool is_cut_off() const { return cut_off_; }

  // As HttpServer's verbs, for the exchange that is answered now.
  void respond(HttpResponse&& response);
  void begin_stream(HttpResponse&& head);
  void write(std::string_view piece);
  void end_stream();
  std::int64_t waiting_bytes() const;

 private:
  using Time = std::chrono::steady_clock::time_point;
  enum class Phase : std::uint8_t { kIdle, kHead, kBody, kAnswering, kLingering };
  enum class Answer : std::uint8_t { kNone, kAwaited, kStreamed, kWhole };

  // Reading.
  boost::asio::awaitable<void> read_all();
  std::size_t room_bytes() const;
  // The client has ended its stream, or the connection broke.
  void peer_ended();
  void take(std::string_view bytes);
  void read_request(std::string_view bytes);
  // Begins to read the body, if it is wanted. Whether it is.
  bool begin_body();
  void read_body();
  void begin_exchange(std::string_view sent_ahead);
  // Answers what is not a request, and ends the connection.
  void refuse(int status, std::string_view why);
  void answer_unread(HttpResponse&& response);
  void release_reader();

  // Answering.
  void append_head(const HttpResponse& response, bool streamed);
  void append_piece(std::string_view piece);
  void end_answer();
  void begin_next();
  void linger();
  void wake_reader();

  // Sending.
  void note_turn(std::int64_t bytes);
  void count_waiting();
  void send_later();
  // Sends what the system takes. Whether nothing waits.
  bool try_send();
  void begin_rest();
  void sent();
  boost::asio::awaitable<void> send_rest();

  // Deadlines.
  void set_deadline(std::int64_t from_now_us);
  void clear_deadline() { deadline_ = Time::max(); }
  void start_timer();
  void deadline_passed();

  void close();
  // One fewer refers to this; the last one ends it.
  void leave();

  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer timer_;
  HttpShared& shared_;
  ConnectionOwner& owner_;
  boost::asio::ip::address peer_;

  std::unique_ptr<RequestReader> reader_;  // null between requests
  std::int64_t counted_body_bytes_ = 0;    // of its body, in shared_.body_bytes
  std::string sent_ahead_;                 // of the next requests
  SendBuffer out_;                         // waits to be sent
  std::string body_;                       // of a whole answer: behind out_, never copied
  std::size_t body_sent_bytes_ = 0;
  std::int64_t counted_waiting_bytes_ = 0;  // in shared_.waiting_bytes

  ExchangeId exchange_;
  Time deadline_ = Time::max();
  Time timer_at_ = Time::max();  // when the timer asks; max: it does not
  Time kept_since_;              // when a body last came on, or a reader first did not take all
  std::int32_t references_ = 0;  // coroutines and completions that hold `this`
  Phase phase_ = Phase::kIdle;
  Answer answer_ = Answer::kNone;
  bool is_first_ = true;  // no request has come yet
  bool is_head_ = false;  // the answer has no body
  bool is_chunked_ = false;
  bool http_1_0_ = false;
  bool keep_alive_ = true;
  bool discards_ = false;      // what comes is not read as requests
  bool reader_rests_ = false;  // it waits for room, not for bytes
  bool peer_ended_ = false;
  bool send_queued_ = false;
  std::int64_t turn_bytes_ = 0;   // of the stream, that came in this turn
  std::int64_t burst_bytes_ = 0;  // of the longest turn that was more than may wait, while it does
  bool sending_rest_ = false;
  bool closed_ = false;
  bool cut_off_ = false;
};

}  // namespace stemma
