// In the place of mpi_ranks.cc where the build found no MPI.
#include "device/mpi_ranks.h"

namespace stemma {

Result<std::unique_ptr<RankGroup>> open_mpi_ranks(int ranks) {
  return Error{ErrorCode::kUnsupported, "--tensor-parallel " + std::to_string(ranks) +
                                            ": this build has no MPI (Debian: libopenmpi-dev)"};
}

}  // namespace stemma
