// Server: a served model behind HTTP: the pieces put together, started and ended in order.
//
// Thread:     open, run and the destructor: one; drain: any.
// Memory:     that of its parts.
// Cost:       none of its own.
// Not here:   paths (api_service), sockets (http/), the model (engine/served_model).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "engine/served_model.h"
#include "events/event_publisher.h"
#include "http/http_server.h"
#include "server/api_service.h"
#include "server/serving_loop.h"
#include "stemma/engine.h"
#include "stemma/result.h"

namespace stemma {

struct ServerOptions {
  HttpServerOptions http;
  ApiOptions api;
  ServingLoop::Options loop;
  // A file of beginnings of texts that every tenant may share (shared_prefixes.h); empty: none.
  std::string shared_prefix_file = {};
  // KV events for who routes requests; they need KvCacheOptions::events_pages_max.
  std::optional<EventPublisherOptions> events;
  // Is told of every request, and outlives the server; nullptr: nobody is.
  RequestObserver* observer_or_null = nullptr;
};

class Server {
 public:
  // Clients may connect from now on, and are answered once it runs. `model` must outlive it.
  static Result<std::unique_ptr<Server>> open(const ServerOptions& options, ServedModel& model);
  // REQUIRES: nobody is in `run`.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::uint16_t port() const { return http_->port(); }
  // Where events are published; nullptr: nowhere.
  const EventPublisher* events_or_null() const { return events_or_null_.get(); }

  // Serves on the calling thread until drain is called and done. Then the cache is settled.
  void run();

  // Any thread, any number of times: takes no more requests; those in flight may end within `time`,
  // and are then cut off.
  void drain(std::chrono::microseconds time);

 private:
  Server(const ServerOptions& options, ServedModel& model, std::unique_ptr<Engine> engine);

  std::unique_ptr<Engine> engine_;
  ApiService service_;
  MonotonicClock clock_;
  std::unique_ptr<EventPublisher> events_or_null_;
  std::unique_ptr<HttpServer> http_;
  std::optional<ServingLoop> loop_;  // steps engine_ and posts to http_: first to end
};

}  // namespace stemma
