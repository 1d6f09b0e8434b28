// CalibrateCommand: `stemma calibrate`, which finds the heavy channels of a model from prompts,
// writes them beside it, and says how much of the attention's mass a choice by them recalls.
//
// Thread:     main is the engine thread.
// Memory:     the model and the pages of one prompt.
// Cost:       computing the prompts twice: to find channels, and to measure them.
// Not here:   what is counted (attention/calibration_taps), the file (model/sparse_calibration).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attention/calibration_taps.h"
#include "cli/command.h"
#include "engine/served_model.h"

namespace stemma {

struct PromptLine;

class CalibrateCommand final : public Command {
 public:
  explicit CalibrateCommand(Flags& program);
  bool chosen() const override { return command_.parsed(); }
  Status run() override;

 private:
  Status check() const;
  ServedModelOptions model_options() const;
  std::string path() const;
  // Finds the channels and writes the file.
  Status calibrate(const std::vector<PromptLine>& prompts);
  // Reads it back and measures it.
  Result<RecallSums> measure(const std::vector<PromptLine>& prompts) const;
  void print(const RecallSums& sums) const;

  std::string model_;
  std::string prompts_;
  std::string out_;
  std::string weights_ = "auto";
  std::int64_t channels_ = 8;
  int threads_ = 0;
  bool json_ = false;
  std::int64_t tokens_ = 0;  // of all prompts
  Flags command_;
};

}  // namespace stemma
