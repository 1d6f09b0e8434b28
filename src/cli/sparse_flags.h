// The flags of sparse attention, for every command that runs a model.
//
// Thread:     the main thread.
// Memory:     a few strings.
// Cost:       none.
// Not here:   what they mean (attention/sparse_dial), the file (model/sparse_calibration).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/flags.h"
#include "model/model_runner.h"
#include "stemma/result.h"

namespace stemma {

class SparseFlags {
 public:
  void add_to(Flags& command);
  // Nothing unless --sparse-tokens was given. kInvalidArgument names the flag.
  Result<std::optional<SparseOptions>> options() const;

 private:
  std::string kept_;
  std::optional<std::int64_t> dense_tokens_;
  std::string calibration_;
};

}  // namespace stemma
