// TokenizerTemplate: the "post_processor" of a tokenizer.json: the tokens around a text.
//
// Thread:     const methods are safe from many threads at once.
// Memory:     the tokens before and after.
// Cost:       none to speak of.
// Not here:   pairs of texts; BertProcessing, RobertaProcessing (refused by name).
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "model/tokenizer_json.h"
#include "stemma/ids.h"
#include "stemma/result.h"

namespace stemma {

class TokenizerTemplate {
 public:
  // Nothing around the text.
  TokenizerTemplate() = default;
  static Result<TokenizerTemplate> parse(const JsonField& field);

  std::span<const TokenId> before() const { return before_; }
  std::span<const TokenId> after() const { return after_; }
  void set_before(std::vector<TokenId> tokens) { before_ = std::move(tokens); }
  void set_after(std::vector<TokenId> tokens) { after_ = std::move(tokens); }

 private:
  // The tokens of one template on one side of the text; the template that comes later stands
  // further outside.
  Status add(const JsonField& field);
  Status add_template(const JsonField& field);

  std::vector<TokenId> before_;
  std::vector<TokenId> after_;
};

}  // namespace stemma
