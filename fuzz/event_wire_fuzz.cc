// Any bytes as a batch of KV events: refused, or read within its bounds and taken by an index and a
// stream that do not break, whatever it says. The first byte is how many batches the rest is cut
// into.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "events/event_index.h"
#include "events/event_stream.h"

namespace {

class IndexSink final : public stemma::EventBatchSink {
 public:
  void take(std::uint64_t, const stemma::WireBatch& batch) override {
    for (const stemma::WireEvent& event : batch.events) {
      const std::size_t pages = event.hashes.size();
      STEMMA_CHECK(event.tokens.empty() ||
                       event.tokens.size() == pages * static_cast<std::size_t>(event.page_size),
                   "tokens fill the pages");
      for (const stemma::EventHash& hash : event.hashes) {
        STEMMA_CHECK(!hash.bytes().empty() && hash.bytes().size() <= stemma::EventHash::kBytesMax,
                     "hashes have their bytes");
      }
    }
    index.apply(batch);
  }
  void forget() override { index.clear(); }

  stemma::EventIndex index;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size_bytes) {
  if (size_bytes < 2) return 0;
  const std::size_t batches = bytes[0] % 4 + std::size_t{1};
  const std::span<const std::uint8_t> rest(bytes + 1, size_bytes - 1);
  IndexSink sink;
  stemma::EventStream stream(sink, nullptr);
  for (std::size_t i = 0; i < batches; ++i) {
    const std::size_t begin = rest.size() * i / batches;
    const auto piece = rest.subspan(begin, rest.size() * (i + 1) / batches - begin);
    stream.take({i, {piece.begin(), piece.end()}});
  }
  STEMMA_CHECK(sink.index.difference(sink.index) == std::nullopt, "an index equals itself");
  return 0;
}
