// A server with a scripted service on a thread of its own: what the tests of this room talk to.
//
// Thread:     the fixture: the test's; the script and the service: the server's.
// Memory:     what was said.
// Cost:       none.
// Not here:   the client (raw_client); waiting longer than kPatience; sleeping.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "http/http_server.h"
#include "http/raw_client.h"

namespace stemma {

// Answers as the test says, and remembers what it was told.
class ScriptedService final : public HttpService {
 public:
  using Script = std::function<void(HttpServer&, ExchangeId, const HttpRequest&)>;

  struct Begun {
    ExchangeId exchange;
    HttpRequest request;
  };

  explicit ScriptedService(Script script) : script_(std::move(script)) {}
  void serve(HttpServer& server) { server_ = &server; }

  // Of requests at /unwanted no body is read.
  std::optional<HttpResponse> refusal(const HttpRequest& head) override {
    if (head.path != "/unwanted") return std::nullopt;
    return HttpResponse{.status = 401, .body = "unread"};
  }
  HttpResponse error(const HttpRequest& head, int status, std::string_view why) override {
    HttpResponse error = http_error_response(status, why);
    error.headers.emplace_back("X-Path", head.path);
    return error;
  }
  void begin(ExchangeId exchange, HttpRequest&& request) override {
    {
      const std::lock_guard lock(mutex_);
      begun_.push_back({exchange, request});
    }
    changed_.notify_all();
    if (script_) script_(*server_, exchange, request);
  }
  void gone(ExchangeId exchange, GoneBy by) override {
    {
      const std::lock_guard lock(mutex_);
      gone_.push_back({exchange, by});
    }
    changed_.notify_all();
  }

  // The n-th request begun, from 0, once it is; fails the test if it does not come.
  Begun begun(std::size_t n) {
    std::unique_lock lock(mutex_);
    const bool came = changed_.wait_for(lock, kPatience, [&] { return begun_.size() > n; });
    EXPECT_TRUE(came) << "request " << n << " did not begin";
    return came ? begun_[n] : Begun();
  }
  // The n-th exchange gone, by `by`.
  ExchangeId gone_exchange(std::size_t n, GoneBy by = GoneBy::kClient) {
    std::unique_lock lock(mutex_);
    const bool came = changed_.wait_for(lock, kPatience, [&] { return gone_.size() > n; });
    EXPECT_TRUE(came) << "exchange " << n << " is not gone";
    if (!came) return ExchangeId();
    EXPECT_EQ(gone_[n].by, by) << "exchange " << n;
    return gone_[n].exchange;
  }
  std::size_t begun_count() const {
    const std::lock_guard lock(mutex_);
    return begun_.size();
  }
  std::size_t gone_count() const {
    const std::lock_guard lock(mutex_);
    return gone_.size();
  }

 private:
  Script script_;
  HttpServer* server_ = nullptr;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Begun> begun_;
  struct Gone {
    ExchangeId exchange;
    GoneBy by;
  };
  std::vector<Gone> gone_;
};

// Answers at once with what was asked: "GET /path?query body".
inline void answer_with_request(HttpServer& server, ExchangeId exchange,
                                const HttpRequest& request) {
  HttpResponse response;
  response.content_type = "text/plain";
  response.body = request.method + " " + request.path;
  if (!request.query.empty()) response.body += "?" + request.query;
  if (!request.body.empty()) response.body += " " + request.body;
  server.respond(exchange, std::move(response));
}
// Answers nothing.
inline void stay_silent(HttpServer&, ExchangeId, const HttpRequest&) {}

// Metrics by name.
class CollectedMetrics final : public MetricVisitor {
 public:
  void counter(std::string_view name, std::int64_t value) override { add(name, value); }
  void gauge(std::string_view name, std::int64_t value) override { add(name, value); }
  std::map<std::string, std::int64_t, std::less<>> values;

 private:
  void add(std::string_view name, std::int64_t value) {
    EXPECT_TRUE(values.emplace(name, value).second) << name << " twice";
  }
};

// A server that runs until it is destroyed.
class RunningServer {
 public:
  explicit RunningServer(ScriptedService::Script script, const HttpLimits& limits = {})
      : service_(std::move(script)) {
    HttpServerOptions options;
    options.port = 0;
    options.limits = limits;
    options.time_s = [] { return 784'111'777; };
    auto server = HttpServer::open(options, service_);
    EXPECT_TRUE(server.ok()) << (server.ok() ? "" : server.error().detail);
    server_ = std::move(server).value();
    service_.serve(*server_);
    thread_ = std::jthread([this] {
      try {
        server_->run();
      } catch (const std::out_of_range&) {  // of work that a test posted
      }
      returned_.set_value();
    });
  }
  ~RunningServer() { server_->drain(std::chrono::microseconds(0)); }

  HttpServer& server() { return *server_; }
  ScriptedService& service() { return service_; }
  RawClient client(int receive_buffer_bytes = 0) {
    RawClient client(receive_buffer_bytes);
    EXPECT_TRUE(client.connect(server_->port()));
    return client;
  }
  // Runs `work` on the I/O thread and waits for it.
  void on_io(const std::function<void()>& work) {
    std::promise<void> done;
    server_->post([&] {
      work();
      done.set_value();
    });
    EXPECT_EQ(done.get_future().wait_for(kPatience), std::future_status::ready);
  }
  std::int64_t metric(std::string_view name) {
    CollectedMetrics metrics;
    on_io([&] { server_->visit_metrics(metrics); });
    const auto found = metrics.values.find(name);
    EXPECT_NE(found, metrics.values.end()) << name;
    return found == metrics.values.end() ? -1 : found->second;
  }
  // Waits until a metric has such a value; fails the test if that does not come.
  void wait_for_metric(std::string_view name, const std::function<bool(std::int64_t)>& is_there) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!is_there(metric(name))) {
      if (std::chrono::steady_clock::now() > end) {
        ADD_FAILURE() << name << " is " << metric(name);
        return;
      }
    }
  }
  // Whether `run` returns.
  bool run_returns() { return run_end_.wait_for(kPatience) == std::future_status::ready; }

 private:
  ScriptedService service_;
  std::unique_ptr<HttpServer> server_;
  std::promise<void> returned_;
  std::future<void> run_end_ = returned_.get_future();
  std::jthread thread_;
};

}  // namespace stemma
