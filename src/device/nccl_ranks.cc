// GPUs that talk to each other. What NCCL queues waits on the GPU until every rank has queued the
// same; a rank that never does is not seen by NCCL, so ranks agree over the RankGroup before they
// wait, and wait for a limited time.
//
// NCCL is looked for when it is needed: a machine of one GPU does without it.
#include <dlfcn.h>
#include <nccl.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "device/cuda_ranks.h"

namespace stemma {
namespace {

using std::chrono::steady_clock;

// The longest that a step is waited for: a step takes well under a second.
constexpr std::chrono::seconds kPatience(60);

// The library's functions that are called here.
struct NcclCalls {
  decltype(&ncclGetErrorString) error_text = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRank) init_rank = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclCommGetAsyncError) get_async_error = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
};

template <typename Call>
bool find_call(void* library, const char* name, Call& call) {
  call = reinterpret_cast<Call>(dlsym(library, name));
  return call != nullptr;
}

// nullopt: the machine has no NCCL, or one that lacks a function.
std::optional<NcclCalls> load_nccl() {
  void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);  // never closed
  if (library == nullptr) return std::nullopt;
  NcclCalls calls;
  const bool whole = find_call(library, "ncclGetErrorString", calls.error_text) &&
                     find_call(library, "ncclGetUniqueId", calls.get_unique_id) &&
                     find_call(library, "ncclCommInitRank", calls.init_rank) &&
                     find_call(library, "ncclCommDestroy", calls.destroy) &&
                     find_call(library, "ncclCommAbort", calls.abort) &&
                     find_call(library, "ncclCommGetAsyncError", calls.get_async_error) &&
                     find_call(library, "ncclAllGather", calls.all_gather);
  return whole ? std::optional(calls) : std::nullopt;
}

// Queueing talks to no other rank, one of which may have failed: what ranks are to tell each other
// they do when they meet. Who has set these knows why.
void keep_queueing_local() {
  setenv("NCCL_RUNTIME_CONNECT", "0", 0);
  setenv("NCCL_GRAPH_REGISTER", "0", 0);
}

class NcclRanks final : public CudaRanks {
 public:
  NcclRanks(const NcclCalls& nccl, CudaStream& stream, RankGroup& group)
      : CudaRanks(group), nccl_(nccl), stream_(stream) {}
  // Destroying waits for the other ranks to do the same: not for those that are known to be lost.
  ~NcclRanks() override {
    if (!communication().ok()) give_up();
    if (communicator_ == nullptr) return;
    ignore_error(status_of("ncclCommDestroy", nccl_.destroy(communicator_)),
                 "nothing is left to be told");
  }

  bool records() const override { return true; }

  Status all_gather(const void* own, void* all, std::size_t part_bytes) override {
    if (communicator_ == nullptr) {
      return Error{ErrorCode::kInternal, "ranks: the GPUs have lost each other"};
    }
    return status_of("ncclAllGather",
                     nccl_.all_gather(own, all, part_bytes, ncclUint8, communicator_, stream()));
  }

  Status conclude(const Status& own) override { return agree(group(), own); }

  void start_over() override {
    give_up();
    if (!agree(group(), stream_.synchronize()).ok()) return;
    ignore_error(meet_alike(), "the next gather says that there are no others");
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
      STEMMA_RETURN_IF_ERROR(met);
      return Error{ErrorCode::kInternal, "ranks: a GPU did not do its part of a step in time"};
    }
  }

  // The library waits in it until no graph has a gather of the communicator any more. Its kernels
  // end, whoever is missing.
  void give_up() override {
    if (communicator_ == nullptr) return;
    ignore_error(status_of("ncclCommAbort", nccl_.abort(communicator_)),
                 "nothing is gathered by it any more");
    communicator_ = nullptr;
  }

 protected:
  Status meet_alike() override {
    ncclUniqueId id = {};
    Status made;
    if (rank() == 0) made = status_of("ncclGetUniqueId", nccl_.get_unique_id(&id));
    STEMMA_RETURN_IF_ERROR(agree(group(), made));
    STEMMA_RETURN_IF_ERROR(group().broadcast(std::as_writable_bytes(std::span(&id, 1))));
    const Status met =
        status_of("ncclCommInitRank", nccl_.init_rank(&communicator_, ranks(), id, rank()));
    const Status all_met = agree(group(), met);
    if (!all_met.ok()) give_up();  // some have none
    return all_met;
  }

 private:
  Status status_of(const char* call, ncclResult_t result) const {
    if (result == ncclSuccess || result == ncclInProgress) return {};
    return Error{ErrorCode::kInternal,
                 std::string("ranks: ") + call + ": " + nccl_.error_text(result)};
  }

  cudaStream_t stream() const { return static_cast<cudaStream_t>(stream_.raw()); }

  // What NCCL noticed since.
  Status communication() const {
    if (communicator_ == nullptr) return {};
    ncclResult_t result = ncclSuccess;
    STEMMA_RETURN_IF_ERROR(
        status_of("ncclCommGetAsyncError", nccl_.get_async_error(communicator_, &result)));
    return status_of("NCCL", result);
  }

  const NcclCalls& nccl_;
  CudaStream& stream_;
  ncclComm_t communicator_ = nullptr;
};

}  // namespace

std::unique_ptr<CudaRanks> make_nccl_ranks(CudaStream& stream, RankGroup& group) {
  static const std::optional<NcclCalls> nccl = [] {
    keep_queueing_local();
    return load_nccl();
  }();
  if (!nccl.has_value()) return nullptr;
  return std::make_unique<NcclRanks>(*nccl, stream, group);
}

}  // namespace stemma
