// Bytes as commands to a prefix cache and to its naive model: they agree and audit clean after
// each.
//
// The first byte chooses page size, eviction order and look-up hash; then each command is one byte
// of kind and whatever bytes it takes.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>

#include "prefix/prefix_twins.h"

namespace {

constexpr std::array kOrders = {"lru", "lfu", "fifo", "mru", "filo", "slru", "priority", "gdsf"};

class Commands {
 public:
  explicit Commands(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  std::uint8_t take() {
    if (bytes_.empty()) return 0;
    const std::uint8_t byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return byte;
  }
  // Up to seven pages over two tokens: a byte of length, a byte of bits.
  stemma::PrefixTwins::Tokens text(std::int64_t page_size) {
    const std::int64_t tokens = take() % 8 * page_size;
    stemma::PrefixTwins::Tokens text;
    std::uint8_t bits = 0;
    for (std::int64_t i = 0; i < tokens; ++i) {
      if (i % 8 == 0) bits = take();
      text.push_back(bits >> (i % 8) & 1);
    }
    return text;
  }

 private:
  std::span<const std::uint8_t> bytes_;
};

void run_one(stemma::PrefixTwins& twins, Commands& commands, std::int64_t page_size) {
  const std::uint8_t command = commands.take();
  const std::size_t ns = command >> 7;
  const std::size_t held = twins.held() == 0 ? 0 : commands.take() % twins.held();
  switch (command % 6) {
    case 0:
      if (twins.held() < 6) twins.match(ns, commands.text(page_size));
      break;
    case 1:
      if (twins.held() > 0) twins.insert(held, command >> 4 & 7, command >> 2 & 3);
      break;
    case 2:
      if (twins.held() > 0) twins.unlock(held);
      break;
    case 3:
      twins.evict(command >> 4 & 7);
      break;
    case 4:
      twins.probe(ns, commands.text(page_size));
      break;
    default:
      twins.reset();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  Commands commands({bytes, size});
  const std::uint8_t shape = commands.take();
  const stemma::TwinsOptions options{.page_size = 1 + shape % 3,
                                     .pages = 12,
                                     .namespaces = 2,
                                     .eviction = kOrders[shape / 3 % kOrders.size()],
                                     .hash_bits = shape >= 128 ? 32 : 2};
  stemma::PrefixTwins twins(options);
  while (!commands.empty()) {
    run_one(twins, commands, options.page_size);
    if (const auto difference = twins.difference()) {
      std::fprintf(stderr, "%s\n", difference->c_str());
      std::abort();
    }
  }
  return 0;
}
