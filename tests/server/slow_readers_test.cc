// Thousands of streams whose clients read ten bytes a second (fault 25): the server's memory stays
// within bounds, and others decode as if they were not there. 300 streams; 5,000 of them, and the
// figures asserted, with STEMMA_LONG_TESTS=1.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "base/bounded_queue.h"
#include "base/clock.h"
#include "base/long_tests_fixture.h"
#include "http/raw_client.h"
#include "server/served_program.h"

namespace stemma {
namespace {

struct StreamRequest {
  std::int64_t prompt = 0;  // every number is another text
  std::int64_t max_tokens = 0;
  std::int64_t priority = 0;
};

std::string message_of(const StreamRequest& request) {
  const std::string body = R"({"prompt":"Story )" + std::to_string(request.prompt) +
                           R"(: in the beginning","stream":true,"ignore_eos":true,"max_tokens":)" +
                           std::to_string(request.max_tokens) + R"(,"priority":)" +
                           std::to_string(request.priority) + "}";
  return "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

// Clients that have asked for a stream and take ten bytes of it a second.
class SlowReaders {
 public:
  explicit SlowReaders(std::uint16_t port, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      RawClient& client = clients_.emplace_back(/*receive_buffer_bytes=*/4096);
      EXPECT_TRUE(client.connect(port));
      EXPECT_TRUE(client.send(message_of({i, 128, 0})));
    }
    reading_ = std::jthread([this] {
      while (!ended_.wait_for_item(std::chrono::seconds(1))) {
        for (RawClient& client : clients_) client.drop(10);
      }
    });
  }
  ~SlowReaders() { EXPECT_TRUE(ended_.try_push(true)); }

 private:
  std::vector<RawClient> clients_;
  BoundedQueue<bool> ended_{1};
  std::jthread reading_;
};

// Streams one after another from a number of connections at once; the gaps between their tokens.
class Decoding {
 public:
  Decoding(std::uint16_t port, std::int64_t clients, std::int64_t streams_each) {
    std::vector<std::jthread> threads;
    std::vector<std::vector<std::int64_t>> gaps(static_cast<std::size_t>(clients));
    for (std::int64_t i = 0; i < clients; ++i) {
      threads.emplace_back([&, i] {
        for (std::int64_t stream = 0; stream < streams_each; ++stream) {
          read_stream(port, 1'000'000 + i * 1000 + stream, gaps[static_cast<std::size_t>(i)]);
        }
      });
    }
    threads.clear();
    for (const auto& each : gaps) gaps_us_.insert(gaps_us_.end(), each.begin(), each.end());
    std::sort(gaps_us_.begin(), gaps_us_.end());
  }

  std::int64_t gaps() const { return std::ssize(gaps_us_); }
  double p99_ms() const {
    return static_cast<double>(gaps_us_[gaps_us_.size() * 99 / 100]) / 1000.0;
  }

 private:
  static void read_stream(std::uint16_t port, std::int64_t prompt,
                          std::vector<std::int64_t>& gaps) {
    MonotonicClock clock;
    RawClient client;
    ASSERT_TRUE(client.connect(port));
    ASSERT_TRUE(client.send(message_of({prompt, 64, 1})));
    ASSERT_TRUE(client.read_until("\r\n\r\n").has_value());
    std::int64_t last_us = -1;
    std::string last_piece;
    while (const auto piece = client.read_piece()) {
      const std::int64_t now_us = clock.now_us();
      if (last_us >= 0) gaps.push_back(now_us - last_us);
      last_us = now_us;
      last_piece = *piece;
    }
    ASSERT_NE(last_piece.find("[DONE]"), std::string::npos) << "the stream broke off";
  }

  std::vector<std::int64_t> gaps_us_;
};

// From then on everything that slow readers have not taken lies in buffers.
void wait_until_all_are_decoded(std::uint16_t port) {
  for (bool idle = false; !idle;) {
    RawClient client;
    ASSERT_TRUE(client.connect(port));
    ASSERT_TRUE(client.send("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"));
    const RawAnswer answer = client.read_answer();
    ASSERT_EQ(answer.status, 200);
    idle = answer.body.find("\nstemma_answers_in_flight 0\n") != std::string::npos;
  }
}

TEST(SlowReaders, CostABoundedBufferEachAndNobodyElseTime) {
  const std::int64_t slow = long_tests() ? 5000 : 300;
  ServedProgram server({"--concurrency", "16", "--queue", "8000", "--policy", "priority"});
  ASSERT_GT(server.port(), 0);
  const Decoding warm(server.port(), 16, 2);
  // As many decode at once as there will be with slow readers among them.
  const Decoding alone(server.port(), 16, long_tests() ? 10 : 3);
  const std::int64_t idle_bytes = server.resident_bytes();
  {
    const SlowReaders readers(server.port(), slow);
    const Decoding beside(server.port(), 8, long_tests() ? 20 : 6);
    if (long_tests()) wait_until_all_are_decoded(server.port());
    const std::int64_t more_bytes = server.resident_bytes() - idle_bytes;
    std::printf("%lld slow readers: %.1f MiB more; p99 between tokens %.2f ms, alone %.2f ms\n",
                static_cast<long long>(slow), static_cast<double>(more_bytes) / (1 << 20),
                beside.p99_ms(), alone.p99_ms());
    EXPECT_LT(more_bytes, std::int64_t{1} << 30);
    if (long_tests()) {
      EXPECT_LE(beside.p99_ms(), 1.2 * alone.p99_ms());
    }
  }
  EXPECT_EQ(server.stop(), 0);
}

}  // namespace
}  // namespace stemma
