// The server as a whole, in one process: what its end waits for.
#include "server/server.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/temp_directory.h"
#include "http/raw_client.h"
#include "model/random_model.h"
#include "stemma/log.h"

namespace stemma {
namespace {

// A request stands still while it is prepared, as one does whose text takes long: its chat template
// asks for the date, and nobody says it before `let_go`.
class ServerTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(
        write_random_model(directory_.path(), {.config = tiny_model_config("llama2")}).ok());
    std::ofstream(directory_.file("chat_template.jinja"))
        << "{{ strftime_now('%Y') }}{{ messages[0].content }}";
    ServedModelOptions options;
    options.directory = directory_.path();
    options.kv_bytes = std::int64_t{1} << 20;
    options.tiers.host_bytes = std::int64_t{1} << 20;
    options.tiers.host_file = directory_.file("host");
    options.time_s = [this] {
      stands_.set_value();
      let_go_.get_future().wait();
      return std::int64_t{0};
    };
    auto model = ServedModel::open(options);
    ASSERT_TRUE(model.ok()) << to_string(model.error());
    model_ = std::move(model).value();
    ServerOptions serving;
    serving.http.port = 0;
    auto server = Server::open(serving, *model_);
    ASSERT_TRUE(server.ok()) << to_string(server.error());
    server_ = std::move(server).value();
    set_log_sink([this](LogLevel, std::string_view line) {
      if (line.starts_with("tier.host_file.saved")) settled_.set_value();
    });
    serving_ = std::jthread([this] { server_->run(); });
  }
  void TearDown() override {
    if (server_ != nullptr) server_->drain(std::chrono::microseconds(0));
    set_log_sink({});
  }

  // A client that has asked for this.
  RawClient asks(const std::string& path, const std::string& body) const {
    RawClient client;
    EXPECT_TRUE(client.connect(server_->port()));
    EXPECT_TRUE(client.send("POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: " +
                            std::to_string(body.size()) + "\r\n\r\n" + body));
    return client;
  }
  // Waits until a page says this, of the number of times that it was asked.
  template <typename Words>
  void wait_for(const std::string& path, Words words) const {
    RawClient client;
    ASSERT_TRUE(client.connect(server_->port()));
    for (int times = 1;; ++times) {
      ASSERT_TRUE(client.send("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n"));
      if (client.read_answer().body.find(words(times)) != std::string::npos) return;
    }
  }

  static bool comes(std::promise<void>& promise) {
    return promise.get_future().wait_for(kPatience) == std::future_status::ready;
  }

  TempDirectory directory_;
  std::promise<void> stands_;
  std::promise<void> let_go_;
  std::promise<void> settled_;
  std::unique_ptr<ServedModel> model_;
  std::unique_ptr<Server> server_;
  std::jthread serving_;
};

// Who ends a server may not wait as long: what it has cached is then in no lower tier.
TEST_F(ServerTest, SettlesWhileARequestThatWasCutOffIsStillPrepared) {
  const RawClient client =
      asks("/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}]})");
  EXPECT_TRUE(comes(stands_));
  server_->drain(std::chrono::microseconds(0));
  EXPECT_TRUE(comes(settled_));
  let_go_.set_value();
}

// A schema that takes a quarter of a second: each `number` is another.
std::string costly_schema(int number) {
  std::string schemas;
  for (int i = 0; i < 10; ++i) {
    schemas += std::string(i == 0 ? "" : ",") + R"({"type":"integer","multipleOf":)" +
               std::to_string(391 + 10 * number + i) + "}";
  }
  return R"({"anyOf":[)" + schemas + "]}";
}

TEST_F(ServerTest, AnswersShortRequestsWhileOthersBringNewForms) {
  std::vector<RawClient> others;
  for (int i = 0; i < 8; ++i) {
    others.push_back(asks("/v1/completions", R"({"max_tokens":1,"prompt":"a","guided_json":)" +
                                                 costly_schema(i) + "}"));
  }
  wait_for("/metrics", [](int own) {
    return "\nstemma_http_requests_total " + std::to_string(8 + own) + "\n";
  });
  RawClient client = asks("/v1/completions", R"({"max_tokens":1,"prompt":"a"})");
  EXPECT_EQ(client.read_answer().status, 200);
  EXPECT_FALSE(others.back().has_received());
}

TEST_F(ServerTest, WritesAnswersThatAreLongWhileMuchLongerOnesAreWritten) {
  const std::string prompt(240, 'a');
  RawClient much =
      asks("/v1/completions",
           R"({"max_tokens":1,"n":64,"prompt_logprobs":20,"prompt":")" + prompt + "\"}");
  wait_for("/health", [](int) { return R"("answers_in_flight":1})"; });
  RawClient client =
      asks("/v1/completions", R"({"max_tokens":100,"ignore_eos":true,"logprobs":5,"prompt":"a"})");
  EXPECT_EQ(client.read_answer().status, 200);
  EXPECT_FALSE(much.has_received());
}

}  // namespace
}  // namespace stemma
