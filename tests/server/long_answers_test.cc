// Answers that take long to write, for their logprobs: each is whole and in order whoever goes
// meanwhile, and the server ends in order.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "http/raw_client.h"
#include "server/served_program.h"

namespace stemma {
namespace {

constexpr std::int64_t kTokens = 500;

std::string message_of(const std::string& fields) {
  std::string prompt;
  for (std::int64_t i = 0; i < kTokens; ++i) {
    prompt.append(i == 0 ? "" : ",").append(std::to_string(100 + i % 300));
  }
  const std::string body = R"({"prompt":[)" + prompt + R"(],"temperature":0,)" + fields + "}";
  return "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

const std::string kWhole = R"("max_tokens":1,"prompt_logprobs":20,"n":8)";
const std::string kStreamed =
    R"("max_tokens":16,"ignore_eos":true,"echo":true,"logprobs":5,"n":2,"stream":true)";

std::int64_t count_of(std::string_view word, std::string_view text) {
  std::int64_t count = 0;
  for (std::size_t at = 0; (at = text.find(word, at)) != text.npos; at += word.size()) ++count;
  return count;
}

class LongAnswers : public testing::Test {
 protected:
  RawClient asks(const std::string& fields) {
    RawClient client;
    EXPECT_TRUE(client.connect(server_.port()));
    EXPECT_TRUE(client.send(message_of(fields)));
    return client;
  }
  std::string metrics() {
    RawClient client;
    EXPECT_TRUE(client.connect(server_.port()));
    EXPECT_TRUE(client.send("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"));
    return client.read_answer().body;
  }
  bool has_metric(const std::string& line) {
    return metrics().find("\n" + line + "\n") != std::string::npos;
  }

  static void expect_whole(const RawAnswer& answer) {
    EXPECT_EQ(answer.status, 200);
    EXPECT_NE(answer.head.find("\r\nX-Stemma-Cache: "), std::string::npos);
    EXPECT_EQ(count_of(R"("prompt_logprobs":[null,)", answer.body), 8);
    // The likeliest are as many; a token that is not among them stands beside.
    EXPECT_GE(count_of(R"("rank":)", answer.body), 8 * (kTokens - 1) * 20);
  }

  ServedProgram server_{{}};
};

TEST_F(LongAnswers, AreAllWhole) {
  std::vector<RawClient> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(asks(kWhole));
  for (RawClient& client : clients) expect_whole(client.read_answer());
  EXPECT_TRUE(has_metric(R"(stemma_answers_total{outcome="length"} 3)"));
}

TEST_F(LongAnswers, ThatStreamStayInOrder) {
  RawClient client = asks(kStreamed);
  const std::string events = client.read_answer().body;
  EXPECT_TRUE(events.ends_with("data: [DONE]\n\n"));
  for (const std::string index : {R"("index":0,)", R"("index":1,)"}) {
    const std::size_t first = events.find(index);
    const std::size_t prompt = events.find(R"("text_offset":[0,)", first);
    ASSERT_NE(prompt, events.npos);
    EXPECT_EQ(events.rfind(index, prompt), first) << "the prompt comes in the first event";
    EXPECT_GT(events.rfind(R"("finish_reason":"length")"), events.rfind(index));
  }
  EXPECT_EQ(count_of("[DONE]", events), 1);
}

// Wherever the answer is when they go: waiting, being computed, being written, or on its way.
TEST_F(LongAnswers, OfClientsThatGoHoldNobodyUp) {
  std::vector<RawClient> gone;
  for (int i = 0; i < 16; ++i) {
    gone.push_back(asks(i % 3 == 0 ? kStreamed : kWhole));
    if (i >= 4) gone[static_cast<std::size_t>(i) - 4].reset();
    if (i % 4 == 0) expect_whole(asks(kWhole).read_answer());
  }
  gone.clear();
  while (!has_metric("stemma_answers_in_flight 0")) {
  }
  expect_whole(asks(kWhole).read_answer());
  EXPECT_EQ(server_.stop(), 0);
}

// The answers in flight are written before the server ends, or cut off by the second signal.
TEST_F(LongAnswers, LetTheServerEnd) {
  std::vector<RawClient> clients;
  for (int i = 0; i < 8; ++i) clients.push_back(asks(i % 2 == 0 ? kWhole : kStreamed));
  expect_whole(clients.front().read_answer());
  EXPECT_EQ(server_.stop(), 0);
}

}  // namespace
}  // namespace stemma
