// LoadedRunner: a Runner that computes a model from its directory, whatever it computes on, and
// what others ask of it: the shape of its pools and what makes its pages valid.
//
// Thread:     queries from any thread; the rest as Runner.
// Memory:     the weights, and scratch for the largest batch.
// Cost:       queries none.
// Not here:   how it is loaded (model_runner, device_backend).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

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
};

}  // namespace stemma
