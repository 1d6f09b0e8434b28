#include "model/tokenizer_normalizer.h"

#include <array>
#include <optional>
#include <utility>

namespace stemma {
namespace {

constexpr std::size_t kPrependBytesMax = 256;

std::optional<NormalForm> normal_form_named(std::string_view type) {
  constexpr std::array<std::pair<std::string_view, NormalForm>, 4> kForms = {{
      {"NFC", NormalForm::kNfc},
      {"NFD", NormalForm::kNfd},
      {"NFKC", NormalForm::kNfkc},
      {"NFKD", NormalForm::kNfkd},
  }};
  for (const auto& [name, form] : kForms) {
    if (name == type) {
      return form;
    }
  }
  return std::nullopt;
}

std::string stripped(std::string_view text, bool left, bool right) {
  if (left) {
    text.remove_prefix(leading_space_bytes(text));
  }
  if (right) {
    text.remove_suffix(trailing_space_bytes(text));
  }
  return std::string(text);
}

}  // namespace

Result<Normalizer> Normalizer::parse(const JsonField& field) {
  Normalizer normalizer;
  STEMMA_RETURN_IF_ERROR(
      for_each_step(field, "normalizers", [&](std::string_view type, const JsonField& step) {
        return normalizer.add_step(type, step);
      }));
  return normalizer;
}

Status Normalizer::add_step(std::string_view type, const JsonField& field) {
  if (type == "Prepend") {
    return add_prepend(field);
  }
  if (type == "Replace") {
    return add_replace(field);
  }
  if (type == "Strip") {
    return add_strip(field);
  }
  if (type == "Lowercase") {
    steps_.emplace_back(Lowercase{});
    return {};
  }
  if (const std::optional<NormalForm> form = normal_form_named(type)) {
    steps_.emplace_back(*form);
    return {};
  }
  return field.unsupported("normalizer " + in_quotes(type) + " is not supported");
}

Status Normalizer::add_prepend(const JsonField& field) {
  STEMMA_ASSIGN_OR_RETURN(const JsonField text, field.member("prepend"));
  STEMMA_ASSIGN_OR_RETURN(const std::string_view prepend, text.as_string());
  if (prepend.size() > kPrependBytesMax) {
    return text.error(ErrorCode::kTooLarge, "longer than 256 bytes");
  }
  steps_.emplace_back(Prepend{std::string(prepend)});
  return {};
}

Status Normalizer::add_replace(const JsonField& field) {
  STEMMA_ASSIGN_OR_RETURN(const JsonField pattern_field, field.member("pattern"));
  STEMMA_ASSIGN_OR_RETURN(TextPattern pattern, TextPattern::parse(pattern_field));
  STEMMA_ASSIGN_OR_RETURN(const JsonField content_field, field.member("content"));
  STEMMA_ASSIGN_OR_RETURN(const std::string_view content, content_field.as_string());
  growth_ *= pattern.growth_max(content);  // two factors of at most 2^30 each
  if (growth_ > kGrowthMax) {
    return field.error(ErrorCode::kTooLarge,
                       "the replacements make a text more than 1024 times longer");
  }
  steps_.emplace_back(Replace{std::move(pattern), std::string(content)});
  return {};
}

Status Normalizer::add_strip(const JsonField& field) {
  Strip strip;
  STEMMA_ASSIGN_OR_RETURN(strip.left, field.bool_or("strip_left", true));
  STEMMA_ASSIGN_OR_RETURN(strip.right, field.bool_or("strip_right", true));
  steps_.emplace_back(strip);
  return {};
}

Result<NormalizedText> Normalizer::apply(std::string text) const {
  NormalizedText normalized = {std::move(text)};
  for (const Step& step : steps_) {
    const auto* strip = std::get_if<Strip>(&step);
    if (strip != nullptr && strip->left && leading_space_bytes(normalized.text) > 0) {
      normalized.keeps_begin = false;
    }
    STEMMA_ASSIGN_OR_RETURN(normalized.text, apply_step(step, std::move(normalized.text)));
  }
  return normalized;
}

Result<std::string> Normalizer::apply_step(const Step& step, std::string text) {
  if (const auto* form = std::get_if<NormalForm>(&step)) {
    return normal_form(text, *form);
  }
  if (const auto* prepend = std::get_if<Prepend>(&step)) {
    return text.empty() ? text : prepend->text + text;
  }
  if (const auto* replace = std::get_if<Replace>(&step)) {
    return replace->pattern.replace_all(text, replace->content);
  }
  if (const auto* strip = std::get_if<Strip>(&step)) {
    return stripped(text, strip->left, strip->right);
  }
  return lower_case(text);
}

}  // namespace stemma
