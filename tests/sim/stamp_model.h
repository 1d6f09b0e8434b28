// StampModel: a Runner that computes nothing and checks everything.
//
// Into each slot it writes a stamp: a value computed from (hash of the prefix up to the token,
// position, layer, head). Each step it walks every request's pages through the page table, from
// position 0, and compares every slot of every layer and head with the stamp that belongs there (of
// windowed layers those in the window):
// a stale, evicted, misrouted, torn or doubly used page shows in the step that reads it. Latent
// rows and the labels of heavy channels are stamped and compared like K and V. Its logits are a
// function of the prefix hash, so that a request's output has a closed form (stamp_output).
//
// Thread:     one.
// Memory:     one row of logits an output.
// Cost:       O(context x layers x heads) a request and step: for tests.
// Not here:   who owns pages: KvCache::audit.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stemma/kv_pool.h"
#include "stemma/runner.h"

namespace stemma {

inline constexpr std::int64_t kStampVocab = 61;

// The pool shape that stamps need: f32, rows of V (or of what is V in latent rows) of at least 8.
KvShape stamp_shape(std::int64_t pages, std::int64_t page_size, KvKind kind = KvKind::kMha);
// A real pool of that shape, which may have other layers.
std::unique_ptr<KvPool> make_stamp_pool(const KvShape& shape, KvLayout layout);

// What the model answers to `prompt`, greedily, in closed form.
std::vector<TokenId> stamp_output(std::span<const TokenId> prompt, std::int64_t output_tokens);

class StampModel final : public Runner {
 public:
  Result<LogitsView> forward(const KvBatch& batch, KvPools pools) override;
  bool waits_by_layer() const override { return true; }

  // Has layers that look back over so many tokens only, as KvCacheOptions::window_tokens; 0: none.
  // At least 2 where the pool of the others has no layers: what the model answers hangs on what the
  // last token says of all before it.
  void look_back(std::int64_t window_tokens) noexcept { window_tokens_ = window_tokens; }

  // The first contradiction that was found; empty if none was.
  const std::string& fault() const noexcept { return fault_; }
  // The next step fails without computing anything.
  void fail_next_step() noexcept { fail_next_ = true; }
  // The next step writes half of its rows and then fails.
  void tear_next_step() noexcept { tear_next_ = true; }
  // Neither of the two, if no step has come since.
  void spare_next_step() noexcept { fail_next_ = tear_next_ = false; }
  std::int64_t computed_tokens() const noexcept { return computed_tokens_; }
  std::int64_t checked_slots() const noexcept { return checked_slots_; }

 private:
  struct Place;
  struct Stamped;

  void check_batch(const KvBatch& batch);
  void check_slots(const KvBatch& batch, std::span<const SlotId> slots, const PageTableView& table,
                   std::vector<SlotId>& sorted);
  std::uint64_t check_prefix(const KvBatch& batch, std::int64_t request, const KvPools& pools);
  void check_window(const KvBatch& batch, std::int64_t request, std::int64_t prefix);
  void check_not_written(const Place& place, const std::vector<SlotId>& written);
  std::uint64_t read_stamp(const Place& place, std::optional<std::uint64_t> before,
                           const Stamped& stamped);
  void write_stamp(std::uint64_t hash, const Place& place, const Stamped& stamped);
  void fill_rows(std::uint64_t hash, const Place& place, std::int64_t layer,
                 const Stamped& stamped);
  void report(const std::string& what);

  std::string fault_;
  std::int64_t window_tokens_ = 0;
  bool fail_next_ = false;
  bool tear_next_ = false;
  std::int64_t computed_tokens_ = 0;
  std::int64_t checked_slots_ = 0;
  std::vector<float> logits_;
  std::vector<SlotId> slots_;           // that this step writes, in order
  std::vector<SlotId> windowed_slots_;  // the same of windowed layers
  std::vector<float> k_;                // the rows of one token and layer
  std::vector<float> v_;
};

}  // namespace stemma
