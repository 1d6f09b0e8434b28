// Tokenizer: text to tokens and back, as a model's tokenizer.json says.
//
// The file's own steps run as they are: added tokens, normalizer, pre-tokenizer (its pattern
// through PCRE2), byte-pair encoding (byte-level and SentencePiece-style), post-processor, decoder.
// The result is that of Hugging Face's tokenizers, whose format it is, but for what byte tokens
// that are no text become (tokenizer_decoder.h). What a file asks for and Stemma does not have is
// refused by name at load time, never approximated. "truncation" and "padding" are ignored: how
// much of a prompt is used is for the caller to say.
//
// Thread:     const methods are safe from many threads at once.
// Memory:     some 200 bytes a token of the vocabulary; loading takes about five times the file for
//             a moment. encode() needs some 60 bytes a byte of text while it runs.
// Cost:       encode: O(n log n) for n bytes of text; decode: O(bytes of the tokens).
// Not here:   chat templates (chat_template), text as it is generated (detokenizer).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stemma/ids.h"
#include "stemma/result.h"

namespace stemma {

class TokenDecoder;
struct TokenizerConfig;
struct TokenizerFlag;

struct EncodeOptions {
  // Adds what the file's post-processor, or a flag, puts around a text, such as a token for its
  // beginning.
  bool add_special_tokens = false;
  // Reads special tokens written out in the text as those tokens. Without it they are text like any
  // other: for input that must not be able to imitate them.
  bool parse_special_tokens = true;
};

// How many tokens EncodeOptions::add_special_tokens puts before a text, and behind it.
struct TokensAround {
  std::int64_t before = 0;
  std::int64_t behind = 0;
};

class Tokenizer {
 public:
  // Reads `model_dir`/tokenizer.json, and from what is beside it (template/tokenizer_config.h)
  // which tokens are around a text (tokenizer_flags.h), and more added tokens (tokenizer_added.h).
  static Result<Tokenizer> load(const std::filesystem::path& model_dir);
  // Reads the text of such a file. Any bytes are safe; `file_name` is for the error messages, which
  // name the field too.
  static Result<Tokenizer> parse(std::string_view json, std::string_view file_name);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // The tokens of `text`. Bytes that are not UTF-8 become U+FFFD, one for each ill-formed sequence.
  // Fails on a text beyond 256 MiB, and where the file's pattern takes too many steps.
  Result<std::vector<TokenId>> encode(std::string_view text, EncodeOptions options) const;
  TokensAround tokens_around() const;

  // The text of `tokens`, always UTF-8: bytes of tokens that are not become U+FFFD. Ids that no
  // token has are passed over.
  std::string decode(std::span<const TokenId> tokens, bool skip_special_tokens) const;

  // Largest id + 1.
  std::int64_t vocab_tokens() const;
  // The token written exactly so in the file, for example "Ġhello" or "<|endoftext|>".
  std::optional<TokenId> token_id(std::string_view token_text) const;
  // How the file writes the token. Valid while the Tokenizer lives, moves included.
  std::optional<std::string_view> token_text(TokenId token) const;
  // Whether it is no text: a special token that is not shown.
  bool is_special(TokenId token) const;
  // From now on the special token that is written so is text where tokens become one; in texts that
  // become tokens it stays what it is. Another one is none: nothing happens.
  void show(std::string_view token_text);

  // The decoder's steps, for a Detokenizer. Valid while the Tokenizer lives, moves included.
  const TokenDecoder& decoder() const;

 private:
  struct Parts;
  explicit Tokenizer(std::unique_ptr<Parts> parts);
  // Takes over what it says of added tokens, and of those around a text.
  Status obey(const TokenizerConfig& config);
  // What stands on that side of a text; nullopt: what the post-processor puts there.
  Result<std::optional<std::vector<TokenId>>> tokens_of(const TokenizerFlag& flag,
                                                        std::string_view file_name) const;

  std::unique_ptr<Parts> parts_;
};

}  // namespace stemma
