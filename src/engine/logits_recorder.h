// LogitsRecorder: a Runner that hands batches on to another and keeps the logits that come back,
// for --logits FILE. Of a place in a request that is computed again, since its step was void, the
// last row stays.
//
// Thread:     the engine's.
// Memory:     every row of logits of the run.
// Cost:       one copy a row.
// Not here:   what computes (the runner inside).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "stemma/runner.h"

namespace stemma {

class LogitsRecorder final : public Runner {
 public:
  // `inner` must outlive this.
  explicit LogitsRecorder(Runner& inner) : inner_(inner) {}

  Result<LogitsView> forward(const KvBatch& batch, KvPools pools) override;
  Status copy_pages(KvPools pools, const PageCopies& copies) override {
    return inner_.copy_pages(pools, copies);
  }
  Result<std::optional<std::int64_t>> first_different_layer(KvPools pools,
                                                            const PagePair& pages) override {
    return inner_.first_different_layer(pools, pages);
  }
  bool waits_by_layer() const override { return inner_.waits_by_layer(); }
  bool repeats_bits() const override { return inner_.repeats_bits(); }
  const AdapterBook* adapters() const override { return inner_.adapters(); }

  // What was kept so far: for each request the rows of its output tokens, one behind the other.
  const std::map<RequestId, std::vector<float>>& rows() const noexcept { return rows_; }

  // Writes a safetensors file: for the request with id i a tensor "logits.i" [output_tokens,
  // vocab_tokens] in f32, the rows from which its output tokens were sampled, bit for bit.
  Status write(const std::string& path) const;

 private:
  void keep(RequestId request, std::int32_t position, std::span<const float> row);

  Runner& inner_;
  std::int64_t vocab_tokens_ = 0;
  std::map<RequestId, std::vector<float>> rows_;              // in order of submission
  std::map<RequestId, std::vector<std::int32_t>> positions_;  // of these rows, ascending
};

}  // namespace stemma
