// Errors are returned and not fatal, as far as MPI finds them: a rank that dies is seen by mpirun,
// which ends the others.
#include "device/mpi_ranks.h"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <string>
#include <thread>

#include "base/check.h"

namespace stemma {

namespace {

using std::chrono::microseconds;
using std::chrono::steady_clock;

// Between two steps of a busy engine pass some hundred microseconds.
constexpr microseconds kSpinTime(2'000);
// What a rank that has nothing to do adds to the first step after, at most.
constexpr microseconds kNapTime(2'000);

Status status_of(int code, const char* call) {
  if (code == MPI_SUCCESS) return {};
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return Error{ErrorCode::kInternal,
               std::string("ranks: ") + call + ": " +
                   std::string(text, static_cast<std::size_t>(std::max(length, 0)))};
}

Status check_bytes(std::span<const std::byte> bytes) {
  if (bytes.size() <= std::size_t{INT_MAX}) return {};
  return Error{ErrorCode::kTooLarge, "ranks: " + std::to_string(bytes.size()) +
                                         " bytes at a time; at most " + std::to_string(INT_MAX) +
                                         " can be told"};
}

class MpiRanks final : public RankGroup {
 public:
  MpiRanks() {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
  }
  ~MpiRanks() override { MPI_Finalize(); }
  MpiRanks(const MpiRanks&) = delete;
  MpiRanks& operator=(const MpiRanks&) = delete;

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }

  Status all_gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    STEMMA_RETURN_IF_ERROR(check_bytes(own));
    const int bytes = static_cast<int>(own.size());
    return status_of(
        MPI_Allgather(own.data(), bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, MPI_COMM_WORLD),
        "MPI_Allgather");
  }

  Status gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    STEMMA_RETURN_IF_ERROR(check_bytes(own));
    const int bytes = static_cast<int>(own.size());
    return status_of(
        MPI_Gather(own.data(), bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, 0, MPI_COMM_WORLD),
        "MPI_Gather");
  }

  Status broadcast(std::span<std::byte> bytes) override {
    STEMMA_RETURN_IF_ERROR(check_bytes(bytes));
    MPI_Request request = MPI_REQUEST_NULL;
    STEMMA_RETURN_IF_ERROR(status_of(MPI_Ibcast(bytes.data(), static_cast<int>(bytes.size()),
                                                MPI_BYTE, 0, MPI_COMM_WORLD, &request),
                                     "MPI_Ibcast"));
    if (rank_ == 0) return status_of(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
    return wait_idly(request);
  }

 private:
  // MPI_Wait would keep a core busy for as long as nobody asks anything.
  static Status wait_idly(MPI_Request& request) {
    const auto spin_until = steady_clock::now() + kSpinTime;
    for (;;) {
      int done = 0;
      STEMMA_RETURN_IF_ERROR(status_of(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test"));
      if (done != 0) return {};
      if (steady_clock::now() > spin_until) std::this_thread::sleep_for(kNapTime);
    }
  }

  int rank_ = 0;
  int ranks_ = 0;
};

}  // namespace

Result<std::unique_ptr<RankGroup>> open_mpi_ranks(int ranks) {
  STEMMA_CHECK(ranks >= 2, "one rank needs no others");
  // The engine's thread talks, and another one opens and ends.
  int allowed = 0;
  STEMMA_RETURN_IF_ERROR(
      status_of(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &allowed), "MPI_Init"));
  auto group = std::make_unique<MpiRanks>();
  Status own;
  if (group->ranks() != ranks) {
    own = Error{ErrorCode::kUnsupported, "--tensor-parallel " + std::to_string(ranks) +
                                             ": there are " + std::to_string(group->ranks()) +
                                             " ranks; start it with mpirun -n " +
                                             std::to_string(ranks)};
  } else if (allowed < MPI_THREAD_SERIALIZED) {
    own = Error{ErrorCode::kUnsupported, "--tensor-parallel: this MPI allows only one thread"};
  }
  // One that gave up alone would wait for the others to end, and they for what it says next.
  STEMMA_RETURN_IF_ERROR(group->ranks() < 2 ? own : agree(*group, own));
  return std::unique_ptr<RankGroup>(std::move(group));
}

}  // namespace stemma
