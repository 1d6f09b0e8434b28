// Answer: what one exchange is answered with, put together from what its requests bring, as one
// body or as a stream of events.
//
// The head of a stream leaves with the first token, so that a request that fails before it has a
// status of its own, and so that the head can say what the cache did.
//
// Thread:     one at a time.
// Memory:     the whole text where nothing is streamed.
// Cost:       O(text).
// Not here:   JSON (openai/completion_answer), the socket (http/), on which thread (api_answers).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "http/http_server.h"
#include "openai/completion_answer.h"
#include "openai/ordered_answer.h"
#include "server/answer_tally.h"
#include "server/serving_loop.h"
#include "server/token_chances.h"

namespace stemma {

// What is known of an answer before anything of it is computed.
struct AnswerPlan {
  AnswerHead head;
  std::string request_id;
  std::string policy;                               // of eviction, for receipts
  std::int64_t copies = 1;                          // answers a prompt
  std::vector<std::string> echoes = {""};           // of each prompt: what its answers begin with
  std::vector<std::vector<TokenId>> prompt_tokens;  // of each, where head.gives_tokens
  bool stream = false;
  bool include_usage = false;
  bool usage_so_far = false;  // each event of a stream says it, of its answer
  bool has_logprobs = false;
  // Likeliest tokens beside each of a prompt: of logprobs, where those come before an answer's, and
  // of prompt_logprobs.
  std::optional<std::int64_t> echoed_likeliest;
  std::optional<std::int64_t> scored_likeliest;
  // Of each prompt, where one of the two is: those before the ones that updates bring.
  std::vector<GivenTokens> given;
  bool prompt_only = false;                 // what is computed behind it is not shown
  std::optional<ToolCallStyle> call_style;  // of a chat with tools: its text may have calls
  ToolTypes tool_types;                     // of those tools, where texts are read by them
  bool calls_in_parallel = true;
  bool may_think = false;      // an answer may have thoughts before its text
  bool tells_thoughts = true;  // which clients get to see
  bool wants_receipt = false;
  bool receipt_only = false;  // nobody reads the answer: it was asked for to be cached
  AnswerShape shape = AnswerShape::kCompletion;  // the others: one answer, without an echo
  std::string response;                          // CompletionRequest::response
  std::int64_t max_tokens = 0;                   // of a message: that were asked for

  std::int64_t answers() const { return copies * std::ssize(echoes); }
};

// What a client is told next.
struct AnswerOutput {
  std::optional<HttpResponse> whole = {};  // all of the answer
  std::optional<HttpResponse> head = {};   // a stream begins
  std::string events = {};                 // of the stream, the next
  bool ends = false;                       // the client has its whole answer
  bool failed = false;                     // and it is an error
};

class Answer {
 public:
  explicit Answer(AnswerPlan plan);
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;

  // Takes what a step brought, and gives what can be said now; where nothing is streamed, the text
  // of an answer that is no response comes in one update (AnswerJob::in_pieces). Nothing may be
  // taken after what ends.
  AnswerOutput take(AnswerUpdate&& update);
  // Ends it with an error.
  AnswerOutput fail(const ApiError& fault);
  // Whether `take` of this would hold the I/O thread up, by a millisecond or more: it then writes
  // many logprobs, or a very long text; and whether those that take long should not wait for it.
  enum class Time : std::uint8_t { kShort, kLong, kVeryLong };
  Time time_of(const AnswerUpdate& update) const;

  // What all prompts cost, as far as they have said.
  const RequestStats& stats() const noexcept { return stats_; }
  // What each prompt came to, for who adds it up.
  void count_into(AnswerTally& tally) const;
  const AnswerPlan& plan() const noexcept { return plan_; }
  // What the client is told at the head: 200, but for what failed before anything was said.
  int status() const noexcept { return status_; }
  // Why the last of them ended.
  std::string_view outcome() const noexcept { return outcome_; }

 private:
  // The prompt that an answer is to.
  std::size_t prompt_of(std::int64_t index) const {
    return static_cast<std::size_t>(index / plan_.copies);
  }
  // Whole answers to one prompt that tell of it: of a chat's the first does for all.
  std::int64_t tellers() const {
    return plan_.head.kind == CompletionKind::kChat ? 1 : plan_.copies;
  }
  // All that is told of the prompt's tokens.
  std::vector<TokenChance> chances_of(std::size_t prompt, std::int64_t likeliest) const;
  void show_prompt(AnswerPiece& piece) const;
  void note_stats(const AnswerUpdate& update);
  void take_prompt(AnswerUpdate&& update);
  AnswerPiece piece_of(AnswerUpdate& update);
  void take_calls(AnswerPiece& piece);
  void stream(std::int64_t index, AnswerPiece&& piece, AnswerOutput& output);
  HttpResponse stream_head() const;
  std::string first_event_of(std::int64_t index) const;
  std::string last_events();
  std::string body();
  TemplateJson receipt() const;
  void finish(AnswerOutput& output);
  AnswerUsage usage() const;
  std::optional<AnswerUsage> usage_so_far(std::int64_t index, std::int64_t output_tokens) const;
  bool ends_with(const AnswerUpdate& update) const {
    return update.finish != FinishReason::kNone && unfinished_ == 1;
  }

  AnswerPlan plan_;
  std::vector<AnswerPiece> answers_;  // texts are kept where nothing else keeps them
  std::vector<bool> shown_;           // by answer: its first event has left
  std::unique_ptr<OrderedAnswer>
      ordered_or_null_;                   // nullptr: its shape tells texts and calls apart
  std::vector<ToolCallReader> readers_;   // by answer, of plan_; none where there are no calls
  std::vector<std::int64_t> calls_;       // by answer: that it made
  std::vector<RequestStats> of_prompt_;   // of the first answer to each prompt
  std::vector<GeneratedText> generated_;  // by answer
  std::vector<std::vector<TokenChance>> chances_of_prompt_;
  std::vector<std::int64_t> values_of_prompt_;  // about how many JSON values showing each makes
  std::int64_t kept_values_ = 0;                // about how many are written, or freed, at the end
  std::int64_t values_of_request_ = 0;          // about how many showing it is worth
  std::vector<std::int64_t> characters_of_echo_;
  RequestStats stats_;
  std::int64_t output_tokens_ = 0;
  std::int64_t thought_tokens_ = 0;
  std::int64_t unfinished_ = 0;
  int status_ = 200;
  bool streaming_ = false;
  std::string_view outcome_ = "none";
};

// How clients of this shape find the request in logs.
std::vector<std::pair<std::string, std::string>> request_id_headers(const std::string& request_id,
                                                                    AnswerShape shape);

// The headers that every answer has.
std::vector<std::pair<std::string, std::string>> answer_headers(const AnswerPlan& plan,
                                                                const RequestStats& stats);

// An error as a whole answer, in place of one of this shape.
HttpResponse error_response(const ApiError& error, const std::string& request_id,
                            AnswerShape shape = AnswerShape::kCompletion);

}  // namespace stemma
