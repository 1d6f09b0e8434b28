#include "server/answer.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "anthropic/message_answer.h"
#include "anthropic/message_error.h"
#include "model/unicode_text.h"
#include "openai/response_answer.h"
#include "server/receipt.h"

namespace stemma {
namespace {

std::string_view reason_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
    case FinishReason::kFailed:
      return "";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "abort";
  }
  return "";
}

GeneratedText generated_text(const AnswerUpdate& update) {
  const RequestStats& stats = update.stats;
  return {.ended = update.finish == FinishReason::kStop || update.finish == FinishReason::kLength,
          .tokens = stats.output_tokens,
          .decode_us = stats.total_us - stats.ttft_us};
}

// One token had to be computed: nobody asked for it.
void leave_out_answer(AnswerUpdate& update) {
  update.text.clear();
  update.thoughts.clear();
  update.thought_tokens = 0;
  update.chances.clear();
  update.tokens.clear();
  update.output_tokens = 0;
  update.stats.output_tokens = 0;
  if (update.finish == FinishReason::kStop) update.finish = FinishReason::kLength;
  update.stop_reason = StopReason();
}

// The engine gives as many likeliest tokens as any of a request's fields asks for.
void cut_to(std::int64_t likeliest, TokenChance& chance) {
  if (std::ssize(chance.likeliest) > likeliest) {
    chance.likeliest.resize(static_cast<std::size_t>(likeliest));
  }
}

// A JSON value takes some 0.5 us to make, write and free; text takes as long where it is long.
constexpr std::int64_t kLongValues = 2000;
constexpr std::int64_t kVeryLongValues = 50'000;
constexpr std::int64_t kTextBytesPerValue = 256;
// Of a token's text, logprob, bytes or rank, and the object around them.
constexpr std::int64_t kValuesPerToken = 6;

std::int64_t values_of_text(std::string_view text) {
  return std::ssize(text) / kTextBytesPerValue;
}

std::int64_t values_of_chances(std::span<const TokenChance> chances) {
  std::int64_t tokens = 0;
  for (const TokenChance& chance : chances) tokens += 1 + std::ssize(chance.likeliest);
  return tokens * kValuesPerToken;
}

std::int64_t values_of(const AnswerUpdate& update) {
  return values_of_text(update.text) + values_of_text(update.thoughts) +
         values_of_chances(update.chances) + std::ssize(update.tokens);
}

std::unique_ptr<OrderedAnswer> ordered_answer_or_null(AnswerPlan& plan) {
  switch (plan.shape) {
    case AnswerShape::kCompletion:
      return nullptr;
    case AnswerShape::kResponse:
      return std::make_unique<ResponseAnswer>(plan.head, std::exchange(plan.response, {}),
                                              plan.stream);
    case AnswerShape::kMessage:
      return std::make_unique<MessageAnswer>(plan.head, plan.max_tokens, plan.stream);
  }
  return nullptr;
}

void leave_out_thoughts(AnswerPiece& piece) {
  piece.thoughts.clear();
  std::erase_if(piece.chances, [](const TokenChance& chance) { return chance.is_thought; });
}

}  // namespace

// Anthropic's clients look for it by another name.
std::vector<std::pair<std::string, std::string>> request_id_headers(const std::string& request_id,
                                                                    AnswerShape shape) {
  std::vector<std::pair<std::string, std::string>> headers = {{"X-Request-Id", request_id}};
  if (shape == AnswerShape::kMessage) headers.emplace_back("request-id", request_id);
  return headers;
}

std::vector<std::pair<std::string, std::string>> answer_headers(const AnswerPlan& plan,
                                                                const RequestStats& stats) {
  auto headers = request_id_headers(plan.request_id, plan.shape);
  headers.emplace_back("X-Stemma-Cache", receipt_header(stats));
  return headers;
}

HttpResponse error_response(const ApiError& error, const std::string& request_id,
                            AnswerShape shape) {
  const bool is_message = shape == AnswerShape::kMessage;
  HttpResponse response = {
      .status = error.status,
      .headers = request_id_headers(request_id, shape),
      .body = is_message ? message_error_body(error, request_id) : error_body(error)};
  if (error.retry_after_s.has_value()) {
    response.headers.emplace_back("Retry-After", std::to_string(*error.retry_after_s));
  }
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

Answer::Answer(AnswerPlan plan)
    : plan_(std::move(plan)),
      answers_(static_cast<std::size_t>(plan_.answers())),
      shown_(answers_.size(), false),
      calls_(answers_.size(), 0),
      of_prompt_(plan_.echoes.size()),
      generated_(answers_.size()),
      chances_of_prompt_(plan_.echoes.size()),
      unfinished_(plan_.answers()) {
  values_of_request_ = values_of_text(plan_.response);
  ordered_or_null_ = ordered_answer_or_null(plan_);
  for (const std::string& echo : plan_.echoes) {
    characters_of_echo_.push_back(characters_in(echo));
    values_of_prompt_.push_back(values_of_text(echo));
    if (!plan_.stream) kept_values_ += values_of_prompt_.back() * plan_.copies;
  }
  const auto count = [&](std::size_t prompt, std::int64_t values) {
    values_of_prompt_[prompt] += values;
    if (!plan_.stream) kept_values_ += values * tellers();
  };
  for (std::size_t i = 0; i < plan_.prompt_tokens.size(); ++i) {
    count(i, std::ssize(plan_.prompt_tokens[i]));
  }
  for (std::size_t i = 0; i < plan_.given.size(); ++i) {
    count(i, std::ssize(plan_.given[i].tokens) * kValuesPerToken);
  }
  for (std::size_t i = 0; i < answers_.size(); ++i) {
    answers_[i].index = static_cast<std::int64_t>(i);
    if (plan_.call_style.has_value()) readers_.emplace_back(*plan_.call_style, plan_.tool_types);
  }
}

Answer::Time Answer::time_of(const AnswerUpdate& update) const {
  if (!update.of_prompt.empty() || update.finish == FinishReason::kFailed) return Time::kShort;
  std::int64_t values = values_of(update);
  const auto index = static_cast<std::size_t>(update.index);
  if (plan_.stream && !shown_[index]) {
    values += values_of_prompt_[prompt_of(update.index)] + values_of_request_;
  }
  // A call, too, is told of behind all of the message before it.
  const bool tells_all = ends_with(update) || (ordered_or_null_ != nullptr && !readers_.empty());
  if (tells_all) values += kept_values_;
  if (ends_with(update)) values += values_of_request_;
  if (values > kVeryLongValues) return Time::kVeryLong;
  return values > kLongValues ? Time::kLong : Time::kShort;
}

AnswerOutput Answer::take(AnswerUpdate&& update) {
  AnswerOutput output;
  if (!update.of_prompt.empty()) {
    take_prompt(std::move(update));
    return output;
  }
  if (plan_.prompt_only) leave_out_answer(update);
  note_stats(update);
  if (update.finish == FinishReason::kFailed) {
    const bool too_much = update.error.code == ErrorCode::kTooLarge;
    return fail(too_much ? overloaded(update.error.detail) : api_error_of(update.error));
  }
  const bool comes_whole = !plan_.stream && ordered_or_null_ == nullptr;
  if (comes_whole && update.finish == FinishReason::kNone) return output;  // stats alone
  if (update.finish != FinishReason::kNone) outcome_ = finish_reason_name(update.finish);
  if (!plan_.stream || ordered_or_null_ != nullptr) kept_values_ += values_of(update);
  AnswerPiece piece = piece_of(update);
  if (plan_.stream) {
    stream(update.index, std::move(piece), output);
  } else if (ordered_or_null_ != nullptr) {
    ordered_or_null_->push(piece);
  } else {
    answers_[static_cast<std::size_t>(update.index)] = std::move(piece);
  }
  if (update.finish != FinishReason::kNone && --unfinished_ == 0) finish(output);
  streaming_ |= output.head.has_value();
  return output;
}

void Answer::take_prompt(AnswerUpdate&& update) {
  const std::size_t prompt = prompt_of(update.index);
  const std::int64_t values = values_of_chances(update.of_prompt);
  values_of_prompt_[prompt] += values;
  kept_values_ += plan_.stream ? values : values * tellers();
  std::vector<TokenChance>& chances = chances_of_prompt_[prompt];
  if (chances.empty()) {
    chances = std::move(update.of_prompt);
  } else {
    std::move(update.of_prompt.begin(), update.of_prompt.end(), std::back_inserter(chances));
  }
}

AnswerPiece Answer::piece_of(AnswerUpdate& update) {
  AnswerPiece piece = {.index = update.index,
                       .text = std::move(update.text),
                       .thoughts = std::move(update.thoughts),
                       .chances = std::move(update.chances),
                       .tokens = std::move(update.tokens),
                       .usage_so_far = usage_so_far(update.index, update.output_tokens),
                       .finish_reason = reason_of(update.finish),
                       .stop_reason = std::move(update.stop_reason)};
  if (!plan_.tells_thoughts) leave_out_thoughts(piece);
  const std::int64_t echoed = characters_of_echo_[prompt_of(update.index)];
  for (TokenChance& chance : piece.chances) chance.first_character += echoed;
  if (!readers_.empty()) take_calls(piece);
  return piece;
}

// What is said stays the piece's text. Who made a call and came to an end waits for its outcome.
void Answer::take_calls(AnswerPiece& piece) {
  const auto index = static_cast<std::size_t>(piece.index);
  ToolCallText read;
  readers_[index].push(piece.text, read);
  if (!piece.finish_reason.empty()) readers_[index].finish(read);
  piece.text = std::move(read.text);
  piece.first_call = calls_[index];
  const std::size_t allowed =
      plan_.calls_in_parallel ? read.calls.size() : (calls_[index] > 0 ? 0 : 1);
  if (read.calls.size() > allowed) read.calls.resize(allowed);
  piece.calls = std::move(read.calls);
  piece.call_places = std::move(read.places);
  calls_[index] += std::ssize(piece.calls);
  if (piece.finish_reason == "stop" && calls_[index] > 0) piece.finish_reason = "tool_calls";
}

std::vector<TokenChance> Answer::chances_of(std::size_t prompt, std::int64_t likeliest) const {
  std::vector<TokenChance> chances;
  if (prompt < plan_.given.size()) chances = plan_.given[prompt].read();
  chances.reserve(chances.size() + chances_of_prompt_[prompt].size());
  for (const TokenChance& told : chances_of_prompt_[prompt]) {
    cut_to(likeliest, chances.emplace_back(told));
  }
  return chances;
}

// What comes before the first piece of an answer, where the prompt is to be seen.
void Answer::show_prompt(AnswerPiece& piece) const {
  const std::size_t prompt = prompt_of(piece.index);
  piece.text.insert(0, plan_.echoes[prompt]);
  const bool tells = piece.index % plan_.copies < tellers();
  if (plan_.scored_likeliest && tells) {
    piece.of_prompt = chances_of(prompt, *plan_.scored_likeliest);
  }
  if (plan_.head.gives_tokens && tells) piece.prompt_tokens = plan_.prompt_tokens[prompt];
  if (!plan_.echoed_likeliest) return;
  std::vector<TokenChance> echoed = chances_of(prompt, *plan_.echoed_likeliest);
  // Tokens may say more characters than a text had that is shown as it was sent.
  for (TokenChance& chance : echoed) {
    chance.first_character = std::min(chance.first_character, characters_of_echo_[prompt]);
  }
  piece.chances.insert(piece.chances.begin(), std::make_move_iterator(echoed.begin()),
                       std::make_move_iterator(echoed.end()));
}

// The prompt is counted once, as the first of its answers found it.
void Answer::note_stats(const AnswerUpdate& update) {
  const bool says = update.is_first || update.finish != FinishReason::kNone;
  if (update.finish != FinishReason::kNone) {
    output_tokens_ += update.stats.output_tokens;
    thought_tokens_ += update.thought_tokens;
    generated_[static_cast<std::size_t>(update.index)] = generated_text(update);
  }
  if (!says || update.index % plan_.copies != 0) return;
  of_prompt_[prompt_of(update.index)] = update.stats;
  stats_ = RequestStats();
  for (const RequestStats& prompt : of_prompt_) stats_ = sum_of(stats_, prompt);
}

void Answer::count_into(AnswerTally& tally) const {
  const auto copies = static_cast<std::size_t>(plan_.copies);
  for (std::size_t prompt = 0; prompt < of_prompt_.size(); ++prompt) {
    tally.note_prompt(of_prompt_[prompt], std::span(generated_).subspan(prompt * copies, copies));
  }
}

AnswerOutput Answer::fail(const ApiError& fault) {
  outcome_ = finish_reason_name(FinishReason::kFailed);
  AnswerOutput output = {.ends = true, .failed = true};
  if (streaming_) {
    output.events =
        ordered_or_null_ != nullptr ? ordered_or_null_->fail(fault) : error_event(fault);
  } else {
    status_ = fault.status;
    output.whole = error_response(fault, plan_.request_id, plan_.shape);
  }
  return output;
}

HttpResponse Answer::stream_head() const {
  HttpResponse head = {.content_type = "text/event-stream; charset=utf-8",
                       .headers = answer_headers(plan_, stats_)};
  head.headers.emplace_back("Cache-Control", "no-cache");
  head.headers.emplace_back("X-Accel-Buffering", "no");  // proxies pass events on at once
  return head;
}

void Answer::stream(std::int64_t index, AnswerPiece&& piece, AnswerOutput& output) {
  if (!streaming_) output.head = stream_head();
  const auto answer = static_cast<std::size_t>(index);
  if (!shown_[answer]) {
    shown_[answer] = true;
    output.events +=
        ordered_or_null_ != nullptr ? ordered_or_null_->begin(usage()) : first_event_of(index);
    show_prompt(piece);
  }
  const bool says = !piece.text.empty() || !piece.thoughts.empty() || !piece.calls.empty() ||
                    !piece.chances.empty() || !piece.tokens.empty() || !piece.finish_reason.empty();
  if (!says) return;
  output.events += ordered_or_null_ != nullptr ? ordered_or_null_->push(piece)
                                               : piece_event(plan_.head, piece, plan_.has_logprobs);
}

std::string Answer::first_event_of(std::int64_t index) const {
  const std::optional<AnswerUsage> usage = usage_so_far(index, 0);
  if (!plan_.head.gives_tokens) return first_event(plan_.head, index, usage);
  return first_event(plan_.head, index, usage, plan_.prompt_tokens[prompt_of(index)]);
}

AnswerUsage Answer::usage() const {
  return {.prompt_tokens = stats_.prompt_tokens,
          .completion_tokens = output_tokens_,
          .cached_tokens = stats_.cached_tokens,
          .thought_tokens = plan_.may_think ? std::optional(thought_tokens_) : std::nullopt};
}

std::optional<AnswerUsage> Answer::usage_so_far(std::int64_t index,
                                                std::int64_t output_tokens) const {
  if (!plan_.usage_so_far) return std::nullopt;
  const RequestStats& prompt = of_prompt_[prompt_of(index)];
  return AnswerUsage{.prompt_tokens = prompt.prompt_tokens,
                     .completion_tokens = output_tokens,
                     .cached_tokens = prompt.cached_tokens};
}

TemplateJson Answer::receipt() const {
  return plan_.wants_receipt ? receipt_json(stats_, plan_.policy) : TemplateJson();
}

std::string Answer::body() {
  if (plan_.receipt_only) return receipt_json(stats_, plan_.policy).dump();
  if (ordered_or_null_ != nullptr) return ordered_or_null_->end(usage(), receipt());
  for (AnswerPiece& answer : answers_) show_prompt(answer);
  return answer_body(plan_.head, answers_, plan_.has_logprobs, usage(), receipt());
}

std::string Answer::last_events() {
  const AnswerUsage cost = usage();
  if (ordered_or_null_ != nullptr) return ordered_or_null_->end(cost, receipt());
  std::string events;
  if (plan_.include_usage || plan_.wants_receipt) {
    const AnswerUsage* const usage_or_null = plan_.include_usage ? &cost : nullptr;
    events = usage_event(plan_.head, usage_or_null, receipt());
  }
  return events.append(kDoneEvent);
}

void Answer::finish(AnswerOutput& output) {
  output.ends = true;
  if (plan_.stream) {
    output.events += last_events();
  } else {
    output.whole = {.headers = answer_headers(plan_, stats_), .body = body()};
  }
  // Here, where it may take as long as it did to write it.
  answers_.clear();
  chances_of_prompt_.clear();
  ordered_or_null_.reset();
}

}  // namespace stemma
