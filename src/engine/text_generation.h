// TextGeneration: the text of one request's output, as its tokens come, up to a stop string.
//
// Thread:     one thread a generation.
// Memory:     what is held back: an unfinished character, the beginning of a stop string.
// Cost:       O(bytes of the token).
// Not here:   tokens and stop tokens (Engine), the wire (server/).
#pragma once

#include <string>
#include <vector>

#include "model/detokenizer.h"
#include "model/stop_strings.h"
#include "model/tokenizer.h"
#include "stemma/ids.h"

namespace stemma {

class TextGeneration {
 public:
  // `tokenizer` must outlive this. REQUIRES: StopStrings::validate(stop) is ok.
  TextGeneration(const Tokenizer& tokenizer, std::vector<std::string> stop)
      : detokenizer_(tokenizer, /*skip_special_tokens=*/true), stop_(std::move(stop)) {}

  // Takes the next token and appends to `out` the text that is certain now. True if a stop string
  // is complete: the request is to be ended (Engine::stop), and `out` ends before the stop string.
  bool push(TokenId token, std::string& out) { return stop_.push(detokenizer_.push(token), out); }

  // The output ended for another reason: appends what was held back.
  void finish(std::string& out) {
    if (!stop_.push(detokenizer_.flush(), out)) stop_.finish(out);
  }

 private:
  Detokenizer detokenizer_;
  StopStrings stop_;
};

}  // namespace stemma
