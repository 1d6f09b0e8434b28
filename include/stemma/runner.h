// Runner: whatever computes a batch. A transformer, a timing model, or a test that stamps what it
// writes.
//
// Thread:     called by the engine thread.
// Memory:     the runner's own, sized at construction.
// Cost:       the whole cost of serving.
// Not here:   which requests run (sched/), sampling (the engine).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "stemma/kv_batch.h"
#include "stemma/kv_pool.h"
#include "stemma/result.h"

namespace stemma {

class AdapterBook;

// The pools of a model, one for each group of layers with the same lifetime of pages. Layers are
// counted within their group, in the order of the model.
struct KvPools {
  KvPool& full;                // layers that look back over the whole text
  KvPool* windowed = nullptr;  // those that look back over a window; nullptr: the model has none
};

// Logits of the rows that a batch asked for, in the order of its logit_rows. Valid until the next
// forward.
struct LogitsView {
  const float* logits = nullptr;  // [outputs, vocab_tokens], dense
  std::int64_t outputs = 0;
  std::int64_t vocab_tokens = 0;

  std::span<const float> row(std::int64_t output) const {
    return {logits + output * vocab_tokens, static_cast<std::size_t>(vocab_tokens)};
  }
};

// How the token of an output is chosen from its logits: SamplingParams without bias and penalties.
struct TokenChoice {
  float temperature = 0;  // 0: the largest logit, of equal ones the first
  std::int64_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  double unit = 0;  // the random number, in [0, 1)
};

// What a queued step is to give.
struct StepWish {
  std::span<const TokenChoice> choices = {};  // [outputs]; none: of all the largest logit
  bool logits = true;
};

// What a queued step gave.
struct StepOutputs {
  LogitsView logits;  // of no outputs unless they were wanted
  // Of each output the token that was chosen; -1 if no logit is a number above minus infinity.
  std::span<const TokenId> tokens = {};
  // Of each row of the batch, 1 where what was computed of it is infinite or no number: what such a
  // request stored in this step, of rows before too, nobody may read. Empty: rows spoil no others.
  std::span<const std::int32_t> broken_rows = {};
};

// A page to be copied to another, in each pool; invalid ids: none.
struct PageCopies {
  PageId from;
  PageId to;
  PageId windowed_from;
  PageId windowed_to;
};

// An adapter that a Runner can compute requests with.
struct AdapterIdentity {
  std::string name;  // what requests call it
  // SHA-256 of all of it that decides what is computed: adapters of one digest write equal pages.
  std::array<std::uint8_t, 32> digest = {};
};

// Two pages that are to be compared.
struct PagePair {
  PageId a;
  PageId b;
  bool windowed = false;  // of the pool of the layers with a window; else of the full one
};

class Runner {
 public:
  virtual ~Runner() = default;

  // Computes every row: stores its K and V at write_slots in every layer, attends through the page
  // table, and gives logits for logit_rows. What a row gets does not depend on the rest of the
  // batch (I13). An error fails the requests of this batch; the engine goes on.
  virtual Result<LogitsView> forward(const KvBatch& batch, KvPools pools) = 0;

  // Whether steps can be queued, so that one is planned while the one before it is computed.
  // Forward is then called only while none is.
  virtual bool queues() const { return false; }
  // Whether they can choose tokens by a temperature other than 0.
  virtual bool draws() const { return false; }

  // Begins to compute `batch` behind what is queued, as forward would, and returns; `batch` and
  // `wish` may be gone then. A token below 0 stands for the token of an output of the step queued
  // before this one: -1 for output 0, -2 for output 1. An error means that nothing was queued.
  // REQUIRES: queues(), and draws() for what is drawn; at most one step is queued that was not
  // waited for.
  virtual Status queue(const KvBatch& batch, KvPools pools, const StepWish& wish);
  // Waits for the step that was queued first, of those that were not waited for. What it gives is
  // valid until the next call of queue or wait. Whoever gets an error uses nothing of a step that
  // was queued behind it. REQUIRES: there is one.
  virtual Result<StepOutputs> wait();

  // Whether a row gets the same bits in whatever batch, so that what is computed again can be
  // compared. Where it does not, I13 holds within the bounds that the runner states.
  virtual bool repeats_bits() const { return true; }

  // Copies all of a page to another, wherever what forward wrote of it lies. As it is here: in
  // `pools` alone. REQUIRES: nobody writes `from`, and the caller owns `to`.
  virtual Status copy_pages(KvPools pools, const PageCopies& copies);

  // The first layer in which two pages of one pool differ in any bit, wherever what forward wrote
  // of them lies; nullopt: none. As it is here: in `pools` alone. REQUIRES: nobody writes them, and
  // no step is queued.
  virtual Result<std::optional<std::int64_t>> first_different_layer(KvPools pools,
                                                                    const PagePair& pages);

  // Whether forward asks KvBatch::arriving before it reads a layer. Where it does not, a batch
  // names only pages that are whole.
  virtual bool waits_by_layer() const { return false; }

  // Those that KvBatch::adapters may name; nullptr: there are none, ever. Any thread.
  virtual const AdapterBook* adapters() const { return nullptr; }
};

}  // namespace stemma
