// A message is numbers, the sizes of all lists, and then the lists, each from a whole word on. Both
// directions walk the lists by one function, in one order.
#include "tier/transfer_message.h"

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "base/check.h"
#include "base/math.h"

namespace stemma {

namespace {

// Places of numbers in a message.
enum Number : std::size_t {
  kPlace,
  kKind,
  kGroup,
  kStore,
  kFirstPage,
  kLeftUs,
  kSizes,  // of the lists
};
constexpr std::size_t kLists = 6;
constexpr std::size_t kDigestWords = sizeof(NamespaceDigest) / sizeof(std::int64_t);
constexpr std::size_t kParentWords = sizeof(PageKey) / sizeof(std::int64_t);
constexpr std::size_t kDigestAt = kSizes + kLists;
constexpr std::size_t kParentAt = kDigestAt + kDigestWords;
constexpr std::size_t kHeaderWords = kParentAt + kParentWords;

// Calls visit(list) for every list of `job`, in the message's order.
template <typename Job, typename Visit>
void for_each_list(Job& job, Visit visit) {
  visit(job.tokens);
  visit(job.keys);
  visit(job.before);
  visit(job.from);
  visit(job.to);
  visit(job.namespaces);
}

template <typename T>
void copy_out(std::span<const std::int64_t> words, T* to, std::size_t count = 1) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (count > 0) std::memcpy(static_cast<void*>(to), words.data(), count * sizeof(T));
}

template <typename T>
std::size_t words_for(std::size_t elements) {
  static_assert(std::is_trivially_copyable_v<T>);
  return ceil_div(elements * sizeof(T), sizeof(std::int64_t));
}

}  // namespace

void write_transfer(const Transfer& job, std::int64_t now_us, std::vector<std::int64_t>& words) {
  words.assign(kHeaderWords, 0);
  words[kPlace] = job.place;
  words[kKind] = static_cast<std::int64_t>(job.kind);
  words[kGroup] = static_cast<std::int64_t>(job.group);
  words[kStore] = job.store;
  words[kFirstPage] = job.first_page;
  words[kLeftUs] = job.deadline_us - now_us;
  std::memcpy(&words[kDigestAt], &job.digest, sizeof(job.digest));
  std::memcpy(&words[kParentAt], &job.parent, sizeof(job.parent));
  std::size_t index = kSizes;
  for_each_list(job, [&]<typename T>(const std::vector<T>& list) {
    words[index++] = std::ssize(list);
    const std::size_t at = words.size();
    words.resize(at + words_for<T>(list.size()));
    if (!list.empty()) std::memcpy(&words[at], list.data(), list.size() * sizeof(T));
  });
}

std::int64_t transfer_place(std::span<const std::int64_t> words) {
  STEMMA_CHECK(words.size() >= kHeaderWords, "ranks: what came is no transfer");
  return words[kPlace];
}

void read_transfer(std::span<const std::int64_t> words, std::int64_t now_us, Transfer& job) {
  job.place = transfer_place(words);
  job.kind = static_cast<TransferKind>(words[kKind]);
  job.group = static_cast<LayerGroup>(words[kGroup]);
  job.store = static_cast<int>(words[kStore]);
  job.first_page = words[kFirstPage];
  job.deadline_us = words[kLeftUs] + now_us;
  copy_out(words.subspan(kDigestAt), &job.digest);
  copy_out(words.subspan(kParentAt), &job.parent);
  std::size_t index = kSizes;
  std::size_t at = kHeaderWords;
  for_each_list(job, [&]<typename T>(std::vector<T>& list) {
    list.resize(static_cast<std::size_t>(words[index++]));
    const std::size_t used = words_for<T>(list.size());
    STEMMA_CHECK(used <= words.size() - at, "ranks: what came is no transfer");
    copy_out(words.subspan(at), list.data(), list.size());
    at += used;
  });
  STEMMA_CHECK_EQ(at, words.size());
}

}  // namespace stemma
