#include "model/tokenizer.h"

#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "model/pre_tokenizer.h"
#include "model/tokenizer_added.h"
#include "model/tokenizer_bpe.h"
#include "model/tokenizer_decoder.h"
#include "model/tokenizer_flags.h"
#include "model/tokenizer_json.h"
#include "model/tokenizer_normalizer.h"
#include "model/tokenizer_template.h"
#include "model/unicode_text.h"
#include "stemma/log.h"
#include "template/tokenizer_config.h"

namespace stemma {
namespace {

constexpr std::size_t kTextBytesMax = std::size_t{256} << 20;
constexpr std::size_t kNormalizedBytesMax = std::size_t{1} << 30;

// T::parse of the member, or a T that is not there.
template <typename T>
Result<T> parse_member(const JsonField& root, std::string_view name) {
  const std::optional<JsonField> field = root.try_member(name);
  return field ? T::parse(*field) : Result<T>(T());
}

// Every token that the post-processor adds must be one that a text can be made of.
Status check_around(const JsonField& root, std::span<const TokenId> tokens,
                    const Tokenizer& tokenizer) {
  for (const TokenId token : tokens) {
    if (!tokenizer.token_text(token)) {
      return root.error_below(".post_processor", ErrorCode::kCorrupt,
                              "adds the id " + std::to_string(token) + ", which no token has");
    }
  }
  return {};
}

}  // namespace

struct Tokenizer::Parts {
  BpeModel model;
  AddedTokens added;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  TokenizerTemplate around;
  TokenDecoder decoder;

  static Result<std::unique_ptr<Parts>> parse(const JsonField& root);
  // Appends the tokens of a text without raw added tokens. `begins_input`: the user's text begins
  // with it.
  Status encode_between(std::string_view text, bool begins_input, bool parse_special,
                        std::vector<TokenId>& out) const;
  Status encode_pieces(std::string text, bool begins_input, std::vector<TokenId>& out) const;
};

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& model_dir) {
  constexpr auto kBytesMax = static_cast<std::int64_t>(kJsonBytesMax);
  const std::string path = (model_dir / "tokenizer.json").string();
  PosixFiles files;
  STEMMA_ASSIGN_OR_RETURN(const std::string json, read_file(files, path, kBytesMax));
  STEMMA_ASSIGN_OR_RETURN(Tokenizer tokenizer, parse(json, path));
  STEMMA_ASSIGN_OR_RETURN(const TokenizerConfig config, read_tokenizer_config(model_dir));
  STEMMA_RETURN_IF_ERROR(tokenizer.obey(config));
  return tokenizer;
}

Result<Tokenizer> Tokenizer::parse(std::string_view json, std::string_view file_name) {
  STEMMA_ASSIGN_OR_RETURN(const JsonText text, JsonText::parse(json, file_name));
  const JsonField root = text.root();
  STEMMA_RETURN_IF_ERROR(root.expect_object());
  STEMMA_ASSIGN_OR_RETURN(std::unique_ptr<Parts> parts, Parts::parse(root));
  Tokenizer tokenizer(std::move(parts));
  STEMMA_RETURN_IF_ERROR(check_around(root, tokenizer.parts_->around.before(), tokenizer));
  STEMMA_RETURN_IF_ERROR(check_around(root, tokenizer.parts_->around.after(), tokenizer));
  return tokenizer;
}

Status Tokenizer::obey(const TokenizerConfig& config) {
  const JsonField fields(config.fields, config.path, "");
  STEMMA_RETURN_IF_ERROR(
      parts_->added.obey(fields, parts_->model.vocabulary(), parts_->normalizer));
  STEMMA_ASSIGN_OR_RETURN(const TokenizerFlags flags, read_tokenizer_flags(fields));
  STEMMA_ASSIGN_OR_RETURN(const auto begin, tokens_of(flags.begin, config.path));
  STEMMA_ASSIGN_OR_RETURN(const auto end, tokens_of(flags.end, config.path));
  if (begin) parts_->around.set_before(*begin);
  if (end) parts_->around.set_after(*end);
  const TokensAround around = tokens_around();
  if (flags.obeyed && !begin && !end && around.before + around.behind == 0) {
    STEMMA_LOG(kWarning, "model.tokenizer.bare_texts", kv("file", config.path),
               kv("lacks", flags.begin.name));
  }
  return {};
}

Result<std::optional<std::vector<TokenId>>> Tokenizer::tokens_of(const TokenizerFlag& flag,
                                                                 std::string_view file_name) const {
  if (!flag.token) return std::optional<std::vector<TokenId>>();
  if (flag.token->empty()) return std::optional(std::vector<TokenId>());
  const std::optional<TokenId> id = token_id(*flag.token);
  if (!id) {
    return Error{ErrorCode::kCorrupt, std::string(file_name) + ": " + std::string(flag.name) +
                                          ": asks for " + in_quotes(*flag.token) +
                                          ", which is no token of tokenizer.json"};
  }
  return std::optional(std::vector<TokenId>{*id});
}

Result<std::unique_ptr<Tokenizer::Parts>> Tokenizer::Parts::parse(const JsonField& root) {
  auto parts = std::make_unique<Parts>();
  STEMMA_ASSIGN_OR_RETURN(const JsonField model, root.member("model"));
  STEMMA_ASSIGN_OR_RETURN(parts->model, BpeModel::parse(model));
  STEMMA_ASSIGN_OR_RETURN(parts->normalizer, parse_member<Normalizer>(root, "normalizer"));
  STEMMA_ASSIGN_OR_RETURN(parts->pre_tokenizer, parse_member<PreTokenizer>(root, "pre_tokenizer"));
  STEMMA_ASSIGN_OR_RETURN(parts->around, parse_member<TokenizerTemplate>(root, "post_processor"));
  STEMMA_ASSIGN_OR_RETURN(parts->decoder, parse_member<TokenDecoder>(root, "decoder"));
  if (const auto added = root.try_member("added_tokens")) {
    STEMMA_ASSIGN_OR_RETURN(
        parts->added, AddedTokens::parse(*added, parts->model.vocabulary(), parts->normalizer));
  }
  if (parts->model.lacks_unknown()) {
    const auto token = parts->added.vocabulary().id_of(parts->model.unknown_text());
    if (!token) {
      return model.error_below(".unk_token", ErrorCode::kCorrupt,
                               in_quotes(parts->model.unknown_text()) + " is not in model.vocab");
    }
    parts->model.set_unknown(*token);
  }
  return parts;
}

Tokenizer::Tokenizer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  if (text.size() > kTextBytesMax) {
    return Error{ErrorCode::kTooLarge, "the text has " + std::to_string(text.size()) +
                                           " bytes; at most " + std::to_string(kTextBytesMax) +
                                           " can be encoded at once"};
  }
  std::string repaired;
  if (!is_utf8(text)) {
    repaired = utf8_repaired(text);
    text = repaired;
  }
  std::vector<TokenId> tokens;
  if (options.add_special_tokens) {
    tokens.assign(parts_->around.before().begin(), parts_->around.before().end());
  }
  for (const AddedTokens::Part& part :
       parts_->added.cut(text, AddedTokens::Form::kRaw, options.parse_special_tokens)) {
    if (part.token) {
      tokens.push_back(*part.token);
      continue;
    }
    STEMMA_RETURN_IF_ERROR(parts_->encode_between(part.range.of(text), part.range.begin == 0,
                                                  options.parse_special_tokens, tokens));
  }
  if (options.add_special_tokens) {
    tokens.insert(tokens.end(), parts_->around.after().begin(), parts_->around.after().end());
  }
  return tokens;
}

TokensAround Tokenizer::tokens_around() const {
  return {.before = std::ssize(parts_->around.before()),
          .behind = std::ssize(parts_->around.after())};
}

// A text whose first spaces the normalizer takes off does not begin the input any more: what is
// left of it stands behind them, as Hugging Face's tokenizers count.
Status Tokenizer::Parts::encode_between(std::string_view text, bool begins_input,
                                        bool parse_special, std::vector<TokenId>& out) const {
  STEMMA_ASSIGN_OR_RETURN(const NormalizedText normalized, normalizer.apply(std::string(text)));
  const bool may_begin = begins_input && normalized.keeps_begin;
  for (const AddedTokens::Part& part :
       added.cut(normalized.text, AddedTokens::Form::kNormalized, parse_special)) {
    if (part.token) {
      out.push_back(*part.token);
      continue;
    }
    STEMMA_RETURN_IF_ERROR(encode_pieces(std::string(part.range.of(normalized.text)),
                                         may_begin && part.range.begin == 0, out));
  }
  return {};
}

Status Tokenizer::Parts::encode_pieces(std::string text, bool begins_input,
                                       std::vector<TokenId>& out) const {
  if (text.size() > kNormalizedBytesMax) {
    return Error{ErrorCode::kTooLarge, "the normalized text is longer than 1 GiB"};
  }
  STEMMA_ASSIGN_OR_RETURN(const TextPieces cut, pre_tokenizer.apply(std::move(text), begins_input));
  BpeScratch scratch;
  for (const TextPieces::Piece& piece : cut.pieces) {
    model.encode(piece.range.of(cut.text), scratch, out);
  }
  return {};
}

std::string Tokenizer::decode(std::span<const TokenId> tokens, bool skip_special_tokens) const {
  DecodeStream stream(parts_->decoder);
  std::string text;
  for (const TokenId token : tokens) {
    if (skip_special_tokens && is_special(token)) {
      continue;
    }
    if (const std::optional<std::string_view> spelled = token_text(token)) {
      stream.push(*spelled, text);
    }
  }
  stream.flush(text);
  return text;
}

std::int64_t Tokenizer::vocab_tokens() const {
  return std::max(parts_->model.vocabulary().end_id(), parts_->added.vocabulary().end_id());
}

std::optional<TokenId> Tokenizer::token_id(std::string_view token_text) const {
  const auto added = parts_->added.vocabulary().id_of(token_text);
  return added ? added : parts_->model.vocabulary().id_of(token_text);
}

std::optional<std::string_view> Tokenizer::token_text(TokenId token) const {
  const auto added = parts_->added.vocabulary().text_of(token);
  return added ? added : parts_->model.vocabulary().text_of(token);
}

bool Tokenizer::is_special(TokenId token) const {
  return parts_->added.is_special(token);
}

void Tokenizer::show(std::string_view token_text) {
  if (const std::optional<TokenId> token = token_id(token_text)) parts_->added.show(*token);
}

const TokenDecoder& Tokenizer::decoder() const {
  return parts_->decoder;
}

}  // namespace stemma
