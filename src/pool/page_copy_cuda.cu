// A lane has four loads on their way before it uses the first: over a link that answers after two
// microseconds, 64 teams have a MiB on its way, several times what the fastest link needs. What
// bounds a team is the look-ups of the sum, about 10 bytes a cycle where lanes meet in banks as
// chance has it: 64 teams are far above any link, and two a multiprocessor above a third of its
// memory's rate. So where there are fewer images than teams, several teams share one.
//
// A call of a MiB takes as long as the link needs for it and a few microseconds to begin and end,
// unless those of one call are the other's: the next begins while one ends, and what it copies in
// is asked for before it waits for its turn.
#include <algorithm>

#include "device/cuda_dialect.h"
#include "pool/page_copy_cuda.h"
#include "pool/sum_tables.h"

namespace stemma {
namespace {

constexpr int kInFlight = 4;
constexpr std::int64_t kLinkTeams = 64;
constexpr std::int64_t kSumTeams = 264;
constexpr int kWarps = kSumThreads / kWarpThreads;
constexpr std::size_t kSharedBytes = (kSumAdvanceWords + kWarps) * sizeof(std::uint32_t);

enum class Way { kOut, kIn, kSum };

struct CopyParams {
  PageCopy copy;
  std::int32_t image_bytes = 0;
  std::int32_t part_bytes = 0;  // that a team takes of an image, from its end on
  int parts = 1;
  std::uint32_t zeros_sum = 0;  // where a sum is of a whole image
};

// A layer of a page, where it lies on both sides.
struct ImagePlace {
  std::byte* pieces[kImagePiecesMax];
  std::byte* image;
};

STEMMA_ON_DEVICE ImagePlace place_of(const PageCopy& copy, std::int64_t item) {
  const PagePair pages = copy.pages[item / copy.layers];
  const std::int64_t layer = copy.first_layer + item % copy.layers;
  ImagePlace place;
  STEMMA_UNROLLED
  for (int i = 0; i < kImagePiecesMax; ++i) {
    const PoolPiece& piece = copy.pieces[i];
    place.pieces[i] =
        piece.begin + layer * piece.layer_stride_bytes + pages.pool * piece.page_stride_bytes;
  }
  place.image = copy.images.begin + layer * copy.images.layer_stride_bytes +
                pages.image * copy.images.page_stride_bytes;
  return place;
}

// Where byte `at` of the image lies in the pool.
STEMMA_ON_DEVICE std::byte* in_pool(const PageCopy& copy, const ImagePlace& place,
                                    std::int32_t at) {
  std::byte* found = place.pieces[0] + at;
  std::int32_t begin = static_cast<std::int32_t>(copy.pieces[0].bytes);
  STEMMA_UNROLLED
  for (int i = 1; i < kImagePiecesMax; ++i) {
    if (i < copy.piece_count && at >= begin) found = place.pieces[i] + (at - begin);
    begin += static_cast<std::int32_t>(copy.pieces[i].bytes);
  }
  return found;
}

// The 16 bytes from `at` on. kWhole: all addresses and all pieces are multiples of 16 bytes.
// `begin`: of what there is; zeros stand before it.
template <Way kWay, bool kWhole>
STEMMA_ON_DEVICE Words load_image(const PageCopy& copy, const ImagePlace& place, std::int32_t at,
                                  std::int32_t begin) {
  Words words = {};
  if constexpr (kWhole) {
    if (at < begin) return words;
    return load_words_once(kWay == Way::kIn ? place.image + at : in_pool(copy, place, at));
  } else {
    for (int i = 0; i < kSumWordBytes; ++i) {
      if (at + i < begin) continue;
      const std::byte* const from =
          kWay == Way::kIn ? place.image + at + i : in_pool(copy, place, at + i);
      words.w[i / 4] |= static_cast<std::uint32_t>(*from) << (8 * (i % 4));
    }
    return words;
  }
}

template <Way kWay, bool kWhole>
STEMMA_ON_DEVICE void store_image(const PageCopy& copy, const ImagePlace& place, std::int32_t at,
                                  std::int32_t begin, const Words& words) {
  if constexpr (kWay != Way::kSum && kWhole) {
    if (at < begin) return;
    store_words(kWay == Way::kOut ? place.image + at : in_pool(copy, place, at), words);
  } else if constexpr (kWay != Way::kSum) {
    for (int i = 0; i < kSumWordBytes; ++i) {
      if (at + i < begin) continue;
      std::byte* const to = kWay == Way::kOut ? place.image + at + i : in_pool(copy, place, at + i);
      *to = static_cast<std::byte>(words.w[i / 4] >> (8 * (i % 4)));
    }
  }
}

// A thread's state, 16 bytes and a stride later.
STEMMA_ON_DEVICE std::uint32_t advanced(const std::uint32_t* tables, std::uint32_t state,
                                        const Words& words) {
  std::uint32_t next = 0;
  STEMMA_UNROLLED
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t word = words.w[i] ^ (i == 0 ? state : 0);
    const std::uint32_t* const table = tables + i * 4 * 256;
    next ^= table[word & 0xFF] ^ table[256 + ((word >> 8) & 0xFF)] ^
            table[512 + ((word >> 16) & 0xFF)] ^ table[768 + (word >> 24)];
  }
  return next;
}

// a × b, polynomials as sums have them.
STEMMA_ON_DEVICE std::uint32_t product(std::uint32_t a, std::uint32_t b) {
  std::uint32_t sum = 0;
  for (int bit = 31; bit >= 0; --bit) {
    sum ^= (a >> bit & 1u) != 0 ? b : 0u;
    b = (b >> 1) ^ ((b & 1u) != 0 ? kSumPolynomial : 0u);
  }
  return sum;
}

// Bytes [begin, end) of a layer image, whole strides but for the first part's.
struct ImagePart {
  ImagePlace place;
  std::int32_t begin;
  std::int32_t end;

  // Where this thread's first 16 bytes are: maybe before the begin.
  STEMMA_ON_DEVICE std::int32_t first() const {
    const std::int32_t strides = (end - begin + kSumStrideBytes - 1) / kSumStrideBytes;
    return end - strides * kSumStrideBytes + thread_index() * kSumWordBytes;
  }
};
STEMMA_ON_DEVICE ImagePart part_of(const CopyParams& params, std::int64_t number) {
  const std::int64_t item = number / params.parts;
  const auto behind = static_cast<std::int32_t>(params.parts - 1 - number % params.parts);
  const std::int32_t end = params.image_bytes - behind * params.part_bytes;
  const std::int32_t begin = end - params.part_bytes;
  return {place_of(params.copy, item), begin > 0 ? begin : 0, end};
}

template <Way kWay, bool kWhole>
STEMMA_ON_DEVICE void load_some(const CopyParams& params, const ImagePart& part, std::int32_t at,
                                Words (&held)[kInFlight]) {
  STEMMA_UNROLLED
  for (int i = 0; i < kInFlight; ++i) {
    const std::int32_t there = at + i * kSumStrideBytes;
    if (there < part.end) {
      held[i] = load_image<kWay, kWhole>(params.copy, part.place, there, part.begin);
    }
  }
}

// Stores this thread's share of a part of which `held` are the first loads, loads the others, and
// returns its state.
template <Way kWay, bool kWhole>
STEMMA_ON_DEVICE std::uint32_t copy_part(const CopyParams& params, const ImagePart& part,
                                         Words (&held)[kInFlight], const std::uint32_t* tables) {
  std::uint32_t state = 0;
  std::int32_t at = part.first();
  while (at < part.end) {
    STEMMA_UNROLLED
    for (int i = 0; i < kInFlight; ++i) {
      const std::int32_t there = at + i * kSumStrideBytes;
      if (there >= part.end) break;
      store_image<kWay, kWhole>(params.copy, part.place, there, part.begin, held[i]);
      state = advanced(tables, state, held[i]);
    }
    at += kInFlight * kSumStrideBytes;
    load_some<kWay, kWhole>(params, part, at, held);
  }
  return state;
}

// The exclusive or over the team, for thread 0. `scratch`: a word a warp, free after a barrier.
STEMMA_ON_DEVICE std::uint32_t team_xor(std::uint32_t value, std::uint32_t* scratch) {
  for (int mask = kWarpThreads / 2; mask > 0; mask /= 2) value ^= shuffle_xor(value, mask);
  if (lane_index() == 0) scratch[warp_index()] = value;
  team_barrier();
  value = 0;
  if (thread_index() == 0) {
    for (int warp = 0; warp < kWarps; ++warp) value ^= scratch[warp];
  }
  return value;
}

// The tables are on their way to shared memory.
STEMMA_ON_DEVICE void ask_for_tables(std::uint32_t* tables, const std::uint32_t* from) {
  for (int word = thread_index() * 4; word < kSumAdvanceWords; word += kSumThreads * 4) {
    copy_words_later(tables + word, from + word, true);
  }
  commit_copies();
}

template <Way kWay, bool kWhole>
STEMMA_KERNEL STEMMA_TEAM(kSumThreads, 2) copy_pages(CopyParams params) {
  auto* const tables = reinterpret_cast<std::uint32_t*>(shared_memory());
  std::uint32_t* const scratch = tables + kSumAdvanceWords;
  ask_for_tables(tables, params.copy.tables);
  const std::uint32_t weight = params.copy.tables[kSumAdvanceWords + thread_index()];
  const std::int64_t parts = params.copy.count * params.copy.layers * params.parts;
  if constexpr (kWay != Way::kIn) {
    await_turn();
    pass_turn();
  }
  for (std::int64_t number = team_x(); number < parts; number += teams_x()) {
    const ImagePart part = part_of(params, number);
    Words held[kInFlight];
    load_some<kWay, kWhole>(params, part, part.first(), held);
    if (number == team_x()) {
      wait_copies<0>();
      if constexpr (kWay == Way::kIn) {
        await_turn();
        pass_turn();
      }
    }
    team_barrier();  // the tables are there, and the scratch is free
    const std::uint32_t state = copy_part<kWay, kWhole>(params, part, held, tables);
    const std::uint32_t sum = team_xor(product(state, weight), scratch);
    if (thread_index() == 0) params.copy.sums[number] = sum ^ params.zeros_sum;
  }
}

bool is_whole(std::int64_t bytes) {
  return bytes % kSumWordBytes == 0;
}

bool is_whole(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % kSumWordBytes == 0;
}

bool is_whole(const PageCopy& copy, Way way) {
  bool whole = way == Way::kSum ||
               (is_whole(copy.images.begin) && is_whole(copy.images.layer_stride_bytes) &&
                is_whole(copy.images.page_stride_bytes));
  for (int i = 0; i < copy.piece_count; ++i) {
    const PoolPiece& piece = copy.pieces[i];
    whole = whole && is_whole(piece.begin) && is_whole(piece.layer_stride_bytes) &&
            is_whole(piece.page_stride_bytes) && is_whole(piece.bytes);
  }
  return whole;
}

// A part is summed when all of it is there: a smaller one sooner.
constexpr std::int64_t kPartBytesMin = 2 * kSumStrideBytes;

std::int64_t part_bytes_of(const PageCopy& copy) {
  const std::int64_t parts =
      std::max<std::int64_t>(kSumWordsMin / std::max<std::int64_t>(copy.count * copy.layers, 1), 1);
  const std::int64_t each = (layer_bytes_of(copy) + parts - 1) / parts;
  const std::int64_t strides = (each + kSumStrideBytes - 1) / kSumStrideBytes;
  return std::max(strides * kSumStrideBytes, kPartBytesMin);
}

int parts_of(const PageCopy& copy) {
  const std::int64_t each = part_bytes_of(copy);
  return static_cast<int>(std::max<std::int64_t>((layer_bytes_of(copy) + each - 1) / each, 1));
}

template <Way kWay>
Status load_copies() {
  STEMMA_RETURN_IF_ERROR(load_kernel(copy_pages<kWay, true>));
  return load_kernel(copy_pages<kWay, false>);
}

template <Way kWay>
Status launch_copy(const char* name, CudaStream& stream, const PageCopy& copy,
                   std::int64_t teams_max) {
  const int parts = parts_of(copy);
  const CopyParams params = {.copy = copy,
                             .image_bytes = static_cast<std::int32_t>(layer_bytes_of(copy)),
                             .part_bytes = static_cast<std::int32_t>(part_bytes_of(copy)),
                             .parts = parts,
                             .zeros_sum = parts == 1 ? copy.zeros_sum : 0};
  const std::int64_t all_parts = copy.count * copy.layers * parts;
  const bool is_soon_done = all_parts <= kSumWordsMin;
  const LaunchShape shape = {.teams_x = is_soon_done ? all_parts : std::min(all_parts, teams_max),
                             .threads = kSumThreads,
                             .shared_bytes = kSharedBytes,
                             .early = true};
  const auto kernel = is_whole(copy, kWay) ? copy_pages<kWay, true> : copy_pages<kWay, false>;
  return launch(name, stream, shape, kernel, params);
}

}  // namespace

std::int64_t layer_bytes_of(const PageCopy& copy) {
  std::int64_t bytes = 0;
  for (int i = 0; i < copy.piece_count; ++i) bytes += copy.pieces[i].bytes;
  return bytes;
}

void gather_sums(const PageCopy& copy) {
  const int parts = parts_of(copy);
  if (parts == 1) return;
  const std::int64_t part_bytes = part_bytes_of(copy);
  const std::uint32_t advance = sum_advance(static_cast<std::size_t>(part_bytes));
  const std::uint32_t* next = copy.sums;
  for (std::int64_t item = 0; item < copy.count * copy.layers; ++item) {
    std::uint32_t sum = 0;
    for (int part = 0; part < parts; ++part) sum = sum_product(sum, advance) ^ *next++;
    copy.sums[item] = sum ^ copy.zeros_sum;
  }
}

Status load_page_copies() {
  STEMMA_RETURN_IF_ERROR(load_copies<Way::kOut>());
  STEMMA_RETURN_IF_ERROR(load_copies<Way::kIn>());
  return load_copies<Way::kSum>();
}

Status copy_pages_out(CudaStream& stream, const PageCopy& copy) {
  return launch_copy<Way::kOut>("copy_pages_out", stream, copy, kLinkTeams);
}

Status copy_pages_in(CudaStream& stream, const PageCopy& copy) {
  return launch_copy<Way::kIn>("copy_pages_in", stream, copy, kLinkTeams);
}

Status sum_pages(CudaStream& stream, const PageCopy& copy) {
  return launch_copy<Way::kSum>("sum_pages", stream, copy, kSumTeams);
}

}  // namespace stemma
