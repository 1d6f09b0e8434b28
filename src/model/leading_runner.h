// LeadingRunner: the Runner of several ranks, as the engine on rank 0 sees it. follow_leader: what
// the other ranks do meanwhile.
//
// The engine, its scheduler and its cache are on rank 0 alone: page ids mean the same in the pools
// of all ranks, each of which holds its own heads of every page. Each step is told to all; all
// compute it, and then agree on how it went, so that what fails on one rank fails the step. Where
// their runners queue steps, all queue them, and choose the same tokens. Two pages differ where
// they do on any rank.
//
// Thread:     the engine's; on other ranks the one that follows.
// Memory:     one message.
// Cost:       two broadcasts and one gather a step, one broadcast more if it is queued, beside what
//             its layers gather.
// Not here:   what of a model a rank computes (ModelRunner), how ranks talk (device/rank_group),
//             tiers below the pools (tier/rank_transfers).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "device/rank_group.h"
#include "device/rank_message.h"
#include "stemma/result.h"
#include "stemma/runner.h"

namespace stemma {

class LeadingRunner final : public Runner {
 public:
  // `own` computes this rank's part. Both must outlive this. REQUIRES: ranks.rank() == 0, and all
  // other ranks follow, with runners that take the same batches and pools of as many pages; a queue
  // of theirs gives an error on all ranks or on none.
  LeadingRunner(Runner& own, RankGroup& ranks) : own_(own), ranks_(ranks) {}
  // Lets the others go.
  ~LeadingRunner() override;
  LeadingRunner(const LeadingRunner&) = delete;
  LeadingRunner& operator=(const LeadingRunner&) = delete;

  // An error of another rank names it.
  Result<LogitsView> forward(const KvBatch& batch, KvPools pools) override;
  bool queues() const override { return own_.queues(); }
  bool draws() const override { return own_.draws(); }
  bool waits_by_layer() const override { return own_.waits_by_layer(); }
  bool repeats_bits() const override { return own_.repeats_bits(); }
  Status queue(const KvBatch& batch, KvPools pools, const StepWish& wish) override;
  Result<StepOutputs> wait() override;
  // All ranks have copied, or an error of any is that of the copy.
  Status copy_pages(KvPools pools, const PageCopies& copies) override;
  // Which ranks' parts differ is in the log.
  Result<std::optional<std::int64_t>> first_different_layer(KvPools pools,
                                                            const PagePair& pages) override;
  const AdapterBook* adapters() const override { return own_.adapters(); }

 private:
  // A step is computed to its end whatever arrives, as the other ranks do: whether all came right
  // they are asked when it has retired (TransferLanes::came_right).
  class PatientGate final : public LayerGate {
   public:
    bool wait(std::int64_t layer) override {
      static_cast<void>(inner->wait(layer));
      return true;
    }
    bool wait_on(CudaStream& stream, std::int64_t layer) override {
      static_cast<void>(inner->wait_on(stream, layer));
      return true;
    }
    LayerGate* inner = nullptr;
  };

  KvBatch write(const KvBatch& batch);

  Runner& own_;
  RankGroup& ranks_;
  PatientGate gate_;  // of the batch that is computed
  std::vector<std::int64_t> words_;
};

// What a rank that follows has below its pools.
struct FollowedTiers {
  RankListener* listener = nullptr;  // nullptr: none
  LayerGate* arriving = nullptr;     // for steps whose pages may still be arriving
};

// Does on this rank's `pools` with `own` what rank 0 tells, until it lets go. An error only where
// rank 0 cannot be heard any more: what goes wrong in a step is told to rank 0. What is told of
// lower tiers their listener does. REQUIRES: ranks.rank() > 0; a listener where rank 0 has tiers.
Status follow_leader(Runner& own, KvPools pools, RankGroup& ranks, const FollowedTiers& tiers = {});

}  // namespace stemma
