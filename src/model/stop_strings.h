// StopStrings: ends a text where one of a request's stop strings appears, without showing any of
// it, or with all of it.
//
// Thread:     one request, one matcher.
// Memory:     the stop strings, one integer a byte of them, and the text held back: less than the
//             longest of them.
// Cost:       O(bytes pushed × stop strings); no allocation in steady state.
// Not here:   stop tokens and EOS (generation_config.h), the text of tokens (detokenizer).
//
// A stop string may span any number of tokens, so text that could be the beginning of one is held
// back until it is known. The outcome does not depend on how the text is cut into pieces: the match
// that ends first wins, of those that end together the longest.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "stemma/ids.h"
#include "stemma/result.h"

namespace stemma {

// What ended an output, of what its request named: a stop string, or a stop token; neither where
// it was the model's own end, or there was no room for more.
using StopReason = std::variant<std::monostate, std::string, TokenId>;

class StopStrings {
 public:
  // Whether a request may have these: at most 16, none empty, each at most 1,024 bytes. The error
  // names the field.
  static Status validate(std::span<const std::string> stop);

  // Whether what ends a text is shown.
  enum class Match : std::uint8_t { kHidden, kShown };

  // Without stop strings every text passes at once. REQUIRES: validate(stop) is ok.
  explicit StopStrings(std::vector<std::string> stop, Match match = Match::kHidden);

  // Takes the next piece of the text and appends to `out` what may be shown. True if a stop string
  // is now complete: `out` ends before it, or behind it where it is shown, and the rest of the
  // piece is dropped. REQUIRES: neither stopped nor finished.
  bool push(std::string_view piece, std::string& out);

  // Takes a piece that cannot end the text; one that begins in it can end it later. REQUIRES: as
  // push.
  void pass(std::string_view piece, std::string& out);

  // The text ended for another reason: appends what was held back. REQUIRES: neither stopped nor
  // finished.
  void finish(std::string& out);

  // Which stop string it was, by its number; nothing while none was found.
  std::optional<std::size_t> matched() const { return matched_; }
  // The same by its text. REQUIRES: one was found.
  const std::string& matched_text() const { return patterns_.at(matched_.value()).text; }

 private:
  // One stop string as a Knuth-Morris-Pratt automaton.
  struct Pattern {
    std::string text;
    std::vector<std::int32_t> fallback;  // of each prefix: its longest proper border
    std::int32_t state = 0;              // bytes of `text` that the text so far ends with
    bool complete() const { return static_cast<std::size_t>(state) == text.size(); }
  };

  // Holds one byte back and advances every pattern by it.
  void advance(char byte);
  std::optional<std::size_t> longest_complete() const;
  // Shows what can be no part of a stop string; if one has matched, what is before it.
  void show(std::string& out);

  Match match_;
  std::vector<Pattern> patterns_;
  std::string held_;
  std::optional<std::size_t> matched_;
  bool finished_ = false;
};

}  // namespace stemma
