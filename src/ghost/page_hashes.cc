// Pairs of tokens are mixed each by itself, with its place, and added up: a processor does several
// at a time. Only the step from page to page waits for the one before it.
#include "ghost/page_hashes.h"

#include "base/check.h"
#include "base/prng.h"

namespace stemma {

namespace {

std::uint64_t pair_of(TokenId first, TokenId second) {
  return std::uint64_t{static_cast<std::uint32_t>(first)} << 32 |
         static_cast<std::uint32_t>(second);
}

std::uint64_t mix_page(std::span<const TokenId> tokens) {
  constexpr std::uint64_t kPlace = 0xD1B54A32D192ED03u;  // odd: places differ in their high bits
  std::uint64_t sum = 0;
  std::uint64_t place = kPlace;
  std::size_t i = 0;
  for (; i + 1 < tokens.size(); i += 2, place += kPlace) {
    sum += mix64(pair_of(tokens[i], tokens[i + 1]) ^ place);
  }
  if (i < tokens.size()) sum += mix64(pair_of(tokens[i], 0) ^ place);
  return sum;
}

}  // namespace

void hash_pages(std::int64_t namespace_id, std::span<const TokenId> tokens, std::int64_t page_size,
                std::vector<std::int64_t>& hashes) {
  STEMMA_CHECK(page_size >= 1, "a page holds a token");
  hashes.clear();
  const auto page = static_cast<std::size_t>(page_size);
  std::uint64_t hash = mix64(static_cast<std::uint64_t>(namespace_id));
  for (std::size_t begin = 0; begin + page <= tokens.size(); begin += page) {
    hash = mix64(hash ^ mix_page(tokens.subspan(begin, page)));
    hashes.push_back(static_cast<std::int64_t>(hash));
  }
}

}  // namespace stemma
