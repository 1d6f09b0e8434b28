// A team computes a tile of visits of one expert. Neighbouring teams are of the same visits and
// other columns, so that the rows of x stay in the cache while an expert's matrix streams through,
// and the next tile of the same expert finds that there.
#include "cuda/experts_cuda.h"
#include "device/cuda_dialect.h"
#include "device/gemm_tiles_cuda.h"
#include "device/plain_tiles_cuda.h"
#include "device/rounded_plain_cuda.h"
#include "device/rounded_tiles_cuda.h"
#include "device/row_words.h"
#include "device/wide_tiles_cuda.h"

namespace stemma {
namespace {

// Where the sorted visit `visit` of the tile lies.
STEMMA_ON_DEVICE std::int32_t row_of(const std::int32_t* rows, const ExpertTile& tile, int visit) {
  if (visit >= tile.visits) return -1;
  return rows != nullptr ? rows[tile.first + visit] : tile.first + visit;
}

// The rows of x that the thread copies, looked up once.
template <typename Shape>
struct VisitedRows {
  std::int32_t rows[Shape::kCopiedRows];
  STEMMA_ON_DEVICE std::int64_t operator()(int i) const { return rows[i]; }
};
// kRowOf(i): the tile's row that the thread's copy i is of.
template <typename Shape, int (*kRowOf)(int)>
STEMMA_ON_DEVICE VisitedRows<Shape> visited_rows(const ExpertProduct& p, const ExpertTile& tile) {
  VisitedRows<Shape> visited;
  STEMMA_UNROLLED
  for (int i = 0; i < Shape::kCopiedRows; ++i) {
    visited.rows[i] = row_of(p.x_rows, tile, kRowOf(i));
  }
  return visited;
}

struct SaidRows {
  const std::int32_t* rows;
  const ExpertTile& tile;
  STEMMA_ON_DEVICE std::int64_t operator()(int visit) const { return row_of(rows, tile, visit); }
};

template <typename T>
STEMMA_ON_DEVICE TileOperands<T> operands_of(const ExpertProduct& p, const ExpertTile& tile,
                                             std::int64_t column0) {
  const T* const w = static_cast<const T*>(p.w) + (tile.expert * p.n + column0) * p.k;
  return {static_cast<const T*>(p.x), w, p.n - column0, p.k, p.k, p.k};
}

template <typename T, typename Y, typename Shape>
STEMMA_KERNEL STEMMA_TEAM(Shape::kThreads, Shape::kTeams) experts_kernel(const ExpertProduct p) {
  await_turn();
  const ExpertTile tile = p.tiles[team_y()];
  if (tile.expert < 0) return;
  const std::int64_t column0 = team_x() * Shape::kColumns;
  TileSums<Shape> sums = {};
  sum_tile<T, Shape>(operands_of<T>(p, tile, column0),
                     visited_rows<Shape, copied_row<Shape>>(p, tile), sums);
  store_tile<Y, Shape>(sums, SaidRows{p.y_rows, tile}, dense_target<Y>(p.y, p.n), column0);
}

STEMMA_KERNEL STEMMA_TEAM(kPlainThreads, 2) plain_experts_kernel(const ExpertProduct p) {
  await_turn();
  const ExpertTile tile = p.tiles[team_y()];
  if (tile.expert < 0) return;
  const std::int64_t column0 = team_x() * kPlainTile;
  float sums[4][4] = {};
  sum_plain_tile(operands_of<float>(p, tile, column0), row_of(p.x_rows, tile, plain_copied_row()),
                 sums);
  store_plain_tile(sums, SaidRows{p.y_rows, tile}, dense_target<float>(p.y, p.n), column0);
}

template <typename T, typename Y, typename Shape>
STEMMA_KERNEL STEMMA_TEAM(Shape::kThreads, Shape::kTeams)
    wide_experts_kernel(const ExpertProduct p) {
  await_turn();
  const ExpertTile tile = p.tiles[team_y()];
  if (tile.expert < 0) return;
  const std::int64_t column0 = team_x() * Shape::kColumns;
  const float* const w = static_cast<const float*>(p.w) + (tile.expert * p.n + column0) * p.k;
  const TileOperands<T, float> operands = {
      static_cast<const T*>(p.x), w, p.n - column0, p.k, p.k, p.k};
  WideSums<Shape> sums = {};
  sum_wide_tile<T, Shape>(operands, visited_rows<Shape, copied_row<Shape>>(p, tile), sums);
  store_wide_tile<Y, Shape>(sums, SaidRows{p.y_rows, tile}, dense_target<Y>(p.y, p.n), column0);
}

// The expert's strips from that of output column0 on.
template <CodeForm kForm, typename T>
STEMMA_ON_DEVICE RoundedOperands<T> rounded_operands_of(const ExpertProduct& p,
                                                        const ExpertTile& tile,
                                                        std::int64_t column0) {
  const std::int64_t strip = (tile.expert * p.n + column0) / RoundedStrips::kOutputs;
  const std::byte* const w =
      static_cast<const std::byte*>(p.w) + strip * RoundedStrips::strip_bytes(kForm, p.k);
  return {static_cast<const T*>(p.x), w, p.n - column0, p.k, p.k};
}

template <CodeForm kForm, typename T, typename Shape>
STEMMA_KERNEL STEMMA_TEAM(Shape::kThreads, Shape::kTeams)
    rounded_experts_kernel(const ExpertProduct p) {
  await_turn();
  const ExpertTile tile = p.tiles[team_y()];
  if (tile.expert < 0) return;
  const std::int64_t column0 = team_x() * Shape::kOutputs;
  multiply_rounded<kForm, T, Shape>(rounded_operands_of<kForm, T>(p, tile, column0),
                                    visited_rows<Shape, rounded_row<Shape>>(p, tile), tile.visits,
                                    SaidRows{p.y_rows, tile},
                                    {p.y, p.f32_out, true, p.n, p.n, column0});
}

template <CodeForm kForm>
STEMMA_KERNEL STEMMA_TEAM(kPlainThreads, 2) plain_rounded_experts_kernel(const ExpertProduct p) {
  await_turn();
  const ExpertTile tile = p.tiles[team_y()];
  if (tile.expert < 0) return;
  const std::int64_t column0 = team_x() * kPlainTile;
  float sums[4][4] = {};
  sum_rounded_plain<kForm>(rounded_operands_of<kForm, float>(p, tile, column0),
                           row_of(p.x_rows, tile, plain_copied_row()), sums);
  store_plain_tile(sums, SaidRows{p.y_rows, tile}, dense_target<float>(p.y, p.n), column0);
}

constexpr int kAddThreads = 128;

STEMMA_KERNEL STEMMA_TEAM(kAddThreads, 8) add_kernel(const AddExperts p) {
  await_turn();
  pass_turn();
  const std::int64_t column = kRowStep * (team_y() * kAddThreads + thread_index());
  if (column >= p.hidden) return;
  float sums[kRowStep] = {};
  if (p.before != nullptr) load_values(p.before + team_x() * p.before_stride + column, sums);
  for (std::int64_t i = 0; i < p.row_experts; ++i) {
    const std::int64_t visit = team_x() * p.row_experts + i;
    float said[kRowStep];
    load_values(p.said + visit * p.hidden + column, said);
    STEMMA_UNROLLED
    for (int j = 0; j < kRowStep; ++j) sums[j] += p.weights[visit] * said[j];
  }
  store_values(p.out + team_x() * p.hidden + column, sums);
}

std::int64_t pieces_of(std::int64_t whole, std::int64_t piece) {
  return (whole + piece - 1) / piece;
}

template <typename Shape>
Status launch_tiles(CudaStream& stream, const ExpertProduct& p, void (*kernel)(ExpertProduct)) {
  const LaunchShape shape = {.teams_x = pieces_of(p.n, Shape::kColumns),
                             .teams_y = p.tiles_count,
                             .threads = Shape::kThreads,
                             .shared_bytes = Shape::kSharedBytes,
                             .early = true};
  return launch("multiply_experts", stream, shape, kernel, p);
}

// In tiles of the shape, or of the one of the same height for wide weights.
template <typename T, typename Y, typename Shape, typename Wide>
Status launch_shape(CudaStream& stream, const ExpertProduct& p) {
  return p.f32_w ? launch_tiles<Wide>(stream, p, wide_experts_kernel<T, Y, Wide>)
                 : launch_tiles<Shape>(stream, p, experts_kernel<T, Y, Shape>);
}

Status wrong(const char* what) {
  return Error{ErrorCode::kInvalidArgument, what, 0};
}

template <typename T, typename Y>
Status launch_typed(CudaStream& stream, const ExpertProduct& p) {
  if (p.tile_visits == FewRows::kRows) return launch_shape<T, Y, FewRows, FewWide>(stream, p);
  if (p.tile_visits == SomeRows::kRows) return launch_shape<T, Y, SomeRows, SomeWide>(stream, p);
  if (p.tile_visits == ManyRows::kRows) return launch_shape<T, Y, ManyRows, ManyWide>(stream, p);
  return wrong("multiply_experts: there are no tiles of this height");
}

Status launch_plain(CudaStream& stream, const ExpertProduct& p, void (*kernel)(ExpertProduct)) {
  if (p.tile_visits != kPlainTile) return wrong("multiply_experts: of f32 tiles are 64 high");
  const LaunchShape shape = {.teams_x = pieces_of(p.n, kPlainTile),
                             .teams_y = p.tiles_count,
                             .threads = kPlainThreads,
                             .shared_bytes = kPlainSharedBytes,
                             .early = true};
  return launch("multiply_experts", stream, shape, kernel, p);
}

template <CodeForm kForm, typename T, typename Shape>
Status launch_rounded(CudaStream& stream, const ExpertProduct& p) {
  const LaunchShape shape = {.teams_x = pieces_of(p.n, Shape::kOutputs),
                             .teams_y = p.tiles_count,
                             .threads = Shape::kThreads,
                             .shared_bytes = Shape::shared_bytes(kForm),
                             .early = true};
  return launch("multiply_experts", stream, shape, rounded_experts_kernel<kForm, T, Shape>, p);
}

static_assert(Rounded16::kRows == FewRows::kRows && SmallRounded16::kRows == FewRows::kRows &&
              SomeRounded::kRows == SomeRows::kRows && ManyRounded::kRows == ManyRows::kRows);
// Of the highest tiles, whatever the weights.
constexpr std::int64_t kManyRowsBytes = ManyRows::kSharedBytes;
static_assert(ManyWide::kSharedBytes <= kManyRowsBytes &&
              ManyRounded::shared_bytes(CodeForm::kInt8) <= kManyRowsBytes);

template <CodeForm kForm, typename T>
Status launch_rounded_typed(CudaStream& stream, const ExpertProduct& p) {
  if (p.tile_visits == Rounded16::kRows) {
    return team_can_have(Rounded16::shared_bytes(kForm))
               ? launch_rounded<kForm, T, Rounded16>(stream, p)
               : launch_rounded<kForm, T, SmallRounded16>(stream, p);
  }
  if (p.tile_visits == SomeRounded::kRows) return launch_rounded<kForm, T, SomeRounded>(stream, p);
  if (p.tile_visits == ManyRounded::kRows) return launch_rounded<kForm, T, ManyRounded>(stream, p);
  return wrong("multiply_experts: there are no tiles of this height");
}

template <CodeForm kForm>
Status launch_form(CudaStream& stream, const ExpertProduct& p) {
  if (p.n % RoundedStrips::kOutputs != 0) return wrong("multiply_experts: rounded outputs");
  if (p.type == WeightType::kBf16) return launch_rounded_typed<kForm, BFloat16>(stream, p);
  if (p.type == WeightType::kF16) return launch_rounded_typed<kForm, Float16>(stream, p);
  return launch_plain(stream, p, plain_rounded_experts_kernel<kForm>);
}

}  // namespace

std::int64_t expert_tile_visits(std::int64_t visits, std::int64_t experts, WeightType type,
                                std::int64_t team_shared_bytes_max) {
  if (type == WeightType::kF32) return kPlainTile;
  // So that most experts have one tile: of a Poisson distribution few have twice the mean of 8, or
  // a third more than that of 48.
  if (visits <= 8 * experts) return FewRows::kRows;
  const bool many = visits > 48 * experts && team_shared_bytes_max >= kManyRowsBytes;
  return many ? ManyRows::kRows : SomeRows::kRows;
}

Status multiply_experts(CudaStream& stream, const ExpertProduct& p) {
  constexpr std::int64_t kTeamsMax = 65535;  // in y and z
  if (p.n < 1 || p.k < 1 || p.k % kWordElements != 0 || p.tiles_count > kTeamsMax) {
    return wrong("multiply_experts: extents");
  }
  if (p.codes == CodeForm::kInt8) return launch_form<CodeForm::kInt8>(stream, p);
  if (p.codes == CodeForm::kInt4) return launch_form<CodeForm::kInt4>(stream, p);
  if (p.codes == CodeForm::kInt4Shifted) return launch_form<CodeForm::kInt4Shifted>(stream, p);
  if (p.type == WeightType::kF32) return launch_plain(stream, p, plain_experts_kernel);
  if (p.type == WeightType::kBf16) {
    return p.f32_out ? launch_typed<BFloat16, float>(stream, p)
                     : launch_typed<BFloat16, BFloat16>(stream, p);
  }
  return p.f32_out ? launch_typed<Float16, float>(stream, p)
                   : launch_typed<Float16, Float16>(stream, p);
}

Status add_experts(CudaStream& stream, const AddExperts& p) {
  if (p.hidden < 1 || p.hidden % kRowStep != 0) return wrong("add_experts: hidden");
  const LaunchShape shape = {.teams_x = p.rows,
                             .teams_y = pieces_of(p.hidden, kAddThreads * kRowStep),
                             .threads = kAddThreads,
                             .early = true};
  return launch("add_experts", stream, shape, add_kernel, p);
}

}  // namespace stemma
