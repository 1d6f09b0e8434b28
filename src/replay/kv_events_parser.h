// KvEventsParser: requests told from what a server publishes about its KV cache.
//
// A line is one batch as vLLM and SGLang publish it, written as JSON: `{"ts", "events"}` or the
// positional `[ts, events, ...]`, `ts` in seconds; an event is `{"type": "BlockStored",
// "block_hashes", "parent_block_hash", "token_ids", "block_size", ...}` or the positional
// `["BlockStored", hashes, parent, token_ids, block_size, ...]`, and likewise "BlockRemoved"
// (hashes) and "AllBlocksCleared". Hashes are integers or texts. Fields and events unknown here are
// passed over, and so are stores in another medium than the GPU and in other groups than the first.
//
// Such a stream says what was stored, not what was asked for. A request is told from it so: stores
// each of which continues the last page of the one before it, with at most kContinuesMs between,
// are one run; a run has ended when that time is over, and becomes a request at its last store's
// time. Its pages are the run's and all that they stand behind. Hence:
//
//   - a request that was found whole stored nothing, and is not seen: hit rates come out too low;
//   - prompt and output are not told apart: both count as looked up, output_tokens is 0;
//   - a turn that follows within kContinuesMs is taken for a part of the one before it;
//   - pages whose beginning was stored before the stream began stand where the stream begins.
//
// Thread:     one thread a parser.
// Memory:     some 100 bytes a page that is stored and not removed, at most kPagesMax of them.
// Cost:       parsing, and a look-up a page.
// Not here:   ZeroMQ and msgpack (whoever captures a server's stream).
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/drawn_hash.h"
#include "replay/trace_parser.h"

namespace stemma {

// What one event asks for.
struct KvEvent {
  enum class Kind : std::uint8_t { kStored, kRemoved, kCleared, kPassedOver };
  Kind kind = Kind::kPassedOver;
  std::vector<std::int64_t> hashes;
  std::optional<std::int64_t> parent;
};

class KvEventsParser final : public TraceParser {
 public:
  // Chunks of a prompt follow each other within a step, pages of output within 16 tokens: faster
  // than this on any server in use. A person's next turn takes longer.
  static constexpr double kContinuesMs = 5000;
  static constexpr std::size_t kPagesMax = std::size_t{1} << 22;

  Status take(std::string_view line, std::string_view where) override;
  bool try_next(TraceRequest& request) override;
  void end() override;
  std::int64_t page_tokens() const override { return page_tokens_; }
  // Not those at which a chain was cut.
  bool hashes_are_chained() const override { return false; }

 private:
  struct Run {
    double latest_ms = 0;
    std::int64_t latest_store = 0;  // of all stores
    std::int64_t last_page = 0;
  };

  bool ends_oldest_run(const KvEvent& event);
  std::int64_t youngest_ended_by(const KvEvent& event) const;
  void apply(const KvEvent& event);
  void store(const KvEvent& event);
  void end_oldest_run(TraceRequest& request);
  std::vector<std::int64_t> chain_to(std::int64_t last_page) const;

  std::int64_t page_tokens_ = 0;
  double now_ms_ = 0;                       // of the last batch
  double runs_end_ms_ = 0;                  // runs whose last store is older have ended
  std::deque<KvEvent> events_;              // of the last batch, not yet applied
  std::optional<std::int64_t> first_ends_;  // youngest_ended_by the first of them, once it is asked
  std::int64_t stores_ = 0;
  std::unordered_map<std::int64_t, std::optional<std::int64_t>, DrawnHash>
      parents_;          // of stored pages
  std::list<Run> runs_;  // open ones, by their last store
  std::unordered_map<std::int64_t, std::list<Run>::iterator, DrawnHash> run_of_last_page_;
};

}  // namespace stemma
