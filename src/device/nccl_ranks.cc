// GPUs that talk to each other. What NCCL queues waits on the GPU until every rank has queued the
// same; a rank that never does is not seen by NCCL, so ranks agree over the RankGroup before they
// wait, and wait for a limited time.
#include <nccl.h>

#include <chrono>
#include <cstdlib>
#include <mutex>
#include <span>
#include <string>
#include <thread>

#include "device/cuda_ranks.h"

namespace stemma {
namespace {

using std::chrono::steady_clock;

// The longest that a step is waited for: a step takes well under a second.
constexpr std::chrono::seconds kPatience(60);

Status status_of(const char* call, ncclResult_t result) {
  if (result == ncclSuccess || result == ncclInProgress) return {};
  return Error{ErrorCode::kInternal,
               std::string("ranks: ") + call + ": " + ncclGetErrorString(result)};
}

// Queueing talks to no other rank, one of which may have failed: what ranks are to tell each other
// they do when they meet. Who has set these knows why.
void keep_queueing_local() {
  setenv("NCCL_RUNTIME_CONNECT", "0", 0);
  setenv("NCCL_GRAPH_REGISTER", "0", 0);
}

class NcclRanks final : public CudaRanks {
 public:
  NcclRanks(CudaStream& stream, RankGroup& group) : CudaRanks(group), stream_(stream) {}
  ~NcclRanks() override {
    if (communicator_ == nullptr) return;
    ignore_error(status_of("ncclCommDestroy", ncclCommDestroy(communicator_)),
                 "nothing is left to be told");
  }

  bool records() const override { return true; }

  Status meet() override {
    ncclUniqueId id = {};
    Status made;
    if (rank() == 0) made = status_of("ncclGetUniqueId", ncclGetUniqueId(&id));
    STEMMA_RETURN_IF_ERROR(agree(group(), made));
    STEMMA_RETURN_IF_ERROR(group().broadcast(std::as_writable_bytes(std::span(&id, 1))));
    const Status met =
        status_of("ncclCommInitRank", ncclCommInitRank(&communicator_, ranks(), id, rank()));
    return agree(group(), met);
  }

  Status all_gather(const void* own, void* all, std::size_t part_bytes) override {
    if (communicator_ == nullptr) {
      return Error{ErrorCode::kInternal, "ranks: the GPUs have lost each other"};
    }
    return status_of("ncclAllGather",
                     ncclAllGather(own, all, part_bytes, ncclUint8, communicator_, stream()));
  }

  Status conclude(const Status& own) override { return agree(group(), own); }

  void start_over() override {
    give_up();
    if (!agree(group(), stream_.synchronize()).ok()) return;
    ignore_error(meet(), "the next gather says that there are no others");
  }

  Status wait(const CudaEvent& event) override {
    const auto end = steady_clock::now() + kPatience;
    for (;;) {
      STEMMA_ASSIGN_OR_RETURN(const bool done, event.done());
      if (done) return {};
      const Status met = communication();
      if (met.ok() && steady_clock::now() < end) {
        std::this_thread::yield();
        continue;
      }
      give_up();
      STEMMA_RETURN_IF_ERROR(met);
      return Error{ErrorCode::kInternal, "ranks: a GPU did not do its part of a step in time"};
    }
  }

 private:
  cudaStream_t stream() const { return static_cast<cudaStream_t>(stream_.raw()); }

  // What NCCL noticed since.
  Status communication() const {
    if (communicator_ == nullptr) return {};
    ncclResult_t result = ncclSuccess;
    STEMMA_RETURN_IF_ERROR(
        status_of("ncclCommGetAsyncError", ncclCommGetAsyncError(communicator_, &result)));
    return status_of("NCCL", result);
  }

  // Its kernels end, whoever is missing.
  void give_up() {
    if (communicator_ == nullptr) return;
    ignore_error(status_of("ncclCommAbort", ncclCommAbort(communicator_)),
                 "nothing is gathered by it any more");
    communicator_ = nullptr;
  }

  CudaStream& stream_;
  ncclComm_t communicator_ = nullptr;
};

}  // namespace

std::unique_ptr<CudaRanks> make_nccl_ranks(CudaStream& stream, RankGroup& group) {
  static std::once_flag once;
  std::call_once(once, keep_queueing_local);
  return std::make_unique<NcclRanks>(stream, group);
}

}  // namespace stemma
