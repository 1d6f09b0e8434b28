// Sampling. What a rule cuts off, and what is drawn, is a place in the sum of the weights from the
// most likely token down. Such a place is found without sorting: tokens are counted and weighed in
// 1,536 bins by their depth below the largest logit, the bin of the place again in 1,536, and so on
// until all tokens of a bin are equally deep. The first bins serve every question about a row.
#include "cuda/sample_cuda.h"
#include "cuda/team_words.h"
#include "device/cuda_dialect.h"

namespace stemma {
namespace {

constexpr int kThreads = 768;  // of 80 registers each
constexpr int kWarps = kThreads / kWarpThreads;
constexpr int kBins = 2 * kThreads;  // each thread has two when they are added up
constexpr int kQuadsAtOnce = 2;      // loads of 16 bytes that a thread has on their way

constexpr std::int64_t kColumnsMax = std::int64_t{1} << 30;

constexpr float kNan = __builtin_nanf("");
constexpr float kInfinity = __builtin_huge_valf();
constexpr double kDepthOrigin = 32;  // from here to 64 a double has 47 binary places
constexpr double kWholeOrigin = 0x1p52;
constexpr std::uint64_t kFraction = (std::uint64_t{1} << 52) - 1;

// What weights are rounded to.
struct Precision {
  double one;  // the weight of the most likely token, a power of two
  double end;  // depths below this have a weight that is not rounded to 0
};

// How logits of a row become weights.
struct Scale {
  double largest;
  double per_temperature;
  Precision precision;
};

struct Row {
  const float* logits;
  int columns;
  int quads;           // of four columns, the last one maybe of fewer
  int quads_per_warp;  // each warp has so many neighbours
  bool aligned;
};

struct Totals {
  std::uint64_t count;
  std::uint64_t weight;
};

// Weights are added in two halves: shared memory adds 32 bits at a time. Summed up (sum_bins), a
// bin has what lies in it and before it.
struct Bins {
  std::uint32_t count[kBins];
  std::uint32_t low[kBins];
  std::uint32_t high[kBins];
};

// Tokens of neighbouring depths, and how wide their bins are.
struct Node {
  std::uint64_t least;
  std::uint64_t most;
  int shift;
};

// Where a search is: in these tokens, after those that are more likely.
struct Place {
  Node node;
  Totals before;
  Totals inside;
};

// What a team knows about its row lies here, so that no pass over the row holds registers for it.
struct Shared {
  Row row;
  Scale scale;
  RowSampling sampling;
  Bins first;
  Bins finer;
  std::uint64_t scratch[kWarps];
  std::uint64_t ranges[kWarps];  // sums over each warp's columns
  Place root;
  Place place;
};

STEMMA_ON_DEVICE Row row_of(const SampleRows& p) {
  Row row;
  row.logits = p.logits + team_x() * p.columns;
  row.columns = static_cast<int>(p.columns);
  row.quads = (row.columns + 3) / 4;
  row.quads_per_warp = (row.quads + kWarps - 1) / kWarps;
  row.aligned = p.columns % 4 == 0 && reinterpret_cast<std::uintptr_t>(p.logits) % 16 == 0;
  return row;
}

// Four neighbours; not a number beyond the end of the row.
STEMMA_ON_DEVICE void load_quad(const Row& row, int quad, float (&values)[4]) {
  if (row.aligned) {
    const Words words = load_words(row.logits + 4 * quad);
    STEMMA_UNROLLED
    for (int i = 0; i < 4; ++i) values[i] = word_as_float(words.w[i]);
    return;
  }
  STEMMA_UNROLLED
  for (int i = 0; i < 4; ++i) {
    values[i] = 4 * quad + i < row.columns ? row.logits[4 * quad + i] : kNan;
  }
}

// Quads `quad` and each kWarpThreads behind it, not a number from `end` on.
STEMMA_ON_DEVICE void load_quads(const Row& row, int quad, int end,
                                 float (&values)[kQuadsAtOnce][4]) {
  STEMMA_UNROLLED
  for (int k = 0; k < kQuadsAtOnce; ++k) {
    const int at = quad + k * kWarpThreads;
    if (at < end) {
      load_quad(row, at, values[k]);
    } else {
      STEMMA_UNROLLED
      for (float& value : values[k]) value = kNan;
    }
  }
}

// visit(column, logit) of all logits of this thread's share of its warp's columns, and of some that
// are not a number. While some are visited the next ones are on their way.
template <typename Visit>
STEMMA_ON_DEVICE void each_logit(const Row& of, const Visit& visit) {
  constexpr int kStep = kQuadsAtOnce * kWarpThreads;
  const Row row = of;
  const int begin = warp_index() * row.quads_per_warp;
  const int behind = begin + row.quads_per_warp;
  const int end = behind < row.quads ? behind : row.quads;
  float values[kQuadsAtOnce][4];
  load_quads(row, begin + lane_index(), end, values);
  for (int quad = begin + lane_index(); quad < end; quad += kStep) {
    float next[kQuadsAtOnce][4];
    load_quads(row, quad + kStep, end, next);
    STEMMA_UNROLLED
    for (int i = 0; i < 4 * kQuadsAtOnce; ++i) {
      visit(4 * (quad + i / 4 * kWarpThreads) + i % 4, values[i / 4][i % 4]);
      values[i / 4][i % 4] = next[i / 4][i % 4];
    }
  }
}

// The largest logit, its first place, and the least one; of numbers above minus infinity.
struct Extent {
  float largest;
  std::int32_t place;  // -1: there is none
  float least;
};

STEMMA_ON_DEVICE Extent extent_of(Shared& shared) {
  std::uint64_t top = 0;  // the larger number first, of equals the lower column
  std::uint64_t least = ~std::uint64_t{0};
  each_logit(shared.row, [&](int column, float logit) {
    if (!(logit > -kInfinity)) return;
    const std::uint64_t word = ordered_word(logit);
    top = larger(top, word << 32 | (0xFFFFFFFFu - static_cast<std::uint32_t>(column)));
    least = smaller(least, word);
  });
  top = over_team(top, shared.scratch, larger);
  least = over_team(least, shared.scratch, smaller);
  if (top == 0) return {-kInfinity, -1, -kInfinity};
  const std::uint32_t place = 0xFFFFFFFFu - static_cast<std::uint32_t>(top);
  return {of_ordered_word(static_cast<std::uint32_t>(top >> 32)), static_cast<std::int32_t>(place),
          of_ordered_word(static_cast<std::uint32_t>(least))};
}

// How far below the largest, in temperatures, from 32 on, rounded to 47 binary places: everything
// else is a function of this. At least precision.end, or not a number, for what has no weight.
STEMMA_ON_DEVICE double depth_of(const Scale& scale, float logit) {
  return fused(scale.largest - static_cast<double>(logit), scale.per_temperature, kDepthOrigin);
}
// The same as a whole number, in units of 2^-47 from 0 on. REQUIRES: below 64.
STEMMA_ON_DEVICE std::uint64_t whole_depth(double depth) {
  return double_as_word(depth) & kFraction;
}
// The probability in proportion to the most likely token's; 1 for that.
STEMMA_ON_DEVICE double share_of(double depth) {
  return exp_wide(kDepthOrigin - depth);
}
STEMMA_ON_DEVICE std::uint64_t weight_of(const Scale& scale, double share) {
  return double_as_word(fused(share, scale.precision.one, kWholeOrigin)) & kFraction;
}

// Sums of amount(logit) over each warp's columns, in `ranges`; that over all.
template <typename Amount>
STEMMA_ON_DEVICE std::uint64_t sum_ranges(Shared& shared, const Amount& amount) {
  std::uint64_t sum = 0;
  each_logit(shared.row, [&](int, float logit) { sum += amount(logit); });
  for (int mask = kWarpThreads / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
  if (lane_index() == 0) shared.ranges[warp_index()] = sum;
  team_barrier();
  std::uint64_t all = 0;
  for (int warp = 0; warp < kWarps; ++warp) all += shared.ranges[warp];
  return all;
}

// The first column with which the sum of amounts from the row's beginning is above `target`.
// REQUIRES: sum_ranges has the same amounts; the sum of all is above `target`.
template <typename Amount>
STEMMA_ON_DEVICE void find_column(Shared& shared, const Amount& amount, std::uint64_t target,
                                  std::int32_t* column) {
  const Row row = shared.row;
  int range = 0;
  while (target >= shared.ranges[range]) target -= shared.ranges[range++];
  const int first = range * row.quads_per_warp;
  const int behind = first + row.quads_per_warp;
  const int quads_each = (row.quads_per_warp + kThreads - 1) / kThreads;
  const int begin = first + thread_index() * quads_each;
  int end = begin + quads_each < behind ? begin + quads_each : behind;
  if (end > row.quads) end = row.quads;
  std::uint64_t own = 0;
  float values[4];
  for (int quad = begin; quad < end; ++quad) {
    load_quad(row, quad, values);
    STEMMA_UNROLLED
    for (const float value : values) own += amount(value);
  }
  const std::uint64_t before = sum_before(own, shared.scratch);
  if (target < before || target - before >= own) return;
  std::uint64_t reached = before;
  std::int32_t found = -1;
  for (int quad = begin; quad < end && found < 0; ++quad) {
    load_quad(row, quad, values);
    STEMMA_UNROLLED
    for (int i = 0; i < 4; ++i) {
      reached += amount(values[i]);
      if (found < 0 && reached > target) found = static_cast<std::int32_t>(4 * quad + i);
    }
  }
  *column = found;
}

// The place in a sum of weights that a random number stands for.
STEMMA_ON_DEVICE std::uint64_t place_of(double unit, std::uint64_t sum) {
  const auto place = static_cast<std::uint64_t>(unit * static_cast<double>(sum));
  return place < sum ? place : sum - 1;
}

// Every token may be drawn: in the order of their ids.
STEMMA_ON_DEVICE void draw_unordered(Shared& shared, std::int32_t* token) {
  const Scale scale = shared.scale;
  const double min_share = shared.sampling.min_p;
  const auto amount = [&](float logit) -> std::uint64_t {
    const double depth = depth_of(scale, logit);
    if (!(depth < scale.precision.end)) return 0;
    const double share = share_of(depth);
    return share >= min_share ? weight_of(scale, share) : 0;
  };
  const std::uint64_t sum = sum_ranges(shared, amount);
  find_column(shared, amount, place_of(shared.sampling.unit, sum), token);
}

STEMMA_ON_DEVICE Node node_of(std::uint64_t least, std::uint64_t most) {
  int shift = 0;
  while ((most - least) >> shift >= kBins) ++shift;
  return {least, most, shift};
}

STEMMA_ON_DEVICE void add_to_bin(Bins& bins, std::uint64_t bin, std::uint64_t weight) {
  add_shared(&bins.count[bin], 1);
  const auto low = static_cast<std::uint32_t>(weight);
  const std::uint32_t sum = add_shared(&bins.low[bin], low) + low;
  const std::uint32_t high = static_cast<std::uint32_t>(weight >> 32) + (sum < low ? 1 : 0);
  if (high != 0) add_shared(&bins.high[bin], high);
}

STEMMA_ON_DEVICE Totals totals_of(const Bins& bins, int bin) {
  return {bins.count[bin], static_cast<std::uint64_t>(bins.high[bin]) << 32 | bins.low[bin]};
}

STEMMA_ON_DEVICE void sum_bins(Bins& bins, std::uint64_t* scratch) {
  const int first = 2 * thread_index();
  const Totals left = totals_of(bins, first);
  const Totals right = totals_of(bins, first + 1);
  const std::uint64_t count = sum_before(left.count + right.count, scratch) + left.count;
  const std::uint64_t weight = sum_before(left.weight + right.weight, scratch) + left.weight;
  const Totals sums[2] = {{count, weight}, {count + right.count, weight + right.weight}};
  STEMMA_UNROLLED
  for (int i = 0; i < 2; ++i) {
    bins.count[first + i] = static_cast<std::uint32_t>(sums[i].count);
    bins.low[first + i] = static_cast<std::uint32_t>(sums[i].weight);
    bins.high[first + i] = static_cast<std::uint32_t>(sums[i].weight >> 32);
  }
  team_barrier();
}

// What fill_bins saw beside the bins.
struct Filled {
  bool alike;            // all tokens are equally deep
  std::uint64_t likely;  // the weight of those that are likely enough for min_p
};

// The node's tokens in bins, summed up.
STEMMA_ON_DEVICE Filled fill_bins(Shared& shared, const Node& node, double min_share, Bins& bins) {
  const Scale scale = shared.scale;
  for (int bin = thread_index(); bin < kBins; bin += kThreads) {
    bins.count[bin] = 0;
    bins.low[bin] = 0;
    bins.high[bin] = 0;
  }
  team_barrier();
  std::uint64_t least = ~std::uint64_t{0};
  std::uint64_t most = 0;
  std::uint64_t likely = 0;
  each_logit(shared.row, [&](int, float logit) {
    const double depth = depth_of(scale, logit);
    if (!(depth < scale.precision.end)) return;
    const std::uint64_t whole = whole_depth(depth);
    if (whole < node.least || whole > node.most) return;
    const double share = share_of(depth);
    const std::uint64_t weight = weight_of(scale, share);
    add_to_bin(bins, (whole - node.least) >> node.shift, weight);
    if (share >= min_share) likely += weight;
    least = smaller(least, whole);
    most = larger(most, whole);
  });
  const auto sum = [](std::uint64_t a, std::uint64_t b) { return a + b; };
  least = over_team(least, shared.scratch, smaller);
  most = over_team(most, shared.scratch, larger);
  likely = over_team(likely, shared.scratch, sum);
  sum_bins(bins, shared.scratch);
  return {least == most, likely};
}

// What a place is counted in.
enum class Measure { kTokens, kWeight };
STEMMA_ON_DEVICE std::uint64_t measure_of(Measure measure, const Totals& totals) {
  return measure == Measure::kTokens ? totals.count : totals.weight;
}

// Narrows `place`, whose tokens are in `bins`, to the bin of the token at `target`, counted from
// the most likely one of all. REQUIRES: it is in there.
STEMMA_ON_DEVICE void narrow_place(const Bins& bins, Measure measure, std::uint64_t target,
                                   Place& place) {
  const Node node = place.node;
  const Totals outside = place.before;
  const std::uint64_t wanted = target - measure_of(measure, outside);
  team_barrier();  // all have read the place
  STEMMA_UNROLLED
  for (int i = 0; i < 2; ++i) {
    const int bin = 2 * thread_index() + i;
    const Totals before = bin == 0 ? Totals{0, 0} : totals_of(bins, bin - 1);
    const Totals with = totals_of(bins, bin);
    if (measure_of(measure, before) <= wanted && wanted < measure_of(measure, with)) {
      const std::uint64_t least = node.least + (static_cast<std::uint64_t>(bin) << node.shift);
      place.node = node_of(least, least + (std::uint64_t{1} << node.shift) - 1);
      place.before = {outside.count + before.count, outside.weight + before.weight};
      place.inside = {with.count - before.count, with.weight - before.weight};
    }
  }
  team_barrier();
}

// Leaves in shared.place the tokens, all equally deep, among which is the one at `target`.
// `alike`: all tokens are.
STEMMA_ON_DEVICE void find_place(Shared& shared, bool alike, Measure measure,
                                 std::uint64_t target) {
  team_barrier();  // what was found before has been read
  if (thread_index() == 0) shared.place = shared.root;
  team_barrier();
  const Bins* bins = &shared.first;
  while (!alike) {
    narrow_place(*bins, measure, target, shared.place);
    const Node node = shared.place.node;
    if (node.least == node.most || shared.place.inside.count == 1) return;
    alike = fill_bins(shared, node, 0, shared.finer).alike;
    bins = &shared.finer;
  }
}

// The least weight that is at least `share` of `sum`.
STEMMA_ON_DEVICE std::uint64_t least_weight(double share, std::uint64_t sum) {
  const double wanted = share * static_cast<double>(sum);
  const auto whole = static_cast<std::uint64_t>(wanted);
  return static_cast<double>(whole) < wanted ? whole + 1 : whole;
}

// The tokens of the row in shared.first, and what they are together in shared.root.
STEMMA_ON_DEVICE Filled fill_root(Shared& shared, float least) {
  const double deepest = depth_of(shared.scale, least);
  const double end = shared.scale.precision.end;
  const Node node = node_of(0, whole_depth(deepest < end ? deepest : end));
  const Filled filled = fill_bins(shared, node, shared.sampling.min_p, shared.first);
  if (thread_index() == 0) shared.root = {node, {0, 0}, totals_of(shared.first, kBins - 1)};
  team_barrier();
  return filled;
}

// The rules leave some of the most likely tokens: in the order of their ranks.
STEMMA_ON_DEVICE void draw_ordered(Shared& shared, float least, std::int32_t* token) {
  const RowSampling& sampling = shared.sampling;
  const Place& place = shared.place;
  const Filled filled = fill_root(shared, least);
  const auto top_k = static_cast<std::uint64_t>(sampling.top_k);
  std::uint64_t ranked = shared.root.inside.weight;  // of what top_k leaves
  std::uint64_t kept = filled.likely;                // of what all rules leave
  std::uint64_t past = 0;  // tokens as deep as the one that was found, with lower ids
  enum Question { kTopK, kTopP, kDraw };
  for (int question = kTopK; question <= kDraw; ++question) {
    if (question == kTopK && (top_k == 0 || top_k >= shared.root.inside.count)) continue;
    if (question == kTopP && !(sampling.top_p < 1)) continue;
    const Measure measure = question == kTopK ? Measure::kTokens : Measure::kWeight;
    const std::uint64_t target = question == kTopK   ? top_k - 1
                                 : question == kTopP ? least_weight(sampling.top_p, ranked) - 1
                                                     : place_of(sampling.unit, kept);
    find_place(shared, filled.alike, measure, target);
    const std::uint64_t weight = place.inside.weight / place.inside.count;  // of each
    const std::uint64_t inside = target - measure_of(measure, place.before);
    past = question == kTopK ? inside : inside / weight;
    if (question == kDraw) break;
    const std::uint64_t reached = place.before.weight + (past + 1) * weight;
    if (question == kTopK) ranked = reached;
    kept = smaller(kept, reached);
  }
  const Scale scale = shared.scale;
  const Node node = place.node;
  const auto amount = [&](float logit) -> std::uint64_t {
    const double depth = depth_of(scale, logit);
    if (!(depth < scale.precision.end)) return 0;
    const std::uint64_t whole = whole_depth(depth);
    return whole >= node.least && whole <= node.most ? 1 : 0;
  };
  sum_ranges(shared, amount);
  find_column(shared, amount, past, token);
}

STEMMA_KERNEL STEMMA_TEAM(kThreads, 1)
    sample_kernel(const SampleRows p, const Precision precision) {
  await_turn();
  Shared& shared = *reinterpret_cast<Shared*>(shared_memory());
  if (thread_index() == 0) {
    shared.row = row_of(p);
    shared.sampling = p.sampling[team_x()];
  }
  team_barrier();
  std::int32_t* const token = p.tokens + team_x();
  const Extent extent = extent_of(shared);
  const RowSampling& sampling = shared.sampling;
  const bool certain = extent.place < 0 || extent.largest == kInfinity ||
                       sampling.temperature == 0 || sampling.top_k == 1;
  if (certain) {
    if (thread_index() == 0) *token = extent.place;
    return;
  }
  if (thread_index() == 0) {
    const double per_temperature = 1.0 / static_cast<double>(sampling.temperature);
    shared.scale = {extent.largest, per_temperature, precision};
  }
  team_barrier();
  if (sampling.top_k == 0 && !(sampling.top_p < 1)) {
    draw_unordered(shared, token);
  } else {
    draw_ordered(shared, extent.least, token);
  }
}

// So that the sum of all weights is below 2^63.
Precision precision_of(std::int64_t columns) {
  int digits = 0;
  while (columns >> digits != 0) ++digits;
  const int places = digits > 18 ? 63 - digits : 45;
  constexpr double kLogarithmOf2 = 0.693147180559945309417;
  return {static_cast<double>(std::uint64_t{1} << places),
          kDepthOrigin + (places + 1) * kLogarithmOf2 - 0x1p-40};
}

}  // namespace

Status sample_rows(CudaStream& stream, const SampleRows& p) {
  if (p.columns < 1 || p.columns > kColumnsMax) {
    return Error{ErrorCode::kInvalidArgument, "sample_rows: columns", 0};
  }
  const LaunchShape shape = {
      .teams_x = p.rows, .threads = kThreads, .shared_bytes = sizeof(Shared), .early = true};
  return launch("sample_rows", stream, shape, sample_kernel, p, precision_of(p.columns));
}

}  // namespace stemma
