// Inbox: what other threads ask of the engine thread, in the order in which they asked.
//
// Submissions and cancels share one queue, so that a cancel never overtakes its request.
//
// Thread:     try_post and wait from any thread, try_take from the engine thread.
// Memory:     inbox_max messages, and the prompts inside them.
// Cost:       one lock a message.
// Not here:   checking requests (Engine::submit), outputs (events of a step).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/bounded_queue.h"
#include "engine/noted_purges.h"
#include "model/adapter_book.h"
#include "stemma/engine.h"

namespace stemma {

struct InboxMessage {
  RequestId id = {};                     // given as it is posted
  std::optional<RequestSpec> spec = {};  // a submission; without it, a cancel
  // Of a submission of several copies: the prompts of all but the first, with room for outputs.
  std::vector<std::vector<TokenId>> other_prompts = {};
  std::vector<TokenId> distinct_prompt = {};  // where penalties are of it: its tokens, each once
  AdapterLease adapter = {};                  // of a submission
  std::int64_t submitted_us = 0;              // when that was begun
};

class Inbox {
 public:
  explicit Inbox(std::int64_t messages_max) : messages_(messages_max) {}

  // False, and `message` unchanged, if messages_max wait.
  bool try_post(InboxMessage&& message) { return messages_.try_push(std::move(message)); }
  std::optional<InboxMessage> try_take() { return messages_.try_pop(); }
  void wait(std::chrono::microseconds time) { messages_.wait_for_item(time); }

  // Engine thread: purges since the last time that nothing was left to take.
  NotedPurges& purges() { return purges_; }

  bool empty() const { return messages_.items() == 0; }
  std::int64_t messages_max() const noexcept { return messages_.items_max(); }

 private:
  BoundedQueue<InboxMessage> messages_;
  NotedPurges purges_;
};

}  // namespace stemma
