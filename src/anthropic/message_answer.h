// Message answers: the bodies and stream events of /v1/messages, in Anthropic's shape.
//
// An answer has parts, which the interface calls blocks: thoughts, texts, and calls of tools, in
// the order in which they came. Its usage says apart what was found in the cache and what was not;
// nothing is paid for bringing it there, so that no tokens are ever said to have created it.
// Thoughts have an empty signature: nothing here checks one when they come back.
//
// Thread:     one answer, one stream.
// Memory:     the answer so far, where it is not streamed.
// Cost:       O(text).
// Not here:   what is asked (message_request), the socket (http/).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "openai/ordered_answer.h"

namespace stemma {

class MessageAnswer final : public OrderedAnswer {
 public:
  // `max_tokens`: as many were asked for.
  MessageAnswer(AnswerHead head, std::int64_t max_tokens, bool streams)
      : head_(std::move(head)), max_tokens_(max_tokens), streams_(streams) {}

  std::string begin(const AnswerUsage& of_prompt) override;
  std::string push(const AnswerPiece& piece) override;
  std::string end(const AnswerUsage& usage, const TemplateJson& receipt) override;
  std::string fail(const ApiError& error) override;

 private:
  enum class Part : std::uint8_t { kNone, kThoughts, kText };

  void open(Part part, std::string& events);
  void close(std::string& events);
  void add_to(Part part, std::string_view text, std::string& events);
  void add_call(const ToolCall& call, std::int64_t number, std::string& events);
  // The next part is this one, as JSON. REQUIRES: nobody was told of it, as of a stream's.
  void keep(const std::string& json);
  void begin_part(TemplateJson part, std::string& events);
  void say_delta(TemplateJson delta, std::string& events);
  void end_part(std::string& events);
  void say(std::string_view type, TemplateJson event, std::string& events);
  // Of the whole answer, which has come to its end.
  std::string_view stop_reason(const AnswerUsage& usage) const;
  TemplateJson stop_sequence() const;
  std::string message(const TemplateJson& stop, const AnswerUsage& usage) const;

  AnswerHead head_;
  std::int64_t max_tokens_;
  bool streams_;
  std::string parts_;  // that are whole: JSON, with commas between them
  Part open_ = Part::kNone;
  std::string text_;       // of the part that is open
  std::int64_t told_ = 0;  // parts that are whole
  std::string finish_reason_;
  StopReason stopped_by_;
};

}  // namespace stemma
