// A row's part is copied in pieces, the largest that divide where every rank's part begins and
// ends: 16 bytes where each has a multiple of eight columns of 16 bits.
#include "cuda/gathered_rows_cuda.h"
#include "device/cuda_dialect.h"

namespace stemma {
namespace {

constexpr int kThreads = 256;
constexpr int kPiecesOfThread = 4;
constexpr std::int64_t kPiecesOfTeam = kThreads * kPiecesOfThread;

// Where the part of `rank` begins in a row, in bytes; of `ranks` where the row ends.
STEMMA_ON_DEVICE std::int64_t part_begin(const GatheredRows& p, std::int64_t rank) {
  return p.columns * rank / p.ranks * p.element_bytes;
}

// A team copies neighbouring pieces of one row's part.
template <typename Piece>
STEMMA_KERNEL STEMMA_TEAM(kThreads, 4) join_kernel(const GatheredRows p) {
  await_turn();
  pass_turn();
  constexpr std::int64_t kBytes = sizeof(Piece);
  const std::int64_t rank = team_y();
  const std::int64_t begin = part_begin(p, rank) / kBytes;
  const std::int64_t pieces = part_begin(p, rank + 1) / kBytes - begin;
  const Piece* const from =
      static_cast<const Piece*>(p.parts) + rank * (p.part_bytes / kBytes) + team_x() * pieces;
  Piece* const to =
      static_cast<Piece*>(p.whole) + team_x() * (part_begin(p, p.ranks) / kBytes) + begin;
  const std::int64_t first = team_z() * kPiecesOfTeam + thread_index();
  Piece held[kPiecesOfThread];
  STEMMA_UNROLLED
  for (int i = 0; i < kPiecesOfThread; ++i) {
    if (first + i * kThreads < pieces) held[i] = from[first + i * kThreads];
  }
  STEMMA_UNROLLED
  for (int i = 0; i < kPiecesOfThread; ++i) {
    if (first + i * kThreads < pieces) to[first + i * kThreads] = held[i];
  }
}

Status wrong(const char* what) {
  return Error{ErrorCode::kInvalidArgument, what, 0};
}

template <typename Piece>
Status launch_join(CudaStream& stream, const GatheredRows& p) {
  const std::int64_t longest = (p.columns + p.ranks - 1) / p.ranks * p.element_bytes;
  const std::int64_t pieces = longest / static_cast<std::int64_t>(sizeof(Piece));
  const LaunchShape shape = {.teams_x = p.rows,
                             .teams_y = p.ranks,
                             .teams_z = (pieces + kPiecesOfTeam - 1) / kPiecesOfTeam,
                             .threads = kThreads,
                             .early = true};
  return launch("join_gathered_rows", stream, shape, join_kernel<Piece>, p);
}

// Whether every part of a row begins at a multiple of so many bytes.
bool divides(const GatheredRows& p, std::int64_t bytes) {
  for (std::int64_t rank = 1; rank <= p.ranks; ++rank) {
    if (p.columns * rank / p.ranks * p.element_bytes % bytes != 0) return false;
  }
  return true;
}

}  // namespace

Status join_gathered_rows(CudaStream& stream, const GatheredRows& p) {
  if (p.element_bytes != 2 && p.element_bytes != 4) return wrong("gathered rows: element_bytes");
  if (p.ranks < 1 || p.columns < p.ranks) return wrong("gathered rows: ranks");
  const std::int64_t longest = (p.columns + p.ranks - 1) / p.ranks * p.element_bytes;
  if (p.part_bytes % 16 != 0 || p.part_bytes < p.rows * longest) {
    return wrong("gathered rows: part_bytes");
  }
  if (divides(p, 16)) return launch_join<Words>(stream, p);
  if (divides(p, 4)) return launch_join<std::uint32_t>(stream, p);
  return launch_join<std::uint16_t>(stream, p);
}

}  // namespace stemma
