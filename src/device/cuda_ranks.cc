#include "device/cuda_ranks.h"

#include <span>
#include <utility>

#include "base/check.h"

namespace stemma {
namespace {

class StagedRanks final : public CudaRanks {
 public:
  StagedRanks(CudaStream& stream, RankGroup& group) : CudaRanks(group), stream_(stream) {}

  Status prepare(CudaDevice& device, std::size_t part_bytes_max) {
    STEMMA_ASSIGN_OR_RETURN(own_, device.allocate_pinned(part_bytes_max));
    STEMMA_ASSIGN_OR_RETURN(
        all_, device.allocate_pinned(part_bytes_max * static_cast<std::size_t>(ranks())));
    return {};
  }

  bool records() const override { return false; }

  // What all have been told of a failure is kept for conclude, where they need not be told again.
  Status all_gather(const void* own, void* all, std::size_t part_bytes) override {
    STEMMA_CHECK_LE(part_bytes, own_.size_bytes());
    told_ = agree(group(), read(own, part_bytes));
    STEMMA_RETURN_IF_ERROR(told_);
    const std::size_t all_bytes = part_bytes * static_cast<std::size_t>(ranks());
    told_ = group().all_gather({own_.bytes(), part_bytes}, {all_.bytes(), all_bytes});
    STEMMA_RETURN_IF_ERROR(told_);
    return stream_.copy_in(all, all_.bytes(), all_bytes);
  }

  Status conclude(const Status& own) override {
    return told_.ok() ? agree(group(), own) : std::exchange(told_, Status());
  }

  void start_over() override {}

  Status wait(const CudaEvent& event) override { return event.wait(); }

  void give_up() override {}

 protected:
  Status meet_alike() override { return {}; }

 private:
  // The stream is done then, and with it the copy of what was gathered before.
  Status read(const void* own, std::size_t part_bytes) {
    STEMMA_RETURN_IF_ERROR(stream_.copy_out(own_.bytes(), own, part_bytes));
    return stream_.synchronize();
  }

  CudaStream& stream_;
  PinnedMemory own_;
  PinnedMemory all_;
  Status told_;  // what made a gather of this step fail on all ranks
};

}  // namespace

Status CudaRanks::meet() {
  const std::byte own{records()};
  std::byte leading = own;
  STEMMA_RETURN_IF_ERROR(group_.broadcast({&leading, 1}));
  Status alike;
  if (own != leading) {
    alike = Error{ErrorCode::kUnsupported, "NCCL is found on this rank or on rank 0, not on both"};
  }
  STEMMA_RETURN_IF_ERROR(agree(group_, alike));
  return meet_alike();
}

Result<std::unique_ptr<CudaRanks>> make_staged_ranks(CudaDevice& device, CudaStream& stream,
                                                     RankGroup& group, std::size_t part_bytes_max) {
  auto staged = std::make_unique<StagedRanks>(stream, group);
  STEMMA_RETURN_IF_ERROR(staged->prepare(device, part_bytes_max));
  return std::unique_ptr<CudaRanks>(std::move(staged));
}

}  // namespace stemma
