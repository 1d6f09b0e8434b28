// Normalizer: the "normalizer" of a tokenizer.json: rewrites a text before it is split.
//
// Thread:     const methods are safe from many threads at once.
// Memory:     the rewritten text; the steps together lengthen a text at most kGrowthMax times,
//             which parse() makes sure of.
// Cost:       one pass of the text a step.
// Not here:   BertNormalizer, StripAccents, Nmt, Precompiled, ByteLevel (refused by name).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/tokenizer_json.h"
#include "model/tokenizer_regex.h"
#include "model/unicode_text.h"
#include "stemma/result.h"

namespace stemma {

// How many times longer than its input a chain of replacements may make a text. Real files need 3.
inline constexpr std::size_t kGrowthMax = 1024;

struct NormalizedText {
  std::string text;
  bool keeps_begin = true;  // nothing was taken off the front
};

class Normalizer {
 public:
  // Changes nothing.
  Normalizer() = default;
  static Result<Normalizer> parse(const JsonField& field);

  // REQUIRES: `text` is well-formed UTF-8; so is the result.
  Result<NormalizedText> apply(std::string text) const;
  bool changes_nothing() const { return steps_.empty(); }

 private:
  struct Prepend {
    std::string text;
  };
  struct Replace {
    TextPattern pattern;
    std::string content;
  };
  struct Lowercase {};
  struct Strip {
    bool left = true;
    bool right = true;
  };
  using Step = std::variant<NormalForm, Prepend, Replace, Lowercase, Strip>;

  Status add_step(std::string_view type, const JsonField& field);
  Status add_prepend(const JsonField& field);
  Status add_replace(const JsonField& field);
  Status add_strip(const JsonField& field);
  static Result<std::string> apply_step(const Step& step, std::string text);

  std::vector<Step> steps_;
  std::size_t growth_ = 1;
};

}  // namespace stemma
