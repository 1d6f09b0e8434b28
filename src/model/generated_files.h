// GeneratedFiles: config.json and model.safetensors of a model whose weights are made up as they
// are read, so that a benchmark of a large shape needs no disk and no second copy of the weights.
//
// Thread:     open by one thread; an opened file may be read from several.
// Memory:     the configuration's text and the safetensors header.
// Cost:       a hash for each 8 bytes read.
// Not here:   weights that say anything, models in files (random_model), tokenizers.
#pragma once

#include <memory>
#include <string>

#include "base/file.h"
#include "model/config.h"
#include "stemma/result.h"

namespace stemma {

// Weights are bf16 between 1/128 and 1/32, of either sign: no product of them overflows, vanishes
// or becomes subnormal, whatever the shape. The same configuration gives the same bytes.
class GeneratedFiles final : public Files {
 public:
  explicit GeneratedFiles(ModelConfig config);

  // Any path that ends in one of the two names; kNotFound for all others.
  Result<std::unique_ptr<ReadableFile>> open(const std::string& path) override;

  // Of all tensors.
  std::int64_t weight_bytes() const noexcept { return weight_bytes_; }

 private:
  std::string config_text_;
  std::string head_;  // what precedes the tensors' bytes
  std::int64_t weight_bytes_ = 0;
};

}  // namespace stemma
