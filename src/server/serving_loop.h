// ServingLoop: the engine's thread: takes jobs from other threads, steps the engine, and gives the
// texts that came of each step to whoever passes them on.
//
// Thread:     submit, cancel, ask and stop from any; the sink is called on the loop's own thread,
//             once a step at most.
// Memory:     a queue of messages_max, and what each request in flight holds back of its text.
// Cost:       one lock a job; the text of a token.
// Not here:   HTTP and JSON (answers, api_service), what is computed when (Engine).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/bounded_queue.h"
#include "base/clock.h"
#include "engine/text_generation.h"
#include "http/http_server.h"
#include "openai/completion_answer.h"
#include "openai/thoughts.h"
#include "server/prompt_tally.h"
#include "server/step_health.h"
#include "server/token_chances.h"
#include "stemma/engine.h"

namespace stemma {

// Answers to one prompt: RequestSpec::copies of them.
struct PromptJob {
  RequestSpec spec;
  TextRules text;
  // Where its spec has prompt_logprobs: reads the prompt's tokens from prompt_logprobs_from on.
  // Made by who submits, as it takes a while to come there.
  std::optional<TokenChances> of_prompt;
  bool wants_tokens = false;  // updates say which tokens came
  bool tells_end = false;     // also the chance of a stop token that is not shown
  ThoughtPlace thoughts = ThoughtPlace::kBehind;  // that are taken out of the text
  ThoughtMarks thought_marks = {};                // what is around them
  bool has_form = false;                          // behind them
};

// What one exchange asks of the engine. Its answers are numbered over all prompts.
struct AnswerJob {
  ExchangeId exchange;
  // Updates come as tokens do; else one for each answer, at its end, and where the first to a
  // prompt goes on behind its first token, before it one with what the prompt cost and no token.
  bool in_pieces = false;
  std::vector<PromptJob> prompts;
};

// The same once an engine has prepared what it asks for.
struct ReadyPrompt {
  Result<PreparedRequest> request;  // or why the engine refuses it
  PromptJob job;                    // without its spec
  std::int64_t copies = 1;
  std::int64_t prompt_logprobs = 0;            // of each token, beside its own
  std::optional<ThoughtReader> thoughts = {};  // of an answer that may have some
};

struct ReadyJob {
  ExchangeId exchange;
  bool in_pieces = false;
  std::vector<ReadyPrompt> prompts;
};

// Any thread. Takes as long as Engine::prepare does of its prompts.
// REQUIRES: of_prompt wherever a spec has prompt_logprobs.
ReadyJob make_ready(const Engine& engine, AnswerJob&& job);

// What one step, or refusing it, brought to one answer.
struct AnswerUpdate {
  ExchangeId exchange;
  std::int64_t index = 0;            // which answer of the exchange
  std::string text;                  // that is certain now
  std::string thoughts = {};         // that came before it
  std::vector<TokenChance> chances;  // where logprobs were asked for
  // The next ones of the prompt, where RequestSpec::prompt_logprobs asked for them, behind those of
  // which nothing is told: in updates of the first of its answers that say nothing else, before any
  // that do.
  std::vector<TokenChance> of_prompt = {};
  std::vector<TokenId> tokens;  // where PromptJob::wants_tokens; no stop token that is hidden
  bool is_first = false;        // it has a first token, and no update came before
  FinishReason finish = FinishReason::kNone;
  StopReason stop_reason = {};      // where finish is kStop
  std::int64_t output_tokens = 0;   // of the answer, so far
  std::int64_t thought_tokens = 0;  // with the end: of the answer's tokens
  RequestStats stats;               // with the first token, as far as known then; and with the end
  Error error;                      // where finish is kFailed
};

class ServingLoop {
 public:
  // Prompts of one job, at most.
  static constexpr std::int64_t kPromptsMax = 128;

  using Sink = std::function<void(std::vector<AnswerUpdate>&&)>;
  using Question = std::function<void(Engine&)>;
  // Called on the loop's thread after each turn, idle ones included.
  using AfterTurn = std::function<void(Engine&)>;
  // True when it has seen what it looks for.
  using Watch = std::function<bool(Engine&)>;

  struct Options {
    std::int64_t messages_max = 4096;
    // How long the end waits for pages on their way to lower tiers, at most.
    std::chrono::microseconds settle_time = std::chrono::seconds(30);
    // A turn that takes as long is one that may never end.
    std::chrono::microseconds stall_time = std::chrono::minutes(10);
    AfterTurn after_turn = {};  // may be empty
  };

  // All must outlive this. Nobody else steps the engine while it lives.
  // REQUIRES: EngineOptions::inbox_max >= kPromptsMax.
  ServingLoop(Engine& engine, const Tokenizer& tokenizer, const Options& options, Sink sink);
  // As stop, and waits for the thread.
  ~ServingLoop();
  ServingLoop(const ServingLoop&) = delete;
  ServingLoop& operator=(const ServingLoop&) = delete;

  // Whether the job was taken: each of its answers then ends with exactly one update whose finish
  // is not kNone. False if messages_max wait, or the loop is stopping.
  // REQUIRES: 1 to kPromptsMax prompts, made ready by this engine.
  [[nodiscard]] bool submit(ReadyJob&& job);
  // Ends the answers of an exchange that have not ended, with kCancelled; none: nothing happens.
  // However many messages wait: each exchange is given up once or twice.
  void cancel(ExchangeId exchange);
  // Runs `question` between two steps, on the loop's own thread.
  [[nodiscard]] bool ask(Question question);

  // Whose request it is, if it has not ended. In a question only.
  std::optional<ExchangeId> exchange_of(RequestId request) const;
  // Since the start. In a question only.
  const PromptTally& prompts() const noexcept { return prompts_; }
  // Runs `watch` between steps, again and again until it is true.
  [[nodiscard]] bool watch(Watch watch);

  // Takes nothing more; ends when the answers in flight have ended, and settles the cache.
  void stop();

  // Answers submitted that have not ended.
  std::int64_t answers_in_flight() const noexcept { return answers_in_flight_.load(); }
  // Generated since the start, of answers that go on too.
  std::int64_t output_tokens() const noexcept { return output_tokens_.load(); }
  // What is wrong, in a word: "stalled" while a turn has lasted for stall_time, "failing" where the
  // last steps all failed, until lately; empty: nothing.
  std::string_view fault() const;

 private:
  // One request of the engine.
  struct Live {
    ExchangeId exchange;
    std::int64_t index = 0;
    bool wants_tokens = false;
    bool tells_end = false;
    bool in_pieces = false;
    bool shows_stop = false;
    bool is_copy = false;  // of an answer to the same prompt
    AnswerUpdate kept;     // where it does not come in pieces
    std::int64_t output_tokens = 0;
    TokenChances chances;
    std::optional<TokenChances> of_prompt;
    std::size_t entries_of_prompt = 1;  // a token
    TextGeneration text;
    std::optional<ThoughtReader> thoughts;    // of an answer that may have some
    std::int64_t thought_tokens = 0;          // while it may think
    std::vector<TokenChance> undecided = {};  // of tokens that may be thoughts, or text
  };
  struct Message {
    ReadyJob job;  // of no prompts: something else
    ExchangeId cancelled;
    Question question;
    Watch watch;
  };

  void run();
  bool take_messages();
  void look();
  void start(ReadyJob&& job);
  // Where an answer belongs, and how it is passed on.
  struct Origin {
    ExchangeId exchange;
    bool in_pieces = false;
    std::int64_t first_index = 0;
  };
  void start_prompt(const Origin& origin, ReadyPrompt&& prompt);
  void refuse(const Origin& origin, std::int64_t copies, const Error& error);
  void pass_on(AnswerUpdate&& update, Live& live);
  void cancel_now(ExchangeId exchange);
  void cancel_late();
  void cancel_request(RequestId request);
  void take_text(const EngineEvent& event, Live& live, AnswerUpdate& update);
  static void take_thoughts(const EngineEvent& event, Live& live, AnswerUpdate& update);
  void take(const EngineEvent& event);
  AnswerUpdate& add_update(ExchangeId exchange, std::int64_t index);
  void take_scores(const EngineEvent& event, Live& live);
  void end(RequestId request);
  void deliver();

  Engine& engine_;
  const Tokenizer& tokenizer_;
  Options options_;
  Sink sink_;
  BoundedQueue<Message> messages_;
  std::unordered_map<RequestId, Live> live_;
  std::unordered_map<ExchangeId, std::vector<RequestId>> requests_of_;
  std::vector<RequestId> late_cancels_;  // of requests that no step had seen when they were asked
  std::vector<Watch> watches_;
  std::vector<AnswerUpdate> updates_;  // of this turn
  PromptTally prompts_;
  std::atomic<std::int64_t> answers_in_flight_ = 0;
  std::atomic<std::int64_t> output_tokens_ = 0;
  MonotonicClock clock_;
  StepHealth health_;
  std::atomic<bool> stopping_ = false;
  std::jthread thread_;
};

}  // namespace stemma
