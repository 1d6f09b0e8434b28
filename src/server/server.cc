#include "server/server.h"

#include <string>
#include <string_view>
#include <utility>

namespace stemma {
namespace {

Error named(std::string_view flag, const Error& error) {
  return {error.code, std::string(flag) + ": " + error.detail, error.sys_errno};
}

}  // namespace

Result<std::unique_ptr<Server>> Server::open(const ServerOptions& options, ServedModel& model) {
  if (model.adapters().find(options.api.model_name)) {
    return Error{ErrorCode::kInvalidArgument,
                 "--adapter: '" + options.api.model_name + "' is what the model itself is called"};
  }
  STEMMA_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine,
                          model.open_engine(nullptr, options.observer_or_null));
  auto server = std::unique_ptr<Server>(new Server(options, model, std::move(engine)));
  if (!options.shared_prefix_file.empty()) {
    const Status shared = server->service_.share_prefixes(options.shared_prefix_file);
    if (!shared.ok()) return named("--shared-prefixes", shared.error());
  }
  STEMMA_RETURN_IF_ERROR(server->service_.give_quotas(*server->engine_));
  auto http_or_error = HttpServer::open(options.http, server->service_);
  if (!http_or_error.ok()) {
    const bool is_address = http_or_error.error().code != ErrorCode::kInvalidArgument;
    return is_address ? http_or_error.error() : named("--host", http_or_error.error());
  }
  server->http_ = std::move(http_or_error).value();
  if (options.events.has_value()) {
    STEMMA_ASSIGN_OR_RETURN(server->events_or_null_,
                            EventPublisher::open(*options.events, server->clock_));
  }
  ServingLoop::Options loop = options.loop;
  loop.after_turn = [&model, events = server->events_or_null_.get()](Engine& stepped) {
    model.drop_ended_adapters();
    if (events == nullptr) return;
    events->pump([&](PrefixEventSink& sink) { stepped.drain_kv_events(sink); },
                 [&] { stepped.resend_kv_events(); });
  };
  HttpServer* const http = server->http_.get();
  ApiService* const service = &server->service_;
  server->loop_.emplace(*server->engine_, model.tokenizer(), loop,
                        [http, service](std::vector<AnswerUpdate>&& updates) {
                          http->post([service, updates = std::move(updates)]() mutable {
                            service->take(std::move(updates));
                          });
                        });
  server->service_.attach(*http, *server->loop_, server->events_or_null_.get());
  return server;
}

Server::Server(const ServerOptions& options, ServedModel& model, std::unique_ptr<Engine> engine)
    : engine_(std::move(engine)), service_(model, *engine_, options.api) {}

// The service's work thread may still prepare requests of clients that are gone: it ends before
// what it posts to.
Server::~Server() {
  service_.stop_loading();
  service_.stop_preparing();
}

// What is still prepared is for nobody: the cache is not settled later for it.
void Server::run() {
  http_->run();
  service_.stop_loading();
  loop_.reset();
  service_.stop_preparing();
}

void Server::drain(std::chrono::microseconds time) {
  http_->drain(time);
}

}  // namespace stemma
