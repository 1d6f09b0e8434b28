#include "model/tokenizer_decoder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "model/tokenizer_bytes.h"
#include "model/tokenizer_normalizer.h"

namespace stemma {

TokenDecoder::TokenDecoder() {
  push_step(JoinWithSpaces{});
}

Result<TokenDecoder> TokenDecoder::parse(const JsonField& field) {
  TokenDecoder decoder;
  decoder.steps_.clear();
  STEMMA_RETURN_IF_ERROR(for_each_step(
      field, "decoders",
      [&](std::string_view type, const JsonField& step) { return decoder.add_step(type, step); }));
  return decoder;
}

Status TokenDecoder::add_step(std::string_view type, const JsonField& field) {
  if (type == "Fuse") {
    fused_ = true;
    return {};
  }
  if (type == "Replace") {
    return add_replace(field);
  }
  if (type == "Strip") {
    return add_strip(field);
  }
  if (type == "Metaspace") {
    return add_metaspace(field);
  }
  if (type == "ByteFallback") {
    STEMMA_RETURN_IF_ERROR(expect_tokens(field, type));
    push_step(ByteFallback{});
    after_byte_fallback_ = true;
    return {};
  }
  if (type == "ByteLevel") {
    STEMMA_RETURN_IF_ERROR(expect_tokens(field, type));
    push_step(ByteLevel{});
    fused_ = true;
    return {};
  }
  return field.unsupported("decoder " + in_quotes(type) + " is not supported");
}

// After a Fuse there is one token, the whole text: what looks at tokens has nothing sensible to do.
Status TokenDecoder::expect_tokens(const JsonField& field, std::string_view type) const {
  if (fused_) {
    return field.unsupported(std::string(type) + " after Fuse or ByteLevel is not supported");
  }
  return {};
}

Status TokenDecoder::add_replace(const JsonField& field) {
  STEMMA_ASSIGN_OR_RETURN(const JsonField pattern_field, field.member("pattern"));
  STEMMA_ASSIGN_OR_RETURN(TextPattern pattern, TextPattern::parse(pattern_field));
  STEMMA_ASSIGN_OR_RETURN(const JsonField content_field, field.member("content"));
  STEMMA_ASSIGN_OR_RETURN(const std::string_view content, content_field.as_string());
  if (pattern.is_regex()) {
    STEMMA_RETURN_IF_ERROR(expect_tokens(field, "Replace with a Regex"));
  }
  growth_ *= pattern.growth_max(content);  // two factors of at most 2^30 each
  if (growth_ > kGrowthMax) {
    return field.error(ErrorCode::kTooLarge,
                       "the replacements make a text more than 1024 times longer");
  }
  push_step(Replace{std::move(pattern), std::string(content)});
  return {};
}

Status TokenDecoder::add_strip(const JsonField& field) {
  constexpr std::int64_t kCharsMax = 1024;
  if (after_byte_fallback_ && !fused_) {
    return field.unsupported("Strip after ByteFallback without Fuse between is not supported");
  }
  Strip strip;
  STEMMA_ASSIGN_OR_RETURN(const JsonField content, field.member("content"));
  STEMMA_ASSIGN_OR_RETURN(const char32_t code, content.as_character());
  utf8_append(code, strip.symbol);
  STEMMA_ASSIGN_OR_RETURN(const JsonField start, field.member("start"));
  STEMMA_ASSIGN_OR_RETURN(strip.start_chars, start.as_integer(0, kCharsMax));
  STEMMA_ASSIGN_OR_RETURN(const JsonField stop, field.member("stop"));
  STEMMA_ASSIGN_OR_RETURN(strip.stop_chars, stop.as_integer(0, kCharsMax));
  push_step(std::move(strip));
  return {};
}

Status TokenDecoder::add_metaspace(const JsonField& field) {
  Metaspace metaspace;
  STEMMA_ASSIGN_OR_RETURN(const JsonField symbol, field.member("replacement"));
  STEMMA_ASSIGN_OR_RETURN(const char32_t code, symbol.as_character());
  utf8_append(code, metaspace.symbol);
  STEMMA_ASSIGN_OR_RETURN(const bool prefix, field.bool_or("add_prefix_space", true));
  STEMMA_ASSIGN_OR_RETURN(const std::string_view scheme,
                          field.string_or("prepend_scheme", prefix ? "always" : "never"));
  metaspace.drop_first = scheme != "never";
  push_step(std::move(metaspace));
  return {};
}

DecodeStream::DecodeStream(const TokenDecoder& decoder) : decoder_(&decoder) {
  reset();
}

void DecodeStream::reset() {
  memories_.clear();
  memories_.resize(decoder_->steps().size());
  for (std::size_t step = 0; step < memories_.size(); ++step) {
    if (std::holds_alternative<TokenDecoder::ByteLevel>(decoder_->steps()[step].kind)) {
      memories_[step].bytes = Utf8Assembler(Utf8Assembler::IllFormed::kOnePerSequence);
    }
  }
}

void DecodeStream::begin_behind_others() {
  for (Memory& memory : memories_) {
    memory.start_over = true;
    memory.pieces = 1;
  }
}

void DecodeStream::push(std::string_view token_text, std::string& out) {
  feed(0, token_text, out);
}

void DecodeStream::flush(std::string& out) {
  for (std::size_t step = 0; step < memories_.size(); ++step) {
    finish(step, out);
  }
  reset();
}

// Hands a piece to a step, which hands what it makes of it to the next.
void DecodeStream::feed(std::size_t step, std::string_view piece, std::string& out) {
  if (step == memories_.size()) {
    out.append(piece);
    return;
  }
  std::visit([&](const auto& kind) { pass(step, kind, piece, out); }, decoder_->steps()[step].kind);
}

// Nothing more comes to this step: it lets go of what it holds back, except what it is there to
// remove.
void DecodeStream::finish(std::size_t step, std::string& out) {
  Memory& memory = memories_[step];
  std::string rest;
  if (!std::holds_alternative<TokenDecoder::Strip>(decoder_->steps()[step].kind)) {
    rest = std::move(memory.held);
  }
  memory.bytes.flush(rest);
  if (!rest.empty()) {
    feed(step + 1, rest, out);
  }
}

// In a text that goes on, the longest end that could begin the pattern waits for more.
void DecodeStream::pass(std::size_t step, const TokenDecoder::Replace& replace,
                        std::string_view piece, std::string& out) {
  if (!decoder_->steps()[step].fused) {
    const Result<std::string> replaced = replace.pattern.replace_all(piece, replace.content);
    feed(step + 1, replaced.ok() ? std::string_view(replaced.value()) : piece, out);
    return;
  }
  const std::string& sought = replace.pattern.literal_text();
  std::string& held = memories_[step].held;
  held.append(piece);
  std::string certain;
  std::size_t at = 0;
  for (std::size_t match = held.find(sought); match != std::string::npos;
       match = held.find(sought, at)) {
    certain.append(held, at, match - at).append(replace.content);
    at = match + sought.size();
  }
  std::size_t kept = std::min(sought.size() - 1, held.size() - at);
  while (kept > 0 && !sought.starts_with(std::string_view(held).substr(held.size() - kept))) {
    --kept;
  }
  certain.append(held, at, held.size() - kept - at);
  held.erase(0, held.size() - kept);
  feed(step + 1, certain, out);
}

void DecodeStream::pass(std::size_t step, const TokenDecoder::ByteFallback&, std::string_view piece,
                        std::string& out) {
  std::string characters;
  if (const std::optional<std::uint8_t> byte = byte_token_byte(piece)) {
    memories_[step].bytes.push(*byte, characters);
    if (!characters.empty()) {
      feed(step + 1, characters, out);
    }
    return;
  }
  finish(step, out);
  feed(step + 1, piece, out);
}

void DecodeStream::pass(std::size_t step, const TokenDecoder::Strip& strip, std::string_view piece,
                        std::string& out) {
  if (!decoder_->steps()[step].fused) {
    memories_[step] = Memory{};
  }
  Memory& memory = memories_[step];
  while (!memory.start_over && !piece.empty()) {
    memory.start_over =
        memory.stripped_chars == strip.start_chars || !piece.starts_with(strip.symbol);
    if (!memory.start_over) {
      piece.remove_prefix(strip.symbol.size());
      ++memory.stripped_chars;
    }
  }
  std::string certain = std::exchange(memory.held, {}).append(piece);
  const std::size_t symbol_bytes = strip.symbol.size();
  std::size_t kept = 0;
  for (std::int64_t chars = 0; chars < strip.stop_chars; ++chars) {
    if (!std::string_view(certain).substr(0, certain.size() - kept).ends_with(strip.symbol)) {
      break;
    }
    kept += symbol_bytes;
  }
  memory.held = certain.substr(certain.size() - kept);
  certain.resize(certain.size() - kept);
  feed(step + 1, certain, out);
}

void DecodeStream::pass(std::size_t step, const TokenDecoder::Metaspace& metaspace,
                        std::string_view piece, std::string& out) {
  const bool is_first = decoder_->steps()[step].fused || memories_[step].pieces == 0;
  ++memories_[step].pieces;
  std::string spaced;
  std::size_t at = 0;
  for (std::size_t match = piece.find(metaspace.symbol); match != std::string_view::npos;
       match = piece.find(metaspace.symbol, at)) {
    spaced.append(piece.substr(at, match - at)).append(is_first && metaspace.drop_first ? "" : " ");
    at = match + metaspace.symbol.size();
  }
  feed(step + 1, spaced.append(piece.substr(at)), out);
}

void DecodeStream::pass(std::size_t step, const TokenDecoder::ByteLevel&, std::string_view piece,
                        std::string& out) {
  std::string spelled;
  for (std::size_t at = 0; at < piece.size(); at = utf8_next(piece, at)) {
    const std::optional<std::uint8_t> byte = byte_level_byte(utf8_code_at(piece, at));
    if (!byte) {
      spelled = piece;
      break;
    }
    spelled.push_back(static_cast<char>(*byte));
  }
  std::string characters;
  for (const char byte : spelled) {
    memories_[step].bytes.push(static_cast<std::uint8_t>(byte), characters);
  }
  if (!characters.empty()) {
    feed(step + 1, characters, out);
  }
}

void DecodeStream::pass(std::size_t step, const TokenDecoder::JoinWithSpaces&,
                        std::string_view piece, std::string& out) {
  feed(step + 1, memories_[step].pieces++ == 0 ? "" : " ", out);
  feed(step + 1, piece, out);
}

}  // namespace stemma
