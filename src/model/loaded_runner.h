// LoadedRunner: a Runner that computes a model from its directory, whatever it computes on, and
// what others ask of it: the shape of its pools and what makes its pages valid.
//
// Adapters (model/adapter) are placed and taken out while it runs: see AdapterBook.
//
// Thread:     queries and read_adapter from any thread; the rest as Runner, between steps.
// Memory:     the weights, and scratch for the largest batch.
// Cost:       queries none.
// Not here:   how it is loaded (model_runner, device_backend).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "model/adapter.h"
#include "model/adapter_book.h"
#include "model/config.h"
#include "model/weight_rounding.h"
#include "pool/heavy_channels.h"
#include "stemma/result.h"
#include "stemma/runner.h"

namespace stemma {

class LoadedRunner : public Runner {
 public:
  // Of the whole model.
  virtual const ModelConfig& config() const noexcept = 0;
  virtual std::int64_t context_tokens_max() const noexcept = 0;
  // What rounding the weights cost; empty where none was rounded.
  virtual const RoundingReport& rounding() const noexcept = 0;
  // The formats that matrices are computed from: "bf16", "int8+int4".
  virtual std::string compute_format() const = 0;
  // In hexadecimal, of every byte of the weights' files.
  virtual std::string weights_sha256() const = 0;
  // Those of the calibration; none without sparse attention. A pool is made with them.
  virtual const HeavyChannels& heavy_channels() const noexcept = 0;

  // The extents that a pool for this model must have, of several ranks for this one's heads; pages,
  // page_size and dtype are the caller's.
  virtual KvShape pool_shape() const = 0;
  // The same of the layers with a window; of no layers where the model has none.
  virtual KvShape windowed_pool_shape() const = 0;

  // Everything of the model that makes its pages valid, as (name, value): two runners with equal
  // fields write equal pages for equal tokens. Goes into the namespace, beside what the pool adds.
  virtual std::vector<std::pair<std::string, std::string>> namespace_fields() const = 0;

  // Takes what computing with these pools needs, so that the first batch neither waits for it nor
  // fails for it.
  virtual Status prepare_for([[maybe_unused]] KvPools pools) { return {}; }

  // Of several ranks: meets the others. All call it once, when all have prepared and before the
  // first batch. An error is the same on each.
  virtual Status meet_ranks() { return {}; }

  const AdapterBook* adapters() const final { return &book_; }

  // Reads what place_adapter takes, on threads of the caller's own. Errors are those of
  // load_adapter. REQUIRES: not of several ranks.
  Result<Adapter> read_adapter(const AdapterSource& source, ThreadPool& threads) const;
  // Requests may name it from now on; `in_place`, instead of the one that was called so, which is
  // taken out. kInvalidArgument if it has no name of its own, kOutOfMemory: nothing has changed.
  Status place_adapter(Adapter adapter, bool in_place = false);
  // Requests cannot name it any more; those that have a lease of it go on. kNotFound.
  Status take_out_adapter(std::string_view name) { return book_.take_out(name); }
  // Gives back what those hold that were taken out and of which nobody has a lease.
  void drop_ended_adapters();

 protected:
  // Reads and places them, of several ranks what `shard` has.
  Status load_all(std::span<const AdapterSource> sources, Files& files, ThreadPool& threads,
                  const Shard& shard);
  // Makes batches with it possible, or not any more. REQUIRES: no batch names the place.
  virtual Status put(AdapterId place, Adapter adapter) = 0;
  virtual void drop(AdapterId place) = 0;

 private:
  AdapterBook book_;
};

}  // namespace stemma
