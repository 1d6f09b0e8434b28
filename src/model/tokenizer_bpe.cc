#include "model/tokenizer_bpe.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/prng.h"
#include "model/tokenizer_bytes.h"
#include "model/unicode_text.h"

namespace stemma {
namespace {

using Json = nlohmann::json;

constexpr TokenId kNone = -1;

// The order of a min-heap: lowest rank first, leftmost of equal ranks first.
bool later(const BpeScratch::Candidate& a, const BpeScratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.place > b.place;
}

// The two halves of "a b" or ["a", "b"]; two empty ones if it is neither.
std::pair<std::string_view, std::string_view> halves_of(const Json& merge) {
  if (merge.is_string()) {
    const std::string_view line = merge.get_ref<const std::string&>();
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
      return {};
    }
    return {line.substr(0, space), line.substr(space + 1)};
  }
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()};
  }
  return {};
}

bool is_set(const JsonField& field, std::string_view name) {
  const auto member = field.try_member(name);
  return member && member->value() != Json("");
}

void add_symbol(TokenId token, BpeScratch& scratch) {
  const auto place = static_cast<std::int32_t>(scratch.symbols.size());
  if (place > 0) {
    scratch.symbols.back().next = place;
  }
  scratch.symbols.push_back({token, place - 1, -1, true});
}

}  // namespace

MergeTable::MergeTable(std::size_t merges_max) : slots_(std::bit_ceil(2 * merges_max + 2)) {}

std::uint64_t MergeTable::pair_of(TokenId left, TokenId right) {
  return (std::uint64_t{static_cast<std::uint32_t>(left)} << 32) |
         static_cast<std::uint32_t>(right);
}

// The place of the pair, or the free one where it would go.
std::size_t MergeTable::place_of(std::uint64_t pair) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t place = mix64(pair) & mask;
  while (slots_[place].pair != pair && slots_[place].pair != kFree) {
    place = (place + 1) & mask;
  }
  return place;
}

void MergeTable::put(TokenId left, TokenId right, Merge merge) {
  const std::uint64_t pair = pair_of(left, right);
  slots_[place_of(pair)] = {pair, merge};
}

const Merge* MergeTable::find_or_null(TokenId left, TokenId right) const {
  if (slots_.empty()) {
    return nullptr;
  }
  const Slot& slot = slots_[place_of(pair_of(left, right))];
  return slot.pair == kFree ? nullptr : &slot.merge;
}

Result<BpeModel> BpeModel::parse(const JsonField& field) {
  STEMMA_RETURN_IF_ERROR(field.expect_object());
  STEMMA_ASSIGN_OR_RETURN(const std::string_view type, field.string_or("type", "BPE"));
  if (type != "BPE") {
    return field.unsupported("model type " + in_quotes(type) + " is not supported, only BPE");
  }
  BpeModel model;
  STEMMA_RETURN_IF_ERROR(model.parse_options(field));
  STEMMA_ASSIGN_OR_RETURN(const JsonField vocabulary, field.member("vocab"));
  STEMMA_RETURN_IF_ERROR(model.parse_vocabulary(vocabulary));
  model.fill_quick_tables();
  STEMMA_ASSIGN_OR_RETURN(const JsonField merges, field.member("merges"));
  STEMMA_RETURN_IF_ERROR(model.parse_merges(merges));
  if (!model.unknown_text_.empty()) {
    model.unknown_ = model.vocabulary_.id_of(model.unknown_text_);
  }
  return model;
}

Status BpeModel::parse_options(const JsonField& field) {
  for (const std::string_view name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (is_set(field, name)) {
      return field.error_below("." + std::string(name), ErrorCode::kUnsupported,
                               "is not supported");
    }
  }
  if (const auto dropout = field.try_member("dropout")) {
    if (!dropout->value().is_number() || dropout->value().get<double>() != 0.0) {
      return dropout->unsupported("is not supported: the same text must give the same tokens");
    }
  }
  STEMMA_ASSIGN_OR_RETURN(const std::string_view unknown, field.string_or("unk_token", ""));
  unknown_text_ = std::string(unknown);
  STEMMA_ASSIGN_OR_RETURN(fuse_unknown_, field.bool_or("fuse_unk", false));
  STEMMA_ASSIGN_OR_RETURN(byte_fallback_, field.bool_or("byte_fallback", false));
  STEMMA_ASSIGN_OR_RETURN(ignore_merges_, field.bool_or("ignore_merges", false));
  return {};
}

Status BpeModel::parse_vocabulary(const JsonField& field) {
  STEMMA_RETURN_IF_ERROR(field.expect_object());
  std::vector<VocabularyEntry> entries;
  entries.reserve(field.value().size());
  for (const auto& [text, id] : field.value().get_ref<const Json::object_t&>()) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > kTokenIdMax) {
      return field.error_below("[" + in_quotes(text) + "]", ErrorCode::kCorrupt,
                               "must be an id from 0 to " + std::to_string(kTokenIdMax));
    }
    entries.push_back({id.get<TokenId>(), text});
  }
  Result<Vocabulary> vocabulary = Vocabulary::build(std::move(entries));
  if (!vocabulary.ok()) {
    return field.error(vocabulary.error().code, vocabulary.error().detail);
  }
  vocabulary_ = std::move(vocabulary).value();
  return {};
}

Status BpeModel::parse_merges(const JsonField& field) {
  STEMMA_RETURN_IF_ERROR(field.expect_array());
  merges_ = MergeTable(field.element_count());
  std::string text;
  for (std::size_t position = 0; position < field.element_count(); ++position) {
    STEMMA_RETURN_IF_ERROR(parse_merge(field, position, text));
  }
  return {};
}

Status BpeModel::parse_merge(const JsonField& merges, std::size_t position, std::string& text) {
  const auto refuse = [&](const std::string& what) {
    return merges.error_below("[" + std::to_string(position) + "]", ErrorCode::kCorrupt, what);
  };
  const Json& merge = merges.value()[position];
  if (merge.is_string() && merge.get_ref<const std::string&>().starts_with("#version")) {
    return {};  // the heading of a merges.txt, which older files carry along
  }
  const auto [left, right] = halves_of(merge);
  if (left.empty() || right.empty()) {
    return refuse("must be two tokens, as \"a b\" or [\"a\", \"b\"]");
  }
  text.assign(left).append(right);
  const auto left_id = vocabulary_.id_of(left);
  const auto right_id = vocabulary_.id_of(right);
  const auto merged_id = vocabulary_.id_of(text);
  if (!left_id || !right_id || !merged_id) {
    return refuse(in_quotes(!left_id    ? left
                            : !right_id ? right
                                        : std::string_view(text)) +
                  " is not in model.vocab");
  }
  merges_.put(*left_id, *right_id, {static_cast<std::int32_t>(position), *merged_id});
  return {};
}

void BpeModel::fill_quick_tables() {
  for (std::size_t code = 0; code < kQuickCharacters; ++code) {
    std::string character;
    utf8_append(static_cast<char32_t>(code), character);
    quick_tokens_[code] = vocabulary_.id_of(character).value_or(kNone);
  }
  for (std::size_t byte = 0; byte < byte_tokens_.size(); ++byte) {
    byte_tokens_[byte] =
        vocabulary_.id_of(byte_token_name(static_cast<std::uint8_t>(byte))).value_or(kNone);
  }
}

std::optional<TokenId> BpeModel::token_of(std::string_view character) const {
  const char32_t code = utf8_code_at(character, 0);
  if (code >= kQuickCharacters) {
    return vocabulary_.id_of(character);
  }
  return quick_tokens_[code] == kNone ? std::nullopt : std::optional<TokenId>(quick_tokens_[code]);
}

void BpeModel::encode(std::string_view piece, BpeScratch& scratch,
                      std::vector<TokenId>& out) const {
  if (ignore_merges_) {
    if (const std::optional<TokenId> whole = vocabulary_.id_of(piece)) {
      out.push_back(*whole);
      return;
    }
  }
  split(piece, scratch);
  if (scratch.symbols.empty()) {
    return;
  }
  merge_all(scratch);
  for (std::int32_t place = 0; place >= 0;
       place = scratch.symbols[static_cast<std::size_t>(place)].next) {
    out.push_back(scratch.symbols[static_cast<std::size_t>(place)].token);
  }
}

void BpeModel::split(std::string_view piece, BpeScratch& scratch) const {
  scratch.symbols.clear();
  bool after_unknown = false;
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t end = utf8_next(piece, at);
    const std::string_view character = piece.substr(at, end - at);
    at = end;
    if (const std::optional<TokenId> token = token_of(character)) {
      add_symbol(*token, scratch);
      after_unknown = false;
    } else if (byte_fallback_ && add_bytes(character, scratch)) {
      after_unknown = false;
    } else if (unknown_ && !(fuse_unknown_ && after_unknown)) {
      add_symbol(*unknown_, scratch);
      after_unknown = true;
    }
  }
}

// All bytes of the character, or none if the vocabulary lacks one of them.
bool BpeModel::add_bytes(std::string_view character, BpeScratch& scratch) const {
  const auto token_of_byte = [this](char byte) {
    return byte_tokens_[static_cast<unsigned char>(byte)];
  };
  if (std::any_of(character.begin(), character.end(),
                  [&](char byte) { return token_of_byte(byte) == kNone; })) {
    return false;
  }
  for (const char byte : character) {
    add_symbol(token_of_byte(byte), scratch);
  }
  return true;
}

// Queues the merge of the symbol at `place` with the one after it, if there is one.
void BpeModel::queue(std::int32_t place, BpeScratch& scratch) const {
  const auto& left = scratch.symbols[static_cast<std::size_t>(place)];
  if (left.next < 0) {
    return;
  }
  const auto& right = scratch.symbols[static_cast<std::size_t>(left.next)];
  if (const Merge* merge = merges_.find_or_null(left.token, right.token)) {
    scratch.heap.push_back({merge->rank, place, merge->token});
  }
}

// Takes the candidates in order. One is stale if its left token is dead or its pair makes another
// token by now.
void BpeModel::merge_all(BpeScratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  const auto symbol_at = [&](std::int32_t place) -> BpeScratch::Symbol& {
    return symbols[static_cast<std::size_t>(place)];
  };
  const auto queue_new = [&](std::int32_t place) {
    const std::size_t queued = heap.size();
    queue(place, scratch);
    if (heap.size() > queued) {
      std::push_heap(heap.begin(), heap.end(), later);
    }
  };
  heap.clear();
  for (std::size_t place = 0; place + 1 < symbols.size(); ++place) {
    queue(static_cast<std::int32_t>(place), scratch);
  }
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const BpeScratch::Candidate candidate = heap.back();
    heap.pop_back();
    BpeScratch::Symbol& left = symbol_at(candidate.place);
    if (!left.alive || left.next < 0) {
      continue;
    }
    BpeScratch::Symbol& right = symbol_at(left.next);
    const Merge* merge = merges_.find_or_null(left.token, right.token);
    if (merge == nullptr || merge->token != candidate.token) {
      continue;
    }
    left.token = merge->token;
    left.next = right.next;
    right.alive = false;
    if (left.next >= 0) {
      symbol_at(left.next).previous = candidate.place;
      queue_new(candidate.place);
    }
    if (left.previous >= 0) {
      queue_new(left.previous);
    }
  }
}

}  // namespace stemma
