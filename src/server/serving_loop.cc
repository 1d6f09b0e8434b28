#include "server/serving_loop.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace stemma {
namespace {

// How long an idle loop sleeps: what ends meanwhile waits as long to be seen, which is brief where
// transfers are under way, or somebody watches.
constexpr std::chrono::milliseconds kIdle(100);
constexpr std::chrono::milliseconds kIdleBriefly(5);

std::optional<ThoughtReader> reader_of(const PromptJob& prompt) {
  if (prompt.thoughts == ThoughtPlace::kBehind) return std::nullopt;
  return ThoughtReader(prompt.thoughts, prompt.has_form, prompt.thought_marks);
}

ReadyPrompt make_ready(const Engine& engine, PromptJob&& job) {
  STEMMA_CHECK(job.of_prompt.has_value() || !job.spec.prompt_logprobs.has_value(),
               "who asks for chances of a prompt makes what reads them");
  const std::int64_t copies = job.spec.copies;
  const std::int64_t prompt_logprobs = job.spec.prompt_logprobs.value_or(0);
  std::optional<ThoughtReader> thoughts = reader_of(job);
  Result<PreparedRequest> request = engine.prepare(std::exchange(job.spec, {}));
  return {.request = std::move(request),
          .job = std::move(job),
          .copies = copies,
          .prompt_logprobs = prompt_logprobs,
          .thoughts = std::move(thoughts)};
}

}  // namespace

ReadyJob make_ready(const Engine& engine, AnswerJob&& job) {
  ReadyJob ready = {.exchange = job.exchange, .in_pieces = job.in_pieces, .prompts = {}};
  ready.prompts.reserve(job.prompts.size());
  for (PromptJob& prompt : job.prompts) {
    ready.prompts.push_back(make_ready(engine, std::move(prompt)));
  }
  return ready;
}

ServingLoop::ServingLoop(Engine& engine, const Tokenizer& tokenizer, const Options& options,
                         Sink sink)
    : engine_(engine),
      tokenizer_(tokenizer),
      options_(options),
      sink_(std::move(sink)),
      messages_(options.messages_max) {
  STEMMA_CHECK_GE(engine.options().inbox_max, kPromptsMax);
  thread_ = std::jthread([this] { run(); });
}

ServingLoop::~ServingLoop() {
  stop();
}

bool ServingLoop::submit(ReadyJob&& job) {
  if (stopping_.load()) return false;
  std::int64_t answers = 0;
  for (const ReadyPrompt& prompt : job.prompts) answers += prompt.copies;
  STEMMA_CHECK(answers >= 1 && std::ssize(job.prompts) <= kPromptsMax, "1 to kPromptsMax prompts");
  answers_in_flight_ += answers;
  Message message;
  message.job = std::move(job);
  if (messages_.try_push(std::move(message))) return true;
  answers_in_flight_ -= answers;
  return false;
}

void ServingLoop::cancel(ExchangeId exchange) {
  Message message;
  message.cancelled = exchange;
  messages_.push_over(std::move(message));
}

bool ServingLoop::ask(Question question) {
  Message message;
  message.question = std::move(question);
  return messages_.try_push(std::move(message));
}

std::optional<ExchangeId> ServingLoop::exchange_of(RequestId request) const {
  const auto found = live_.find(request);
  return found == live_.end() ? std::nullopt : std::optional(found->second.exchange);
}

bool ServingLoop::watch(Watch watch) {
  Message message;
  message.watch = std::move(watch);
  return messages_.try_push(std::move(message));
}

void ServingLoop::stop() {
  stopping_.store(true);
  static_cast<void>(ask([](Engine&) {}));  // wakes it
}

void ServingLoop::run() {
  for (;;) {
    health_.begin(clock_.now_us());
    const bool had_messages = take_messages();
    if (engine_.idle() && !had_messages) {
      if (stopping_.load() && watches_.empty()) break;
      const bool awaited = engine_.kv().transfers_underway() || !watches_.empty();
      health_.end();
      messages_.wait_for_item(awaited ? kIdleBriefly : kIdle);
      health_.begin(clock_.now_us());
      take_messages();
    }
    for (const EngineEvent& event : engine_.step().events) take(event);
    const EngineTotals totals = engine_.totals();
    health_.note(totals.steps, totals.failed_steps, clock_.now_us());
    look();
    deliver();
    if (options_.after_turn) options_.after_turn(engine_);
  }
  health_.end();
  engine_.settle(options_.settle_time);
}

std::string_view ServingLoop::fault() const {
  const std::int64_t now_us = clock_.now_us();
  if (health_.is_stalled(now_us, options_.stall_time.count())) return "stalled";
  return health_.is_failing(now_us) ? "failing" : "";
}

void ServingLoop::look() {
  std::erase_if(watches_, [this](Watch& watch) { return watch(engine_); });
}

bool ServingLoop::take_messages() {
  bool any = false;
  cancel_late();
  // As many as the engine has room for: a flood of them cannot stop what runs.
  std::int64_t room = engine_.options().inbox_max;
  for (std::int64_t taken = 0; taken < options_.messages_max && room >= kPromptsMax; ++taken) {
    std::optional<Message> message = messages_.try_pop();
    if (!message.has_value()) break;
    any = true;
    if (!message->job.prompts.empty()) {
      room -= std::ssize(message->job.prompts);
      start(std::move(message->job));
    } else if (message->question) {
      message->question(engine_);
    } else if (message->watch) {
      watches_.push_back(std::move(message->watch));
    } else {
      cancel_now(message->cancelled);
    }
  }
  return any;
}

void ServingLoop::start(ReadyJob&& job) {
  Origin origin = {.exchange = job.exchange, .in_pieces = job.in_pieces};
  for (ReadyPrompt& prompt : job.prompts) {
    const std::int64_t copies = prompt.copies;
    start_prompt(origin, std::move(prompt));
    origin.first_index += copies;
  }
}

void ServingLoop::start_prompt(const Origin& origin, ReadyPrompt&& prompt) {
  const Result<RequestId> first = prompt.request.ok()
                                      ? engine_.post(std::move(prompt.request).value())
                                      : prompt.request.error();
  if (!first.ok()) return refuse(origin, prompt.copies, first.error());
  const PromptJob& job = prompt.job;
  const TokenChances::Rules rules = {.goes_on = job.text.goes_on,
                                     .skip_special_tokens = job.text.skip_special_tokens};
  for (std::int64_t copy = 0; copy < prompt.copies; ++copy) {
    const RequestId id(first->value() + copy);
    live_.emplace(id,
                  Live{.exchange = origin.exchange,
                       .index = origin.first_index + copy,
                       .wants_tokens = job.wants_tokens,
                       .tells_end = job.tells_end,
                       .in_pieces = origin.in_pieces,
                       .shows_stop = job.text.shows_stop,
                       .is_copy = copy > 0,
                       .kept = {},
                       .chances = TokenChances(tokenizer_, rules),
                       .of_prompt = {},
                       .entries_of_prompt = 1 + static_cast<std::size_t>(prompt.prompt_logprobs),
                       .text = TextGeneration(tokenizer_, job.text),
                       .thoughts = prompt.thoughts});
    requests_of_[origin.exchange].push_back(id);
  }
  live_.at(*first).of_prompt = std::move(prompt.job.of_prompt);
}

void ServingLoop::refuse(const Origin& origin, std::int64_t copies, const Error& error) {
  for (std::int64_t copy = 0; copy < copies; ++copy) {
    AnswerUpdate& update = add_update(origin.exchange, origin.first_index + copy);
    update.finish = FinishReason::kFailed;
    update.error = error;
  }
  answers_in_flight_ -= copies;
}

AnswerUpdate& ServingLoop::add_update(ExchangeId exchange, std::int64_t index) {
  AnswerUpdate& update = updates_.emplace_back();
  update.exchange = exchange;
  update.index = index;
  return update;
}

void ServingLoop::take_scores(const EngineEvent& event, Live& live) {
  const std::span<const TokenLogprob> all = event.prompt_logprobs;
  const std::size_t entries = live.entries_of_prompt;
  AnswerUpdate& update = add_update(live.exchange, live.index);
  for (std::size_t token = 0; token < all.size(); token += entries) {
    update.of_prompt.push_back(live.of_prompt->next(all.subspan(token, entries)));
  }
}

void ServingLoop::cancel_now(ExchangeId exchange) {
  const auto found = requests_of_.find(exchange);
  if (found == requests_of_.end()) return;
  const std::vector<RequestId> requests = found->second;
  for (const RequestId request : requests) cancel_request(request);
}

void ServingLoop::cancel_request(RequestId request) {
  const std::optional<RequestStats> stats = engine_.stop(request, FinishReason::kCancelled);
  if (!stats.has_value()) return late_cancels_.push_back(request);
  Live& live = live_.at(request);
  AnswerUpdate update;
  update.exchange = live.exchange;
  update.index = live.index;
  update.finish = FinishReason::kCancelled;
  update.stats = *stats;
  pass_on(std::move(update), live);
  end(request);
}

void ServingLoop::cancel_late() {
  for (const RequestId request : std::exchange(late_cancels_, {})) {
    if (live_.contains(request)) cancel_request(request);
  }
}

void ServingLoop::take(const EngineEvent& event) {
  const auto found = live_.find(event.request);
  if (found == live_.end()) return;  // a stop string ended it
  Live& live = found->second;
  if (!event.prompt_logprobs.empty()) return take_scores(event, live);
  AnswerUpdate update;
  update.exchange = live.exchange;
  update.index = live.index;
  update.finish = event.finish;
  update.stats = event.stats;
  update.error = event.error;
  if (event.token >= 0) {
    update.is_first = ++live.output_tokens == 1;
    ++output_tokens_;
    if (update.is_first && !live.is_copy) prompts_.note(event.stats);
  }
  take_text(event, live, update);
  take_thoughts(event, live, update);
  const bool ended = update.finish != FinishReason::kNone;
  if (update.finish == FinishReason::kStop) {
    update.stop_reason = live.text.stop_reason(event.token);
  }
  pass_on(std::move(update), live);
  if (ended) end(event.request);
}

// What nobody reads before it is whole wakes nobody, but once a prompt: who gives an answer up has
// had what is known of it by then.
void ServingLoop::pass_on(AnswerUpdate&& update, Live& live) {
  update.output_tokens = live.output_tokens;
  const bool ended = update.finish != FinishReason::kNone;
  const bool has_thought = live.thoughts.has_value() && live.thoughts->has_thought();
  if (ended && has_thought) update.thought_tokens = live.thought_tokens;
  if (live.in_pieces) {
    const bool says = ended || update.is_first || !update.text.empty() ||
                      !update.thoughts.empty() || !update.chances.empty() || !update.tokens.empty();
    if (says) updates_.push_back(std::move(update));
    return;
  }
  AnswerUpdate& kept = live.kept;
  kept.text += update.text;
  kept.thoughts += update.thoughts;
  kept.tokens.insert(kept.tokens.end(), update.tokens.begin(), update.tokens.end());
  for (TokenChance& chance : update.chances) kept.chances.push_back(std::move(chance));
  const bool tells_cost = !ended && update.is_first && !live.is_copy;
  if (tells_cost) {
    AnswerUpdate& cost = add_update(live.exchange, live.index);
    cost.is_first = true;
    cost.stats = update.stats;
  }
  kept.is_first |= update.is_first && !tells_cost;
  if (!ended) return;
  update.text = std::move(kept.text);
  update.thoughts = std::move(kept.thoughts);
  update.tokens = std::move(kept.tokens);
  update.chances = std::move(kept.chances);
  update.is_first = kept.is_first;
  updates_.push_back(std::move(update));
}

// A stop token is part of the text where it is to be shown.
void ServingLoop::take_text(const EngineEvent& event, Live& live, AnswerUpdate& update) {
  const bool hidden = event.finish == FinishReason::kStop && !live.shows_stop;
  if (!event.logprobs.empty() && (!hidden || live.tells_end)) {
    update.chances.push_back(live.chances.next(event.logprobs));
  }
  if (event.token >= 0 && !hidden) {
    if (live.wants_tokens) update.tokens.push_back(event.token);
    if (live.text.push(event.token, update.text)) {
      const std::optional<RequestStats> stopped = engine_.stop(event.request);
      if (stopped.has_value()) update.stats = *stopped;
      update.finish = FinishReason::kStop;
      return;
    }
  }
  if (event.finish != FinishReason::kNone) live.text.finish(update.text);
}

// A token is one of thoughts that came while they went on, their marks included, and what stands
// before them. Until it is known whether an answer has some, chances wait.
void ServingLoop::take_thoughts(const EngineEvent& event, Live& live, AnswerUpdate& update) {
  if (!live.thoughts.has_value()) return;
  const bool may_think = live.thoughts->may_think();
  if (event.token >= 0 && may_think) ++live.thought_tokens;
  const bool ended = update.finish != FinishReason::kNone;
  ThoughtText read;
  live.thoughts->push(update.text, read);
  if (ended) live.thoughts->finish(read);
  update.text = std::move(read.text);
  update.thoughts = std::move(read.thoughts);
  std::vector<TokenChance>& chances = live.undecided;
  std::move(update.chances.begin(), update.chances.end(), std::back_inserter(chances));
  update.chances.clear();
  if (!live.thoughts->is_decided() && !ended) return;
  const bool thinks = may_think && live.thoughts->has_thought();
  for (TokenChance& chance : chances) chance.is_thought = thinks;
  update.chances = std::exchange(chances, {});
}

void ServingLoop::end(RequestId request) {
  const auto live = live_.find(request);
  const auto of = requests_of_.find(live->second.exchange);
  std::erase(of->second, request);
  if (of->second.empty()) requests_of_.erase(of);
  live_.erase(live);
  --answers_in_flight_;
}

void ServingLoop::deliver() {
  if (!updates_.empty()) sink_(std::exchange(updates_, {}));
}

}  // namespace stemma
