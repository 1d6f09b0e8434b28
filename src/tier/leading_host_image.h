// LeadingHostImage: rank 0 tells the others to read and write the files of their host memory, and
// hears what became of it (docs/decisions/0017).
//
// Thread:     as HostImageRanks.
// Memory:     a message.
// Cost:       two broadcasts a call, and a gather where it is answered.
// Not here:   what a rank does (rank_host_image).
#pragma once

#include <cstdint>
#include <vector>

#include "device/rank_group.h"
#include "tier/host_image_ranks.h"
#include "tier/rank_host_image.h"

namespace stemma {

class LeadingHostImage final : public HostImageRanks {
 public:
  // `ranks` must outlive it. REQUIRES: ranks.rank() == 0, and the others follow.
  explicit LeadingHostImage(RankGroup& ranks) : ranks_(ranks) {}

  bool begin_load() override;
  std::int64_t load(const Transfer& pages) override;
  void end_load() override;
  void begin_save() override;
  void save(const Transfer& pages) override;
  Status end_save() override;
  void drop_save() override;
  Status remove() override;

 private:
  Status tell_all(HostFileTask task, const Transfer& pages = {});
  Status ask_all(HostFileTask task, const Transfer& pages = {});
  Status all_did(HostFileTask task);

  RankGroup& ranks_;
  std::vector<std::int64_t> words_;
  std::vector<std::int64_t> answers_;  // of the last question, by rank
};

}  // namespace stemma
