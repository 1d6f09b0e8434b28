// OrderedAnswer: an answer that is told in the order in which it came: thoughts, texts and calls.
//
// Thread:     one answer, one thread at a time.
// Memory:     the answer so far.
// Cost:       O(text).
// Not here:   the shapes (openai/response_answer, anthropic/message_answer), answers that tell of
//             texts and calls apart (completion_answer).
#pragma once

#include <cstddef>
#include <string>

#include "openai/api_error.h"
#include "openai/completion_answer.h"
#include "template/template_json.h"

namespace stemma {

// One answer, as it comes. Streamed, each function returns the events that are new; else all are
// silent but the end, which returns the body.
class OrderedAnswer {
 public:
  OrderedAnswer() = default;
  virtual ~OrderedAnswer() = default;
  OrderedAnswer(const OrderedAnswer&) = delete;
  OrderedAnswer& operator=(const OrderedAnswer&) = delete;

  // Once, first. Of the usage what the prompt cost is known.
  virtual std::string begin(const AnswerUsage& of_prompt) = 0;
  virtual std::string push(const AnswerPiece& piece) = 0;
  // Once, last: one of these two. `receipt`: null for none.
  virtual std::string end(const AnswerUsage& usage, const TemplateJson& receipt) = 0;
  virtual std::string fail(const ApiError& error) = 0;
};

// Where a call came in the text; whoever says nothing of that had it behind all of it.
inline std::size_t call_place(const AnswerPiece& piece, std::size_t call) {
  return piece.call_places.empty() ? piece.text.size() : piece.call_places[call];
}

}  // namespace stemma
