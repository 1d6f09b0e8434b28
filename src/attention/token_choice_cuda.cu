// A guess's bits, without the sign, are its key: guesses are not negative, so keys are in the order
// of their values. The least key that is chosen is found twelve, twelve and seven bits at a time:
// each round counts the keys that begin with what is known in bins of the next bits, of which the
// highest are chosen.
#include "attention/attention_rows_cuda.h"
#include "attention/token_choice_cuda.h"

namespace stemma {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarpThreads;
constexpr int kBins = 4096;

struct Chooser {
  std::uint32_t* bins;   // [kBins]
  std::uint32_t* above;  // keys in bins of each warp; then keys above the least, and equal ones
  std::uint32_t* found;  // a bin, and how many are wanted of it
};
constexpr std::size_t kSharedBytes = (kBins + 2 * kWarps + 2) * sizeof(std::uint32_t);
STEMMA_ON_DEVICE Chooser chooser_of(std::byte* shared) {
  Chooser chooser;
  chooser.bins = reinterpret_cast<std::uint32_t*>(shared);
  chooser.above = chooser.bins + kBins;
  chooser.found = chooser.above + 2 * kWarps;
  return chooser;
}

constexpr std::uint32_t kKeyBits = 0x7FFFFFFFu;
STEMMA_ON_DEVICE std::uint32_t key_of(const float* guesses, int token) {
  return float_as_word(guesses[token]) & kKeyBits;
}
// Calls with the keys of tokens [begin, end), of which each of `threads` has four at a time.
// `begin` is a multiple of 4.
template <typename Call>
STEMMA_ON_DEVICE void for_keys(const float* guesses, int begin, int end, int thread, int threads,
                               const Call& call) {
  for (int first = begin + 4 * thread; first < end; first += 4 * threads) {
    const Words words = load_words(guesses + first);
    STEMMA_UNROLLED
    for (int i = 0; i < 4; ++i) {
      if (first + i < end) call(words.w[i] & kKeyBits);
    }
  }
}

// The largest keys have the highest bins: which bin has the `wanted`-th key, and its place there.
// What the lowest bin has is not counted: it has whatever is left.
STEMMA_ON_DEVICE void find_bin(const Chooser& chooser, std::uint32_t wanted) {
  constexpr int kBinsEach = kBins / kThreads;
  const std::uint32_t* const mine = chooser.bins + thread_index() * kBinsEach;
  std::uint32_t own = 0;
  for (int i = 0; i < kBinsEach; ++i) own += mine[i];
  std::uint32_t from_here = own;  // of this lane and those after it
  for (int distance = 1; distance < kWarpThreads; distance *= 2) {
    const std::uint32_t other = shuffle(from_here, lane_index() + distance);
    if (lane_index() + distance < kWarpThreads) from_here += other;
  }
  if (lane_index() == 0) chooser.above[warp_index()] = from_here;
  team_barrier();
  std::uint32_t above = from_here - own;
  for (int warp = warp_index() + 1; warp < kWarps; ++warp) above += chooser.above[warp];
  if (above >= wanted || (above + own < wanted && thread_index() > 0)) return;
  std::uint32_t left = wanted - above;
  int bin = kBinsEach - 1;
  for (; mine[bin] < left && (thread_index() > 0 || bin > 0); --bin) left -= mine[bin];
  chooser.found[0] = static_cast<std::uint32_t>(thread_index() * kBinsEach + bin);
  chooser.found[1] = left;
}

// The least key that is chosen, and how many of those that have it are.
struct LeastKey {
  std::uint32_t key;
  std::uint32_t equals;
};
STEMMA_ON_DEVICE LeastKey find_least(const Chooser& chooser, const float* guesses, int tokens,
                                     int kept) {
  constexpr int kShifts[] = {31, 19, 7, 0};
  LeastKey least = {0, static_cast<std::uint32_t>(kept)};
  for (int round = 1; round < 4; ++round) {
    const int before = kShifts[round - 1];
    const int shift = kShifts[round];
    for (int i = thread_index(); i < kBins; i += kThreads) chooser.bins[i] = 0;
    team_barrier();
    for_keys(guesses, 0, tokens, thread_index(), kThreads, [&](std::uint32_t key) {
      const std::uint32_t bin = (key >> shift) - (least.key << (before - shift));
      if (key >> before == least.key && bin > 0) add_shared(&chooser.bins[bin], 1);
    });
    team_barrier();
    find_bin(chooser, least.equals);
    team_barrier();
    least = {least.key << (before - shift) | chooser.found[0], chooser.found[1]};
  }
  return least;
}

// Each warp has tokens that follow each other: how many of its own are above the least key, and how
// many have it.
STEMMA_ON_DEVICE void count_chosen(const Chooser& chooser, const float* guesses, int begin, int end,
                                   std::uint32_t least) {
  std::uint32_t above = 0;
  std::uint32_t equal = 0;
  for_keys(guesses, begin, end, lane_index(), kWarpThreads, [&](std::uint32_t key) {
    above += key > least ? 1 : 0;
    equal += key == least ? 1 : 0;
  });
  for (int mask = kWarpThreads / 2; mask > 0; mask /= 2) {
    above += shuffle_xor(above, mask);
    equal += shuffle_xor(equal, mask);
  }
  if (lane_index() != 0) return;
  chooser.above[warp_index()] = above;
  chooser.above[kWarps + warp_index()] = equal;
}

STEMMA_ON_DEVICE std::int32_t slot_of(const AttentionParams& params, const ChoosingRow& row,
                                      int token) {
  const auto size = static_cast<std::uint32_t>(params.page_size);
  const std::uint32_t page = static_cast<std::uint32_t>(token) / size;
  const auto* const table = array_of<std::int32_t>(params, header_of(params).table_at);
  return table[row.table_begin + static_cast<std::int32_t>(page)] * params.page_size +
         static_cast<std::int32_t>(static_cast<std::uint32_t>(token) - page * size);
}

STEMMA_ON_DEVICE void write_chosen(const Chooser& chooser, const AttentionParams& params,
                                   const ChoosingRow& row, const float* guesses,
                                   std::int32_t* chosen) {
  const LeastKey least = find_least(chooser, guesses, row.tokens, row.kept_tokens);
  const int each = (row.tokens + 4 * kThreads - 1) / (4 * kThreads) * (4 * kWarpThreads);
  const int begin = warp_index() * each;
  const int end = begin + each < row.tokens ? begin + each : row.tokens;
  count_chosen(chooser, guesses, begin, end, least.key);
  team_barrier();
  std::uint32_t to = 0;
  std::uint32_t equal = 0;
  for (int warp = 0; warp < warp_index(); ++warp) {
    to += chooser.above[warp];
    equal += chooser.above[kWarps + warp];
  }
  std::uint32_t left = equal < least.equals ? least.equals - equal : 0;
  to += least.equals - left;
  const std::uint32_t before = (std::uint32_t{1} << lane_index()) - 1;
  for (int first = begin; first < end; first += kWarpThreads) {
    const int token = first + lane_index();
    const bool exists = token < end;
    const std::uint32_t key = exists ? key_of(guesses, token) : 0;
    const std::uint32_t equals = lanes_where(exists && key == least.key);
    const bool taken =
        exists &&
        (key > least.key ||
         (key == least.key && static_cast<std::uint32_t>(ones_in(equals & before)) < left));
    const std::uint32_t lanes = lanes_where(taken);
    if (taken) {
      chosen[to + static_cast<std::uint32_t>(ones_in(lanes & before))] =
          slot_of(params, row, token);
    }
    to += static_cast<std::uint32_t>(ones_in(lanes));
    const auto used = static_cast<std::uint32_t>(ones_in(equals));
    left = used < left ? left - used : 0;
  }
}

STEMMA_KERNEL STEMMA_TEAM(kThreads, kChoosingTeams) choose_from_guesses(TokenChoiceParams params) {
  await_turn();
  const AttentionParams& attention = params.attention;
  const Chooser chooser = chooser_of(shared_memory());
  const std::int32_t choices = choices_of(attention);
  const std::int64_t works =
      choices > 0 ? static_cast<std::int64_t>(choices) * attention.kv_heads : 0;
  for (std::int64_t work = team_x(); work < works; work += teams_x()) {
    const auto choice = static_cast<std::int32_t>(work / attention.kv_heads);
    team_barrier();  // what is in shared memory has been read
    write_chosen(chooser, attention, choosing_row_of(attention, choice),
                 params.guesses + work * params.guesses_max,
                 attention.chosen + work * attention.chosen_max);
  }
}

}  // namespace

Status choose_tokens(CudaStream& stream, const TokenChoiceParams& params, std::int64_t teams) {
  return launch(
      "token_choice", stream,
      {.teams_x = teams, .threads = kThreads, .shared_bytes = kSharedBytes, .early = true},
      choose_from_guesses, params);
}

}  // namespace stemma
