// A message is the sizes of all arrays, the sizes of pages, and then the arrays, each from a whole
// word on. Both directions walk the arrays by one function, in one order.
#include "model/batch_message.h"

#include <array>
#include <cstddef>
#include <cstring>

#include "base/check.h"
#include "base/math.h"

namespace stemma {

namespace {

constexpr std::size_t kArrays = 14;
constexpr std::size_t kHeaderWords = kArrays + 2;  // and the tokens a page has, of both tables

// Calls visit(array) for every array of `batch`, in the message's order.
template <typename Batch, typename Visit>
void for_each_array(Batch& batch, Visit visit) {
  visit(batch.tokens);
  visit(batch.positions);
  visit(batch.write_slots);
  visit(batch.row_indptr);
  visit(batch.requests);
  visit(batch.adapters);
  visit(batch.windowed_slots);
  visit(batch.logit_rows);
  visit(batch.page_table.indptr);
  visit(batch.page_table.pages);
  visit(batch.windowed_table.indptr);
  visit(batch.windowed_table.pages);
  visit(batch.page_table.last_page_tokens);
  visit(batch.windowed_table.last_page_tokens);
}

std::size_t words_for(std::size_t elements, std::size_t element_bytes) {
  return ceil_div(elements * element_bytes, sizeof(std::int64_t));
}

}  // namespace

void write_batch(const KvBatch& batch, std::vector<std::int64_t>& words) {
  STEMMA_CHECK(batch.arriving == nullptr, "pages are whole before other ranks hear of them");
  words.assign(kHeaderWords, 0);
  words[kArrays] = batch.page_table.page_size;
  words[kArrays + 1] = batch.windowed_table.page_size;
  std::size_t index = 0;
  for_each_array(batch, [&](const auto& array) {
    words[index++] = static_cast<std::int64_t>(array.size());
    const std::size_t at = words.size();
    words.resize(at + words_for(array.size(), sizeof(array[0])));
    if (!array.empty()) std::memcpy(&words[at], array.data(), array.size_bytes());
  });
}

Result<KvBatch> read_batch(std::span<const std::int64_t> words) {
  const Error wrong = {ErrorCode::kCorrupt, "ranks: what came is no batch"};
  if (words.size() < kHeaderWords) return wrong;
  KvBatch batch;
  batch.page_table.page_size = words[kArrays];
  batch.windowed_table.page_size = words[kArrays + 1];
  std::size_t index = 0;
  std::size_t at = kHeaderWords;
  bool fits = true;
  for_each_array(batch, [&]<typename T>(std::span<const T>& array) {
    const auto elements = static_cast<std::size_t>(words[index++]);
    fits = fits && elements <= words.size() * sizeof(std::int64_t) &&
           words_for(elements, sizeof(T)) <= words.size() - at;
    if (!fits) return;
    array = {reinterpret_cast<const T*>(words.data() + at), elements};
    at += words_for(elements, sizeof(T));
  });
  if (!fits || at != words.size()) return wrong;
  return batch;
}

}  // namespace stemma
