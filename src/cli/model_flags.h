// The flags of a model, its cache and its scheduler, for every command that runs an engine.
//
// Thread:     the main thread.
// Memory:     a few strings.
// Cost:       none.
// Not here:   what they open (engine/served_model), flags of single requests (generate_command).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/device_flags.h"
#include "cli/flags.h"
#include "cli/sparse_flags.h"
#include "cli/tier_flags.h"
#include "device/rank_group.h"
#include "engine/served_model.h"
#include "stemma/result.h"

namespace stemma {

class ModelFlags {
 public:
  // Returns --model, of which a command may want more.
  Flag add_to(Flags& command);
  // What was said, with a line of progress while weights are read where somebody looks. Errors name
  // the flag.
  Result<ServedModelOptions> options() const;

  // The files that they name, and those of the model.
  CommandFiles files() const;

  // The other ranks of this model; nullptr where this process computes alone. Once in a process,
  // and before it starts threads that look at signals.
  Result<std::unique_ptr<RankGroup>> open_ranks() const;

  // What the model is computed on, of several ranks by this one; nullptr: CPUs. It must outlive the
  // model.
  Result<std::unique_ptr<DeviceBackend>> open_device(const RankGroup* ranks_or_null) const {
    return device_flags_.open(ranks_or_null);
  }

  const std::string& directory() const noexcept { return directory_; }
  void set_directory(std::string directory) { directory_ = std::move(directory); }
  std::int64_t page_size() const noexcept { return page_size_; }

 private:
  Status check_names() const;
  Status check() const;
  Result<std::vector<AdapterSource>> adapters() const;

  std::string directory_;
  std::string cache_ = "radix";
  std::string eviction_ = "lru";
  std::string policy_ = "fcfs";
  bool low_first_ = false;
  std::int64_t page_size_ = 16;
  std::int64_t context_tokens_ = 0;
  std::string kv_bytes_ = "256MiB";
  std::string weights_ = "auto";
  std::string kv_dtype_ = "auto";
  double windowed_share_ = 0.5;
  std::string kv_layout_ = "layer_first";
  std::string attention_ = "cpu";
  int threads_ = 0;
  std::string pin_threads_ = "auto";
  int ranks_ = 1;
  std::int64_t concurrency_ = 16;
  std::int64_t chunk_tokens_ = 512;
  std::vector<std::string> adapters_;  // NAME=DIR
  std::string date_;                   // empty: today
  DeviceFlags device_flags_;
  SparseFlags sparse_flags_;
  TierFlags tier_flags_;
};

}  // namespace stemma
