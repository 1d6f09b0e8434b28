// AdaptedModel: a random model on disk and three adapters of it, of which two compute the same.
//
// Thread:     one.
// Memory:     none; a few hundred kB on disk.
// Cost:       writing them.
// Not here:   who loads them, and what is asked.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/temp_directory.h"
#include "model/adapter.h"
#include "model/random_adapter.h"
#include "model/random_model.h"

namespace stemma {

class AdaptedModel {
 public:
  // "a" changes all that it can, "again" is the same in a file of another order; "b" changes what
  // follows attention and the widest rows.
  explicit AdaptedModel(const ModelConfig& config) {
    const RandomAdapterOptions a = {.config = config, .rank = 3, .alpha = 6, .seed = 5};
    RandomAdapterOptions again = a;
    again.reversed = true;
    const RandomAdapterOptions b = {.config = config,
                                    .targets = {"o_proj", "down_proj"},
                                    .rank = 12,
                                    .ranks = {{"down_proj", 5}},
                                    .alphas = {{"o_proj", 7}},
                                    .type = WeightType::kBf16,
                                    .seed = 6};
    const bool written =
        write_random_model(model_.path(), {.config = config, .type = WeightType::kBf16}).ok() &&
        write_random_adapter(a_.path(), a).ok() &&
        write_random_adapter(again_.path(), again).ok() && write_random_adapter(b_.path(), b).ok();
    STEMMA_CHECK(written, "temporary directories can be written");
  }

  std::string path() const { return model_.path(); }

  // Adapters of these names.
  std::vector<AdapterSource> sources(const std::vector<std::string>& names) const {
    std::vector<AdapterSource> sources;
    for (const std::string& name : names) {
      sources.push_back({name, (name == "a" ? a_ : name == "b" ? b_ : again_).path()});
    }
    return sources;
  }

 private:
  TempDirectory model_;
  TempDirectory a_;
  TempDirectory b_;
  TempDirectory again_;
};

}  // namespace stemma
