// TextGeneration: the text of one request's output, as its tokens come, up to a stop string.
//
// Thread:     one thread a generation.
// Memory:     what is held back: an unfinished character, the beginning of a stop string.
// Cost:       O(bytes of the token).
// Not here:   tokens and stop tokens (Engine), the wire (server/).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/detokenizer.h"
#include "model/stop_strings.h"
#include "model/tokenizer.h"
#include "stemma/ids.h"

namespace stemma {

// Whether tokens have a text that another can go on from: special ones alone have none.
inline bool has_text(const Tokenizer& tokenizer, std::span<const TokenId> tokens) {
  return std::any_of(tokens.begin(), tokens.end(),
                     [&](TokenId token) { return !tokenizer.is_special(token); });
}

// What a request's text is.
struct TextRules {
  std::vector<std::string> stop;          // StopStrings::validate(stop) is ok
  bool shows_stop = false;                // also the stop string or token that ends it
  bool skip_special_tokens = true;        // they are no text
  bool goes_on = false;                   // from the prompt's text: see Detokenizer
  std::vector<TokenId> stop_tokens = {};  // that the request named, beside the model's own
  std::int64_t min_tokens = 0;            // no stop string ends it with one of the first so many
};

class TextGeneration {
 public:
  // `tokenizer` must outlive this.
  TextGeneration(const Tokenizer& tokenizer, TextRules rules)
      : detokenizer_(tokenizer, rules.skip_special_tokens),
        stop_(std::move(rules.stop),
              rules.shows_stop ? StopStrings::Match::kShown : StopStrings::Match::kHidden),
        stop_tokens_(std::move(rules.stop_tokens)),
        tokens_before_stop_(rules.min_tokens) {
    if (rules.goes_on) detokenizer_.begin_behind_others();
  }

  // Takes the next token and appends to `out` the text that is certain now. True if a stop string
  // is complete: the request is to be ended (Engine::stop), and `out` ends with the text.
  bool push(TokenId token, std::string& out) {
    const std::string piece = detokenizer_.push(token);
    if (tokens_before_stop_ == 0) return stop_.push(piece, out);
    --tokens_before_stop_;
    stop_.pass(piece, out);
    return false;
  }

  // What stopped an output whose last token is `last`.
  StopReason stop_reason(TokenId last) const {
    if (stop_.matched().has_value()) return stop_.matched_text();
    const bool is_named =
        std::find(stop_tokens_.begin(), stop_tokens_.end(), last) != stop_tokens_.end();
    return is_named ? StopReason(last) : StopReason();
  }

  // The output ended for another reason: appends what was held back.
  void finish(std::string& out) {
    if (!stop_.push(detokenizer_.flush(), out)) stop_.finish(out);
  }

 private:
  Detokenizer detokenizer_;
  StopStrings stop_;
  std::vector<TokenId> stop_tokens_;
  std::int64_t tokens_before_stop_;
};

}  // namespace stemma
