// HttpTally: what an HTTP server counts.
//
// Thread:     the I/O thread.
// Memory:     a few numbers.
// Cost:       an addition each.
// Not here:   latencies (server/), who counts them (connection, http_loop).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "stemma/metrics.h"

namespace stemma {

struct HttpTally {
  std::int64_t connections = 0;           // accepted and kept
  std::int64_t connections_refused = 0;   // closed at once: too many
  std::int64_t accept_failures = 0;       // the system had no descriptor or memory
  std::int64_t requests = 0;              // begun with the service
  std::int64_t requests_refused = 0;      // answered by the server itself: malformed, too large
  std::int64_t bodies_refused = 0;        // unread, since the service did not want them
  std::int64_t requests_turned_away = 0;  // 503: too many in flight, too much body at once
  std::int64_t gone = 0;                  // exchanges that ended before their answer was whole
  std::int64_t slow_readers = 0;          // cut off: too many bytes waited, or too long
  std::int64_t timeouts = 0;              // a head or a body did not come in time
  std::int64_t received_bytes = 0;
  std::int64_t sent_bytes = 0;
  std::int64_t sends = 0;                      // system calls that took some of them
  std::array<std::int64_t, 4> responses = {};  // by class: 2xx, 3xx, 4xx, 5xx

  // REQUIRES: 200 <= status <= 599.
  void count_response(int status) { ++responses[static_cast<std::size_t>(status / 100 - 2)]; }

  void visit(MetricVisitor& visitor) const {
    visitor.counter("stemma_http_connections_total", connections);
    visitor.counter("stemma_http_refused_connections_total", connections_refused);
    visitor.counter("stemma_http_accept_failures_total", accept_failures);
    visitor.counter("stemma_http_requests_total", requests);
    visitor.counter("stemma_http_refused_requests_total", requests_refused);
    visitor.counter("stemma_http_refused_bodies_total", bodies_refused);
    visitor.counter("stemma_http_turned_away_requests_total", requests_turned_away);
    visitor.counter("stemma_http_gone_requests_total", gone);
    visitor.counter("stemma_http_slow_readers_total", slow_readers);
    visitor.counter("stemma_http_timeouts_total", timeouts);
    visitor.counter("stemma_http_received_bytes_total", received_bytes);
    visitor.counter("stemma_http_sent_bytes_total", sent_bytes);
    visitor.counter("stemma_http_sends_total", sends);
    visitor.counter("stemma_http_2xx_responses_total", responses[0]);
    visitor.counter("stemma_http_3xx_responses_total", responses[1]);
    visitor.counter("stemma_http_4xx_responses_total", responses[2]);
    visitor.counter("stemma_http_5xx_responses_total", responses[3]);
  }
};

}  // namespace stemma
