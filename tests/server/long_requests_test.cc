// Requests that take long to read: others are answered meanwhile.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>

#include "http/raw_client.h"
#include "server/served_program.h"

namespace stemma {
namespace {

std::string message_of(const std::string& body) {
  return "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

// One word of as many letters, which are many tokens to find: seconds of work.
std::string long_word() {
  std::minstd_rand letters(1);
  std::string word;
  for (int i = 0; i < (4 << 20); ++i) word += static_cast<char>('a' + letters() % 26);
  return word;
}

// Waits until as many requests were read whole, this one of `client` included.
void wait_for_requests(RawClient& client, int asked) {
  for (int own = 1;; ++own) {
    ASSERT_TRUE(client.send("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"));
    const std::string line = "\nstemma_http_requests_total " + std::to_string(asked + own) + "\n";
    if (client.read_answer().body.find(line) != std::string::npos) return;
  }
}

TEST(LongRequests, HoldNoShorterOneUp) {
  ServedProgram server({});
  RawClient client;
  RawClient long_one;
  ASSERT_TRUE(client.connect(server.port()) && long_one.connect(server.port()));
  ASSERT_TRUE(long_one.send(message_of(R"({"max_tokens":1,"prompt":")" + long_word() + "\"}")));
  wait_for_requests(client, 1);
  for (const auto& [bytes, status] : {std::pair(1, 200), std::pair(200'000, 400)}) {
    const std::string prompt(static_cast<std::size_t>(bytes), 'a');
    ASSERT_TRUE(client.send(message_of(R"({"max_tokens":1,"prompt":")" + prompt + "\"}")));
    EXPECT_EQ(client.read_answer().status, status);
    EXPECT_FALSE(long_one.has_received());
  }
}

}  // namespace
}  // namespace stemma
