// `stemma serve`: a model behind an OpenAI-compatible HTTP interface.
//
// Thread:     main waits for signals; the server's I/O thread is its own.
// Memory:     that of the server.
// Cost:       none of its own.
// Not here:   the server (server/).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/model_flags.h"
#include "server/server.h"

namespace stemma {

class EndSignals;
class RequestCapture;

class ServeCommand final : public Command {
 public:
  explicit ServeCommand(Flags& program);
  bool chosen() const override { return command_.parsed(); }
  Status run() override;

 private:
  void add_event_flags();
  Result<ServerOptions> server_options() const;
  Result<EventPublisherOptions> event_options() const;
  Status check_adapter_folder() const;
  Result<ServedModelOptions> model_options();
  // The capture is begun once there is a server.
  Status serve(ServedModel& served, const ServerOptions& options, EndSignals& signals,
               RequestCapture& capture) const;

  ModelFlags model_flags_;
  std::string host_ = "127.0.0.1";
  int port_ = 8080;
  std::string model_name_;
  std::string key_file_;
  std::string shared_prefix_file_;
  std::vector<std::string> allowed_origins_;
  std::string adapter_folder_;
  std::optional<std::int64_t> tenant_pages_;
  std::int64_t queue_ = 1024;
  std::int64_t connections_ = 16384;
  double drain_s_ = 30;
  double stall_s_ = 600;
  std::string events_;  // empty: none are published
  std::string events_replay_;
  std::string events_form_ = "arrays";
  std::string events_hashes_ = "unsigned";
  std::string capture_;  // empty: none
  std::vector<std::string> metrics_compat_;
  std::string log_format_ = "text";
  Flags command_;
};

}  // namespace stemma
