// EventsCommand: `stemma events`, the KV events of a server as they come: this one's, vLLM's or
// SGLang's; and whether they make sense.
//
// Thread:     main.
// Memory:     with --check a page's text for each page that the server has.
// Cost:       the network's.
// Not here:   sockets (events/event_follower), order (events/event_stream).
#pragma once

#include <cstdint>
#include <string>

#include "cli/command.h"
#include "events/event_follower.h"

namespace stemma {

class EventsCommand final : public Command {
 public:
  explicit EventsCommand(Flags& program);
  bool chosen() const override { return command_.parsed(); }
  // Until so many batches have come, or it is interrupted. An error where they contradict.
  Status run() override;

 private:
  EventFollowerOptions options_;
  std::string medium_ = "GPU";
  std::int64_t batches_ = 0;
  bool json_ = false;
  bool check_ = false;
  Flags command_;
};

}  // namespace stemma
