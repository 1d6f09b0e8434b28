// A warp chooses for a row; a team sorts the visits of one expert.
#include "cuda/expert_choice_cuda.h"
#include "cuda/team_words.h"
#include "device/cuda_dialect.h"

namespace stemma {
namespace {

constexpr std::int64_t kExpertsMax = 4096;
constexpr float kMinusInfinity = -__builtin_huge_valf();
constexpr float kSumFloor = 1e-20f;  // as on the CPU

// What a row is chosen with, in shared memory. A key is a word that is larger for the larger
// number, and for the lower place of equal ones; 0: taken.
struct ChoiceRow {
  std::uint64_t* keys;        // [experts]
  std::uint64_t* group_keys;  // [groups]
  std::int32_t* chosen;       // [kRowExpertsMax]
  float* scores;              // [experts]
};
STEMMA_ON_DEVICE ChoiceRow choice_row_of(const ChooseExperts& p) {
  ChoiceRow row;
  row.keys = reinterpret_cast<std::uint64_t*>(shared_memory());
  row.group_keys = row.keys + p.experts;
  row.chosen = reinterpret_cast<std::int32_t*>(row.group_keys + p.groups);
  row.scores = reinterpret_cast<float*>(row.chosen + kRowExpertsMax);
  return row;
}
std::size_t choice_bytes(const ChooseExperts& p) {
  return static_cast<std::size_t>((p.experts + p.groups) * 8 + kRowExpertsMax * 4 + p.experts * 4);
}

STEMMA_ON_DEVICE std::uint64_t key_of(float value, std::int64_t place) {
  const bool number = value == value;
  return std::uint64_t{ordered_word(number ? value : kMinusInfinity)} << 32 |
         (0xFFFFFFFFu - static_cast<std::uint32_t>(place));
}
STEMMA_ON_DEVICE std::int32_t place_of(std::uint64_t key) {
  return static_cast<std::int32_t>(0xFFFFFFFFu - static_cast<std::uint32_t>(key));
}
STEMMA_ON_DEVICE float value_of(std::uint64_t key) {
  return of_ordered_word(static_cast<std::uint32_t>(key >> 32));
}

// The place of the largest of the lanes' keys, which is taken from now on. Lane i looks after every
// 32nd from i on.
STEMMA_ON_DEVICE std::int32_t take_largest(std::uint64_t* keys, std::int64_t count) {
  std::uint64_t best = 0;
  for (std::int64_t i = lane_index(); i < count; i += kWarpThreads) best = larger(best, keys[i]);
  for (int mask = kWarpThreads / 2; mask > 0; mask /= 2) {
    best = larger(best, shuffle_xor(best, mask));
  }
  const std::int32_t place = place_of(best);
  if (place % kWarpThreads == lane_index()) keys[place] = 0;
  return place;
}

// e^x, rounded to f32 from double.
STEMMA_ON_DEVICE float exponential(float x) {
  return static_cast<float>(exp_wide(static_cast<double>(x)));
}

// Writes the row's scores as products gave them, and returns the largest.
STEMMA_ON_DEVICE float load_scores(const ChooseExperts& p, float* scores) {
  float top = kMinusInfinity;
  const float* const from = p.scores + team_x() * p.experts;
  for (std::int64_t expert = lane_index(); expert < p.experts; expert += kWarpThreads) {
    float score = from[expert];
    for (std::int64_t slice = 1; slice < p.slices; ++slice) {
      score += from[slice * p.rows * p.experts + expert];
    }
    scores[expert] = score;
    if (score > top) top = score;
  }
  return warp_max(top);
}

STEMMA_ON_DEVICE void softmax(const ChooseExperts& p, float top, float* scores) {
  for (std::int64_t expert = lane_index(); expert < p.experts; expert += kWarpThreads) {
    scores[expert] = exponential(scores[expert] - top);
  }
  warp_barrier();
  float total = 0;  // every lane adds all of them, in order
  for (std::int64_t expert = 0; expert < p.experts; ++expert) total += scores[expert];
  warp_barrier();
  for (std::int64_t expert = lane_index(); expert < p.experts; expert += kWarpThreads) {
    scores[expert] /= total;
  }
}

STEMMA_ON_DEVICE void write_keys(const ChooseExperts& p, const ChoiceRow& row) {
  for (std::int64_t expert = lane_index(); expert < p.experts; expert += kWarpThreads) {
    float key = row.scores[expert];
    if (p.correction != nullptr) {
      key = 1.0f / (1.0f + exponential(-key));
      row.scores[expert] = key;
      key += p.correction[expert];
    }
    row.keys[expert] = key_of(key, expert);
  }
  warp_barrier();
}

// What a group counts as.
STEMMA_ON_DEVICE float group_value(const ChooseExperts& p, const std::uint64_t* keys) {
  float best = kMinusInfinity;
  float second = kMinusInfinity;
  for (std::int64_t i = 0; i < p.experts / p.groups; ++i) {
    const float key = value_of(keys[i]);
    const float lesser = key < best ? key : best;
    second = lesser > second ? lesser : second;
    best = key > best ? key : best;
  }
  return p.correction != nullptr ? best + second : best;
}

// Experts outside the row's groups get the lowest key.
STEMMA_ON_DEVICE void close_groups(const ChooseExperts& p, const ChoiceRow& row) {
  const std::int64_t group_experts = p.experts / p.groups;
  for (std::int64_t group = lane_index(); group < p.groups; group += kWarpThreads) {
    row.group_keys[group] = key_of(group_value(p, row.keys + group * group_experts), group);
  }
  for (std::int64_t i = 0; i < p.row_groups; ++i) take_largest(row.group_keys, p.groups);
  warp_barrier();
  for (std::int64_t expert = lane_index(); expert < p.experts; expert += kWarpThreads) {
    const auto group = static_cast<std::int32_t>(expert) / static_cast<std::int32_t>(group_experts);
    const bool open = row.group_keys[group] == 0;
    if (!open) row.keys[expert] = key_of(kMinusInfinity, expert);
  }
}

// Takes the row's experts, and writes them in ascending order.
STEMMA_ON_DEVICE void take_experts(const ChooseExperts& p, const ChoiceRow& row) {
  std::int32_t mine = 0x7FFFFFFF;
  for (int i = 0; i < p.row_experts; ++i) {
    const std::int32_t expert = take_largest(row.keys, p.experts);
    if (lane_index() == i) mine = expert;
  }
  int before = 0;
  for (int i = 0; i < p.row_experts; ++i) before += shuffle(mine, i) < mine ? 1 : 0;
  if (lane_index() < p.row_experts) row.chosen[before] = mine;
  warp_barrier();
}

STEMMA_ON_DEVICE void weigh(const ChooseExperts& p, const ChoiceRow& row) {
  const bool has_one = lane_index() < p.row_experts;
  const std::int32_t expert = has_one ? row.chosen[lane_index()] : 0;
  float weight = row.scores[expert];
  float total = kSumFloor;
  for (int i = 0; i < p.row_experts; ++i) total += shuffle(weight, i);
  if (p.normalised) weight /= total;
  if (!has_one) return;
  const std::int64_t visit = team_x() * p.row_experts + lane_index();
  p.chosen[visit] = expert;
  p.weights[visit] = weight * p.scaling;
}

STEMMA_KERNEL STEMMA_TEAM(kWarpThreads, 16) choose_kernel(const ChooseExperts p) {
  await_turn();
  pass_turn();
  const ChoiceRow row = choice_row_of(p);
  const float top = load_scores(p, row.scores);
  if (p.correction == nullptr) softmax(p, top, row.scores);
  write_keys(p, row);
  if (p.row_groups < p.groups) close_groups(p, row);
  take_experts(p, row);
  weigh(p, row);
}

constexpr int kSortThreads = 256;
constexpr int kRunVisits = 8;  // neighbours that a thread looks at

// How many visits each expert has.
STEMMA_ON_DEVICE void count_visits(const SortVisits& p, std::uint32_t* counts) {
  for (std::int64_t i = thread_index(); i < p.experts; i += kSortThreads) counts[i] = 0;
  team_barrier();
  for (std::int64_t i = thread_index(); i < p.visits; i += kSortThreads) {
    add_shared(&counts[p.chosen[i]], 1);
  }
  team_barrier();
}

struct Plus {
  STEMMA_ON_DEVICE std::uint64_t operator()(std::uint64_t a, std::uint64_t b) const {
    return a + b;
  }
};

// Visits, and in the upper half tiles, of the experts before this team's.
STEMMA_ON_DEVICE std::uint64_t counted_before(const SortVisits& p, const std::uint32_t* counts,
                                              std::uint64_t* scratch) {
  const auto tile_visits = static_cast<std::uint32_t>(p.tile_visits);
  std::uint64_t before = 0;
  for (std::int64_t i = thread_index(); i < team_x(); i += kSortThreads) {
    const std::uint64_t tiles = (counts[i] + tile_visits - 1) / tile_visits;
    before += counts[i] + (tiles << 32);
  }
  return over_team(before, scratch, Plus());
}

// The expert's tiles; of the last expert also those without visits.
STEMMA_ON_DEVICE void write_tiles(const SortVisits& p, std::int32_t visits, std::int32_t first,
                                  std::int64_t first_tile) {
  const auto expert = static_cast<std::int32_t>(team_x());
  const auto step = static_cast<std::int32_t>(p.tile_visits);
  const std::int64_t end_tile = first_tile + (visits + step - 1) / step;
  for (std::int64_t tile = first_tile + thread_index(); tile < end_tile; tile += kSortThreads) {
    const std::int32_t begin = static_cast<std::int32_t>(tile - first_tile) * step;
    const std::int32_t left = visits - begin;
    p.tiles[tile] = {expert, first + begin, left < step ? left : step};
  }
  if (team_x() != p.experts - 1) return;
  for (std::int64_t tile = end_tile + thread_index(); tile < p.tiles_count; tile += kSortThreads) {
    p.tiles[tile] = {-1, 0, 0};
  }
}

// Which of the thread's run of visits from `begin` on are of the team's expert, one bit each.
STEMMA_ON_DEVICE std::uint32_t run_of(const SortVisits& p, std::int64_t begin) {
  const auto expert = static_cast<std::uint32_t>(team_x());
  std::uint32_t bits = 0;
  if (begin + kRunVisits <= p.visits) {
    const Words words[2] = {load_words(p.chosen + begin), load_words(p.chosen + begin + 4)};
    STEMMA_UNROLLED
    for (int i = 0; i < kRunVisits; ++i) bits |= words[i / 4].w[i % 4] == expert ? 1u << i : 0u;
    return bits;
  }
  STEMMA_ROLLED
  for (int i = 0; begin + i < p.visits; ++i) {
    bits |= static_cast<std::uint32_t>(p.chosen[begin + i]) == expert ? 1u << i : 0u;
  }
  return bits;
}

// The row that a visit is of: there are less than 2^31.
STEMMA_ON_DEVICE std::int32_t visiting_row(const SortVisits& p, std::int32_t visit) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(visit) /
                                   static_cast<std::uint32_t>(p.row_experts));
}

STEMMA_KERNEL STEMMA_TEAM(kSortThreads, 4) sort_kernel(const SortVisits p) {
  await_turn();
  pass_turn();
  auto* const scratch = reinterpret_cast<std::uint64_t*>(shared_memory());
  auto* const counts = reinterpret_cast<std::uint32_t*>(scratch + kSortThreads / kWarpThreads);
  count_visits(p, counts);
  const std::uint64_t before = counted_before(p, counts, scratch);
  const auto visits = static_cast<std::int32_t>(counts[team_x()]);
  auto next = static_cast<std::int64_t>(before & 0xFFFFFFFFu);
  write_tiles(p, visits, static_cast<std::int32_t>(next), static_cast<std::int64_t>(before >> 32));
  const std::int64_t end = next + visits;
  for (std::int64_t i = 0; next < end; i += kSortThreads * kRunVisits) {
    const std::int64_t begin = i + thread_index() * kRunVisits;
    const std::uint32_t bits = run_of(p, begin);
    std::uint32_t found = 0;
    STEMMA_UNROLLED
    for (int j = 0; j < kRunVisits; ++j) found += bits >> j & 1;
    std::int64_t to = next + static_cast<std::int64_t>(sum_before(found, scratch));
    next += static_cast<std::int64_t>(over_team(found, scratch, Plus()));
    STEMMA_UNROLLED
    for (int j = 0; j < kRunVisits; ++j) {
      if ((bits >> j & 1) == 0) continue;
      const auto visit = static_cast<std::int32_t>(begin + j);
      p.sorted[to] = visit;
      p.rows[to++] = visiting_row(p, visit);
    }
  }
}

Status wrong(const char* what) {
  return Error{ErrorCode::kInvalidArgument, what, 0};
}

}  // namespace

Status choose_experts(CudaStream& stream, const ChooseExperts& p) {
  if (p.experts < 1 || p.experts > kExpertsMax || p.slices < 1) {
    return wrong("choose_experts: experts must be 1 to 4096");
  }
  if (p.row_experts < 1 || p.row_experts > kRowExpertsMax || p.row_experts > p.experts) {
    return wrong("choose_experts: a row goes to 1 to 32 experts");
  }
  if (p.groups < 1 || p.experts % p.groups != 0 || p.row_groups < 1 || p.row_groups > p.groups) {
    return wrong("choose_experts: groups");
  }
  const LaunchShape shape = {
      .teams_x = p.rows, .threads = kWarpThreads, .shared_bytes = choice_bytes(p), .early = true};
  return launch("choose_experts", stream, shape, choose_kernel, p);
}

Status sort_visits(CudaStream& stream, const SortVisits& p) {
  if (p.experts < 1 || p.experts > kExpertsMax || p.row_experts < 1 || p.tile_visits < 1) {
    return wrong("sort_visits: extents");
  }
  if (p.visits > INT32_MAX / 2 ||
      p.tiles_count < expert_tiles_max(p.visits, p.experts, p.tile_visits)) {
    return wrong("sort_visits: visits or tiles");
  }
  if (p.visits == 0) return {};
  const std::size_t shared = kSortThreads / kWarpThreads * sizeof(std::uint64_t) +
                             static_cast<std::size_t>(p.experts) * sizeof(std::uint32_t);
  const LaunchShape shape = {
      .teams_x = p.experts, .threads = kSortThreads, .shared_bytes = shared, .early = true};
  return launch("sort_visits", stream, shape, sort_kernel, p);
}

}  // namespace stemma
