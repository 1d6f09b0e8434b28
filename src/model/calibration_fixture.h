// A calibration for tests: heavy channels that nobody measured.
//
// Thread:     a test's.
// Memory:     none that stays.
// Cost:       writing a small file.
// Not here:   finding channels (attention/calibration_taps), the file (sparse_calibration).
#pragma once

#include <cstdint>
#include <string>

#include "base/file.h"
#include "base/thread_pool.h"
#include "model/config.h"
#include "model/loaded_runner.h"
#include "model/model_runner.h"
#include "model/sparse_calibration.h"
#include "stemma/result.h"

namespace stemma {

inline constexpr std::int32_t kCalibratedChannels = 8;  // of each head

// Files so many channels of each head beside the model that `runner` computes: every `step`th, from
// another one on in each head. REQUIRES: heads have so many channels.
inline Status save_calibration_of(const LoadedRunner& runner, const std::string& directory,
                                  std::int32_t step = 1) {
  const ModelConfig& config = runner.config();
  SparseCalibration calibration = {runner.weights_sha256(), config.head_dim, {}};
  calibration.channels = {config.layers, config.kv_heads, kCalibratedChannels, {}};
  for (std::int64_t head = 0; head < config.layers * config.kv_heads; ++head) {
    for (std::int32_t i = 0; i < kCalibratedChannels; ++i) {
      calibration.channels.channels.push_back(static_cast<std::int32_t>(head) + step * i);
    }
  }
  return save_sparse_calibration(calibration,
                                 join_path(directory, std::string(kSparseCalibrationFile)));
}

// The same of the model in that directory.
inline Status save_calibration(const std::string& directory, std::int32_t step = 1) {
  ThreadPool threads(1);
  STEMMA_ASSIGN_OR_RETURN(const auto runner, ModelRunner::load(directory, {}, threads));
  return save_calibration_of(*runner, directory, step);
}

}  // namespace stemma
