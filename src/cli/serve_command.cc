#include "cli/serve_command.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/machine_entropy.h"
#include "cli/bundled_model.h"
#include "cli/ranked_run.h"
#include "cli/request_capture.h"
#include "cli/written_files.h"
#include "engine/named_flag.h"
#include "events/event_endpoint.h"
#include "http/http_server.h"
#include "stemma/log.h"

namespace stemma {

// Signals that end a server, and the one by which it says that it has ended. While it loads, which
// may take minutes, nothing is in flight and nothing to be settled: a signal ends the process at
// once, on a thread that waits for it.
class EndSignals {
 public:
  // From now on they end the process. REQUIRES: no other thread has been started.
  EndSignals() {
    sigemptyset(&set_);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, kEnded}) sigaddset(&set_, signal);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    if (is_ignored(SIGHUP)) sigdelset(&set_, SIGHUP);  // under nohup
    loading_ = std::jthread([this] { end_while_loading(); });
  }
  ~EndSignals() { hold(); }

  // From now on they wait to be asked for.
  void hold() {
    if (!loading_.joinable()) return;
    held_ = true;
    kill(getpid(), kEnded);  // wakes the thread
    loading_.join();
  }

  // Waits for the next one; none if the server has ended. REQUIRES: hold() was called.
  std::optional<int> wait() const {
    for (;;) {
      const int signal = next();
      if (signal != kEnded) return signal;
      if (ended_) return std::nullopt;  // else it was somebody else's
    }
  }

  void say_ended() {
    ended_ = true;
    kill(getpid(), kEnded);
  }

 private:
  static constexpr int kEnded = SIGUSR1;

  // REQUIRES: it is blocked.
  static bool is_ignored(int signal) {
    const auto how = ::signal(signal, SIG_DFL);
    ::signal(signal, how);
    return how == SIG_IGN;
  }

  int next() const {
    int signal = 0;
    while (sigwait(&set_, &signal) != 0) continue;
    return signal;
  }

  void end_while_loading() const {
    for (;;) {
      const int signal = next();
      if (held_) {
        if (signal != kEnded) kill(getpid(), signal);  // it is wait's
        return;
      }
      if (signal != kEnded) end_by(signal);
    }
  }

  // As if the signal had not been blocked, nor ignored, as shells have it of what runs behind them.
  static void end_by(int signal) {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, signal);
    ::signal(signal, SIG_DFL);
    raise(signal);
    pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
    _exit(128 + signal);  // of the first process of a container, which signals do not end
  }

  sigset_t set_;
  std::atomic<bool> ended_ = false;
  std::atomic<bool> held_ = false;
  std::jthread loading_;
};

namespace {

// Evicted pages that receipts can tell of: one MiB.
constexpr std::int64_t kEvictedMarks = 1 << 16;

// Changed pages that wait for the thread that publishes them: a few steps' worth.
constexpr std::int64_t kEventPages = 1 << 16;

constexpr std::chrono::microseconds kForever = std::chrono::microseconds::max();

std::chrono::microseconds microseconds_of(double seconds) {
  return std::chrono::microseconds(static_cast<std::int64_t>(seconds * 1e6));
}

// As URLs have it.
std::string host_of(const std::string& address) {
  return address.find(':') == std::string::npos ? address : "[" + address + "]";
}

// Of "." and "..", too.
std::string last_part(const std::string& directory) {
  std::error_code unknown;
  const auto path = std::filesystem::absolute(directory, unknown).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

}  // namespace

ServeCommand::ServeCommand(Flags& program)
    : command_(program.add_command("serve", "Serve a model to OpenAI's clients over HTTP")) {
  model_flags_.add_to(command_).description(
      "directory of config.json, *.safetensors, tokenizer.json; default: the bundled model");
  command_.add("--host", host_, "address to listen on").capture_default_str();
  command_.add("--port", port_, "0: any that is free").check_range(0, 65535).capture_default_str();
  command_.add("--model-name", model_name_, "what clients call it; default: its directory");
  command_.add(
      "--api-keys", key_file_,
      "FILE of lines: tenant sha256-of-key [admin] [pages=N]; a tenant keeps N pages of the device "
      "while others want pages; without FILE everybody may ask, as one tenant");
  command_
      .add("--allowed-origins", allowed_origins_,
           "pages of these may ask from a browser and read the answers, such as "
           "https://chat.example; *: all; default: the server's own. Without --api-keys others are "
           "refused")
      .delimiter(',');
  command_
      .add("--tenant-pages", tenant_pages_,
           "N pages for each tenant of --api-keys without pages=N; default: none")
      .check_range(std::int64_t{1}, std::int64_t{1} << 30)
      .needs("--api-keys");
  command_.add("--shared-prefixes", shared_prefix_file_,
               "FILE of lines {\"messages\": [...]} or {\"prompt\": \"...\"}: beginnings "
               "that tenants share");
  command_.add(
      "--adapters-from", adapter_folder_,
      "DIR: POST /v1/load_lora_adapter loads adapters from below it while the server runs");
  command_.add("--queue", queue_, "answers that wait or run, at most; beyond it 429")
      .check_range(1, 1'000'000)
      .capture_default_str();
  command_.add("--connections", connections_, "open at a time, at most")
      .check_range(1, 1'000'000)
      .capture_default_str();
  add_event_flags();
  command_.add("--capture", capture_,
               "FILE for `stemma replay --format capture`: what was asked, as hashes, no text");
  command_
      .add("--metrics-compat", metrics_compat_,
           "vllm, sglang: also export metrics under the names of these engines")
      .delimiter(',')
      .check_member({"vllm", "sglang"});
  command_.add("--log", log_format_, "text, or json: one object a line")
      .check_member({"text", "json"})
      .capture_default_str();
  command_
      .add("--drain-s", drain_s_,
           "seconds that answers in flight may still take after SIGTERM, SIGINT or SIGHUP; a "
           "second SIGTERM or SIGINT cuts them off")
      .check_range(0.0, 86400.0)
      .capture_default_str();
  command_
      .add("--stall-s", stall_s_,
           "seconds after which /health takes a step that has not ended for one that never will; "
           "0: it waits for ever")
      .check_range(0.0, 86400.0)
      .capture_default_str();
}

void ServeCommand::add_event_flags() {
  command_
      .add("--events", events_,
           "publish KV events for routers over ZeroMQ, such as at tcp://*:5557, or "
           "tcp://[::]:5557 where there is IPv6")
      .check(check_event_endpoint);
  command_
      .add("--events-replay", events_replay_,
           "where subscribers ask for events that they missed, such as tcp://*:5558")
      .check(check_event_endpoint);
  command_.add("--events-form", events_form_, "arrays maps: how an event is written")
      .check_member({"arrays", "maps"})
      .needs("--events")
      .capture_default_str();
  command_.add("--events-hashes", events_hashes_, "unsigned signed bytes: page keys in events")
      .check_member({"unsigned", "signed", "bytes"})
      .needs("--events")
      .capture_default_str();
}

Result<EventPublisherOptions> ServeCommand::event_options() const {
  if (events_.empty()) return Error{ErrorCode::kInvalidArgument, "--events-replay needs --events"};
  EventPublisherOptions options;
  options.endpoint = events_;
  options.replay_endpoint = events_replay_;
  options.wire.form = events_form_ == "maps" ? EventForm::kByName : EventForm::kByPosition;
  options.wire.hashes = events_hashes_ == "signed"  ? HashForm::kSigned
                        : events_hashes_ == "bytes" ? HashForm::kBytes
                                                    : HashForm::kUnsigned;
  return options;
}

Result<ServedModelOptions> ServeCommand::model_options() {
  if (model_flags_.directory().empty()) model_flags_.set_directory(find_bundled_model());
  if (model_flags_.directory().empty()) {
    return Error{ErrorCode::kInvalidArgument, "--model is wanted: no bundled model was found"};
  }
  STEMMA_ASSIGN_OR_RETURN(ServedModelOptions options, model_flags_.options());
  CommandFiles files = model_flags_.files();
  files.read.push_back({"--api-keys", key_file_});
  files.read.push_back({"--shared-prefixes", shared_prefix_file_});
  files.written.push_back({"--capture", capture_});
  STEMMA_RETURN_IF_ERROR(check_apart(files));
  options.engine.sampling_seed = machine_entropy();
  options.engine.scheduler.waiting_max = queue_;
  options.engine.kv.evicted_marks = kEvictedMarks;
  if (!events_.empty()) options.engine.kv.events_pages_max = kEventPages;
  options.engine.inbox_max = queue_ + ServingLoop::kPromptsMax;
  return options;
}

Status ServeCommand::check_adapter_folder() const {
  std::error_code unknown;
  if (adapter_folder_.empty() || std::filesystem::is_directory(adapter_folder_, unknown)) return {};
  return Error{ErrorCode::kInvalidArgument,
               "--adapters-from: " + adapter_folder_ + " is no directory"};
}

Result<ServerOptions> ServeCommand::server_options() const {
  ServerOptions options;
  options.http.address = host_;
  options.http.port = static_cast<std::uint16_t>(port_);
  options.http.limits.connections_max = connections_;
  options.http.limits.in_flight_max = queue_ + 1024;
  options.loop.messages_max = 2 * queue_ + 4096;
  options.loop.stall_time = stall_s_ > 0 ? microseconds_of(stall_s_) : kForever;
  options.api.answers_max = queue_;
  options.shared_prefix_file = shared_prefix_file_;
  STEMMA_RETURN_IF_ERROR(check_adapter_folder());
  options.api.adapter_folder = adapter_folder_;
  auto origins = OriginRules::of(allowed_origins_, is_loopback(host_));
  if (!origins.ok()) return named("--allowed-origins", origins.error());
  options.api.origins = std::move(origins).value();
  options.api.preparing_max = queue_ + 1024;
  options.api.model_name = model_name_.empty() ? last_part(model_flags_.directory()) : model_name_;
  if (!events_.empty() || !events_replay_.empty()) {
    STEMMA_ASSIGN_OR_RETURN(options.events, event_options());
  }
  const auto speaks = [&](std::string_view engine) {
    return std::find(metrics_compat_.begin(), metrics_compat_.end(), engine) !=
           metrics_compat_.end();
  };
  options.api.metrics_compat = {.vllm = speaks("vllm"), .sglang = speaks("sglang")};
  if (!key_file_.empty()) {
    auto keys = KeyBook::load(key_file_);
    if (!keys.ok()) return named("--api-keys", keys.error());
    options.api.keys = std::move(keys).value();
    options.api.tenant_pages = tenant_pages_;
  }
  return options;
}

Status ServeCommand::run() {
  // Whoever reads what it logs may go: that costs the log, not the answers and the cache.
  ::signal(SIGPIPE, SIG_IGN);
  EndSignals signals;
  if (log_format_ == "json") set_log_format(LogFormat::kJson);
  STEMMA_ASSIGN_OR_RETURN(const std::unique_ptr<RankGroup> ranks, model_flags_.open_ranks());
  Result<ServedModelOptions> model_options = this->model_options();
  const auto device = model_flags_.open_device(ranks.get());
  if (follows(ranks.get())) {
    signals.hold();  // rank 0 ends it
    return follow(std::move(model_options), device, *ranks);
  }
  if (!model_options.ok()) return told(ranks.get(), model_options.error());
  Result<ServerOptions> options = server_options();
  if (!options.ok()) return told(ranks.get(), options.error());
  if (!device.ok()) return told(ranks.get(), device.error());
  model_options->backend = device->get();
  model_options->ranks = ranks.get();
  STEMMA_ASSIGN_OR_RETURN(const std::unique_ptr<ServedModel> model,
                          ServedModel::open(*model_options));
  RequestCapture capture(model_flags_.page_size());
  if (!capture_.empty()) options->observer_or_null = &capture;
  STEMMA_RETURN_IF_ERROR(serve(*model, *options, signals, capture));
  return capture.close();
}

Status ServeCommand::serve(ServedModel& served, const ServerOptions& options, EndSignals& signals,
                           RequestCapture& capture) const {
  STEMMA_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server, Server::open(options, served));
  // Not before: what cannot be served is no reason to empty the file of an earlier life.
  if (!capture_.empty()) STEMMA_RETURN_IF_ERROR(capture.open(capture_));
  signals.hold();
  std::jthread serving([&server, &signals] {
    server->run();
    signals.say_ended();
  });
  std::cout << fmt::format("stemma: {} on http://{}:{}", options.api.model_name, host_of(host_),
                           server->port())
            << std::endl;
  if (const EventPublisher* const events = server->events_or_null()) {
    std::cout << fmt::format("stemma: events at {} {}", events->endpoint(),
                             events->replay_endpoint())
              << std::endl;
  }
  std::optional<std::chrono::microseconds> drain = microseconds_of(drain_s_);
  while (const auto signal = signals.wait()) {
    // Where a terminal closes, its system says so, and its shell once more.
    if (*signal == SIGHUP && !drain.has_value()) continue;
    server->drain(drain.value_or(std::chrono::microseconds(0)));
    drain.reset();
  }
  return {};
}

}  // namespace stemma
